use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcrib::{Capture, Effect, Tool};

use crate::support::TestApp;
use crate::support::redis::TestRedis;

/// Cached tools that count their runs. `runs` is common to the services of a test, as a backend is.
fn tools(runs: &Arc<AtomicUsize>) -> [Tool; 4] {
    let tool = |name: &str| {
        let runs = runs.clone();
        let tool = Tool::new(name, "Counts its runs.").param_opt("key", "string", "Anything");
        let tool = tool
            .effect(Effect::Read)
            .cache(Duration::from_secs(600), &[]);
        let run = move |_, _| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(json!({"run": run})) }
        };
        (tool, run)
    };
    let (count, run) = tool("count");
    let count = count.call(run);
    let (other, run) = tool("other");
    let other = other.call(run);
    let (private, run) = tool("private");
    let private = private.capture(Capture::Digest).call(run);
    let large = Tool::new("large", "Gives much.")
        .effect(Effect::Read)
        .cache(Duration::from_secs(600), &[])
        .call(|_, _| async { Ok(json!("x".repeat(2 << 20))) });
    [count, other, private, large]
}

fn manifest(redis: &TestRedis) -> String {
    format!("cache: {{redis: 'redis://127.0.0.1:{}'}}\n", redis.port())
}

struct Fleet {
    apps: [TestApp; 2],
    redis: TestRedis,
}

impl Fleet {
    /// Two services with ledgers of their own.
    async fn start() -> Option<Self> {
        let redis = TestRedis::start(&[])?;
        let runs = Arc::default();
        let manifest = manifest(&redis);
        let start = || TestApp::with_manifest(&manifest, tools(&runs));
        let apps = [start().await, start().await];
        Some(Self { apps, redis })
    }

    /// Where the answer came from, and the number of the run.
    async fn call(&self, app: usize, tool: &str, arguments: Value) -> (String, Value) {
        let (status, answer) = self.apps[app].invoke(tool, arguments).await;
        assert_eq!(status, 200, "{answer}");
        let cache = answer["meta"]["cache"].as_str().unwrap().to_owned();
        (cache, answer["structured_content"]["run"].clone())
    }

    async fn expect(&self, app: usize, tool: &str, cache: &str, run: usize) {
        let seen = self.call(app, tool, json!({})).await;
        assert_eq!(
            seen,
            (cache.to_owned(), json!(run)),
            "service {app}, {tool}"
        );
    }

    /// Calls with new arguments until both services have the result of one run, and returns these
    /// arguments. A busy machine may take longer than a call waits for Redis.
    async fn share(&self, tool: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(30);
        for number in 0.. {
            let arguments = json!({"key": format!("shared-{number}")});
            let (cache, run) = self.call(0, tool, arguments.clone()).await;
            assert_eq!(cache, "miss");
            if self.call(1, tool, arguments.clone()).await == ("hit".to_owned(), run) {
                return arguments;
            }
            assert!(Instant::now() < end, "no result is shared");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Value::Null
    }

    /// The number of requests of one service.
    async fn requests(&self, app: usize, operation: &str, outcome: &str) -> u64 {
        let family = "toolcrib_cache_redis_requests_total";
        let label = format!("operation=\"{operation}\",outcome=\"{outcome}\"");
        let samples = self.apps[app].samples(family).await;
        let sample = samples.iter().find(|sample| sample.contains(&label));
        sample.map_or(0, |sample| {
            sample.rsplit(' ').next().unwrap().parse().unwrap()
        })
    }
}

#[tokio::test]
async fn services_share_results() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let arguments = fleet.share("count").await;
    // The row has the result itself, because the ledger has no row of the call that produced it.
    let row = fleet.apps[1].newest_invocation().await;
    assert_eq!(row["cache"], "hit");
    let run = row["result"]["structured_content"]["run"].clone();
    assert!(run.is_u64(), "{row}");
    // From here on the memory answers, and the rows refer to that one.
    let read = fleet.requests(1, "read", "hit").await;
    let again = fleet.call(1, "count", arguments).await;
    assert_eq!(again, ("hit".to_owned(), run.clone()));
    assert_eq!((read, fleet.requests(1, "read", "hit").await), (1, 1));
    let row = fleet.apps[1].newest_invocation().await;
    assert_eq!(row["result"]["structured_content"]["run"], run, "{row}");
}

#[tokio::test]
async fn refreshed_results_are_shared() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let end = Instant::now() + Duration::from_secs(30);
    for number in 0.. {
        let arguments = json!({"key": number.to_string()});
        let refresh = json!({"arguments": arguments, "cache": "refresh"});
        let (_, fresh) = fleet.apps[0].post("/tools/count/invoke", refresh).await;
        let run = fresh["structured_content"]["run"].clone();
        if fleet.call(1, "count", arguments).await == ("hit".to_owned(), run) {
            return;
        }
        assert!(Instant::now() < end, "no refreshed result is shared");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn private_and_large_results_are_not_in_redis() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    fleet.expect(0, "private", "miss", 1).await;
    fleet.expect(1, "private", "miss", 2).await;
    for app in [0, 1] {
        let (cache, _) = fleet.call(app, "large", json!({})).await;
        assert_eq!(cache, "miss");
    }
    assert!(fleet.requests(0, "store", "too_large").await >= 1);
    assert_eq!(fleet.requests(0, "store", "stored").await, 0);
}

/// The ledger of a service keeps results over a restart. A purge of the other service meanwhile must
/// reach them, too.
#[tokio::test]
async fn purge_reaches_a_service_that_was_away() {
    let Some(redis) = TestRedis::start(&[]) else {
        return;
    };
    let runs = Arc::default();
    let app = TestApp::with_manifest(&manifest(&redis), tools(&runs)).await;
    for tool in ["count", "other"] {
        app.invoke(tool, json!({})).await;
    }
    let purging = TestApp::with_manifest(&manifest(&redis), tools(&runs)).await;
    let purge = async {
        let (_, purged) = purging.delete("/tools/count/cache").await;
        assert_eq!(purged["purged"], 0, "its own ledger has no result");
    };
    let app = Box::pin(app.restart_after(purge, tools(&runs))).await;
    for (tool, cache) in [("count", "miss"), ("other", "hit")] {
        let (_, answer) = app.invoke(tool, json!({})).await;
        assert_eq!(answer["meta"]["cache"], cache, "{tool}");
    }
}

/// A server that takes connections and answers nothing is the slowest one.
#[tokio::test]
async fn frozen_redis_delays_few_calls() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    fleet.share("count").await;
    fleet.redis.freeze(true);
    let began = Instant::now();
    for number in 0..50 {
        fleet
            .call(0, "count", json!({"key": number.to_string()}))
            .await;
    }
    let took = began.elapsed();
    fleet.redis.freeze(false);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(fleet.requests(0, "read", "skipped").await > 0);
    fleet.share("other").await;
}
