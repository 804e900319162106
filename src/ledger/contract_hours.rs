//! Counted hours, on every engine that keeps them: whatever happens to calls, an answer has the numbers
//! of the calls that the ledger has then.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::contract::sqlite::{open as open_file, settings};
use super::contract::{approval, ended_row, row};
use super::counted_hour::HOUR_MS;
use super::memory::{MemoryLedger, count_rows};
use super::test_server::TestServer;
use super::*;
use crate::call::{CacheStatus, Effect, InvocationId};

/// A time of the test: this number of minutes after its first hour.
pub(super) fn minute(number: i32) -> Timestamp {
    "2026-06-10T22:00:00Z".parse::<Timestamp>().unwrap() + number.minutes()
}

/// A call that got its id at `requested` and started at `started`.
pub(super) fn call(tool: &str, caller: &str, requested: Timestamp, started: Timestamp) -> Row {
    let mut row = row(tool, caller, started);
    let mut id = *InvocationId::lower_bound(requested).as_bytes();
    id[8..].copy_from_slice(&row.id.as_bytes()[8..]);
    row.id = InvocationId::from_bytes(id);
    row
}

/// Records a call that started at this time.
pub(super) async fn record(ledger: &dyn Ledger, tool: &str, at: Timestamp) {
    let call = call(tool, "a", at, at);
    let ended = ended_row(&call, State::Succeeded);
    ledger.record(ended).await.unwrap();
}

async fn count_all(ledger: &dyn Ledger, now: Timestamp) -> u32 {
    let mut hours = 0;
    loop {
        match ledger.count_hours(now, Timestamp::UNIX_EPOCH, 5).await {
            Ok(0) => return hours,
            counted => hours += counted.unwrap(),
        }
    }
}

/// Compares answers with the calls of the ledger.
pub(super) async fn compare(ledger: &dyn Ledger) {
    ledger.flush().await.unwrap();
    let all = Query {
        limit: 100_000,
        ..Query::default()
    };
    let rows = ledger.list_calls(&all).await.unwrap();
    let ranges = [(-600, 6000), (17, 343), (60, 61), (120, 300), (119, 301)];
    let widths = [HOUR_MS, 24 * HOUR_MS, 60_000];
    let groups = [
        None,
        Some(UsageBy::Tool),
        Some(UsageBy::Caller),
        Some(UsageBy::Run),
    ];
    for (since, until) in ranges {
        for width_ms in widths {
            for by in groups {
                for (caller, limit) in [(None, 1000), (Some("a"), 1000), (None, 3)] {
                    let query = BucketQuery {
                        since: minute(since),
                        until: minute(until),
                        width_ms,
                        by,
                        caller: caller.map(str::to_owned),
                        limit,
                    };
                    let counted = ledger.usage_buckets(&query).await.unwrap();
                    assert_eq!(counted, count_rows(rows.iter(), &query), "{query:?}");
                }
            }
        }
    }
}

async fn hours_are_counted_once(ledger: &dyn Ledger) {
    for at in [5, 65, 70, 190, 250] {
        record(ledger, "t", minute(at)).await;
    }
    compare(ledger).await;
    // Hours have ended for an hour when they are counted, also one without calls.
    assert_eq!(count_all(ledger, minute(299)).await, 3);
    compare(ledger).await;
    assert_eq!(count_all(ledger, minute(300)).await, 1);
    assert_eq!(count_all(ledger, minute(301)).await, 0);
    compare(ledger).await;
    assert_eq!(count_all(ledger, minute(600)).await, 5, "up to now");
    compare(ledger).await;
}

async fn late_changes_uncount_only_their_hour(ledger: &dyn Ledger) {
    let now = minute(600);
    let long = call("u", "b", minute(66), minute(66));
    ledger.reserve(long.clone(), vec![]).await.unwrap();
    for at in [5, 65, 125, 190, 250] {
        record(ledger, "t", minute(at)).await;
    }
    assert_eq!(count_all(ledger, now).await, 9);
    compare(ledger).await;

    record(ledger, "t", minute(131)).await;
    compare(ledger).await;
    assert_eq!(count_all(ledger, now).await, 1, "a call was added");
    compare(ledger).await;

    let ended = ended_row(&long, State::Failed);
    ledger.settle(ended, vec![]).await.unwrap();
    compare(ledger).await;
    assert_eq!(count_all(ledger, now).await, 1, "a call has ended");
    compare(ledger).await;

    let imported = |at| RecordedCall {
        row: (*ended_row(&call("t", "c", at, at), State::Succeeded)).clone(),
        attempts: vec![],
        origin_result: None,
    };
    let imported = vec![imported(minute(20)), imported(minute(200))];
    ledger.import_calls(imported).await.unwrap();
    compare(ledger).await;
    assert_eq!(count_all(ledger, now).await, 2, "calls were imported");
    compare(ledger).await;

    ledger.prune(minute(22), now, 100).await.unwrap();
    compare(ledger).await;
    assert_eq!(count_all(ledger, now).await, 0, "no older call is left");
    ledger.prune(minute(66), now, 100).await.unwrap();
    compare(ledger).await;
    assert_eq!(count_all(ledger, now).await, 1, "a call was deleted");
    compare(ledger).await;
}

async fn shared_refusals_uncount_their_hour(ledger: &dyn Ledger) {
    let at = minute(100);
    let refuse = async |calls: usize| {
        for _ in 0..calls {
            let refused = call("t", "a", at, at);
            let ended = ended_row(&refused, State::Refused);
            ledger.record(ended).await.unwrap();
        }
    };
    refuse(105).await;
    assert_eq!(count_all(ledger, minute(300)).await, 3);
    compare(ledger).await;
    refuse(7).await;
    compare(ledger).await;
    assert_eq!(count_all(ledger, minute(300)).await, 1);
    compare(ledger).await;
}

async fn deleted_space_uncounts_hours(ledger: &dyn Ledger) {
    for at in [5, 65, 70, 190] {
        let read = Row {
            effect: Effect::Read,
            ..call("t", "a", minute(at), minute(at))
        };
        let ended = ended_row(&read, State::Succeeded);
        ledger.record(ended).await.unwrap();
    }
    assert_eq!(count_all(ledger, minute(600)).await, 9);
    while ledger.trim(minute(600), 2).await.unwrap() > 0 {
        compare(ledger).await;
    }
    compare(ledger).await;
}

pub(super) async fn approved_calls_count_when_they_start(ledger: &dyn Ledger) {
    for (requested, started) in [(0, 2), (3, 185), (5, 4000)] {
        let call = call("t", "a", minute(requested), minute(started));
        let waiting = ApprovalRow {
            invocation: call.id,
            requested_at: minute(requested),
            expires_at: minute(started.min(300)),
            ..approval("t", "a", None)
        };
        ledger.request_approval(waiting).await.unwrap();
        let ended = ended_row(&call, State::Succeeded);
        ledger.record(ended).await.unwrap();
    }
    let other = call("t", "a", minute(184), minute(184));
    let ended = ended_row(&other, State::Succeeded);
    ledger.record(ended).await.unwrap();
    compare(ledger).await;
    count_all(ledger, minute(5000)).await;
    compare(ledger).await;
}

/// Something that happens to the ledger. Times are minutes.
#[derive(Debug, Clone)]
enum Step {
    Record {
        at: i32,
        who: (u8, u8),
        state: State,
        hit: bool,
        us: i64,
    },
    Start {
        at: i32,
        waited: bool,
    },
    End(prop::sample::Index, State),
    Import(i32),
    Prune(i32),
    Trim(u32),
    Count {
        now: i32,
        at_most: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let state = prop::sample::select(vec![
        State::Succeeded,
        State::Failed,
        State::Refused,
        State::Unknown,
        State::Cancelled,
    ]);
    let at = 0..360_i32;
    prop_oneof![
        8 => (at.clone(), (0..2_u8, 0..3_u8), state.clone(), any::<bool>(), 1..9_000_000_i64)
            .prop_map(|(at, who, state, hit, us)| Step::Record { at, who, state, hit, us }),
        4 => (at.clone(), any::<bool>()).prop_map(|(at, waited)| Step::Start { at, waited }),
        4 => (any::<prop::sample::Index>(), state).prop_map(|(which, state)| Step::End(which, state)),
        1 => at.clone().prop_map(Step::Import),
        1 => (0..200_i32).prop_map(Step::Prune),
        1 => (1..6_u32).prop_map(Step::Trim),
        6 => (60..600_i32, 1..9_u32).prop_map(|(now, at_most)| Step::Count { now, at_most }),
    ]
}

async fn take(ledger: &dyn Ledger, step: &Step, open: &mut Vec<Row>) {
    match step.clone() {
        Step::Record {
            at,
            who,
            state,
            hit,
            us,
        } => {
            let (tool, caller) = (["t", "u"][who.0 as usize], ["a", "b", "c"][who.1 as usize]);
            let made = Row {
                effect: Effect::Read,
                cache: if hit {
                    CacheStatus::Hit
                } else {
                    CacheStatus::Off
                },
                run_id: hit.then(|| "r".into()),
                ..call(tool, caller, minute(at), minute(at))
            };
            let ended = Row {
                duration_us: Some(us),
                ..(*ended_row(&made, state)).clone()
            };
            ledger.record(Arc::new(ended)).await.unwrap();
        }
        Step::Start { at, waited } => {
            let requested = minute(if waited { at - 5000 } else { at });
            let started = call("t", "a", requested, minute(at));
            if waited {
                let waiting = ApprovalRow {
                    invocation: started.id,
                    requested_at: requested,
                    expires_at: requested + 24.hours(),
                    ..approval("t", "a", None)
                };
                ledger.request_approval(waiting).await.unwrap();
            }
            ledger.reserve(started.clone(), vec![]).await.unwrap();
            open.push(started);
        }
        Step::End(which, state) if !open.is_empty() => {
            let started = open.swap_remove(which.index(open.len()));
            let ended = ended_row(&started, state);
            ledger.settle(ended, vec![]).await.unwrap();
        }
        Step::End(..) => {}
        Step::Import(at) => {
            let call = RecordedCall {
                row: (*ended_row(&call("v", "c", minute(at), minute(at)), State::Failed)).clone(),
                attempts: vec![],
                origin_result: None,
            };
            ledger.import_calls(vec![call]).await.unwrap();
        }
        Step::Prune(before) => {
            let before = minute(before);
            ledger.prune(before, minute(600), 3).await.unwrap();
        }
        Step::Trim(at_most) => {
            ledger.trim(minute(600), at_most).await.unwrap();
        }
        Step::Count { now, at_most } => {
            let oldest = minute(now) - SignedDuration::from_hours(12);
            let counted = ledger.count_hours(minute(now), oldest, at_most).await;
            counted.unwrap();
        }
    }
}

/// Takes random steps on ledgers that `open` opens, one for each case, and compares after some of them.
fn check<G>(cases: u32, open: impl AsyncFn() -> (Arc<dyn Ledger>, G)) {
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let steps = proptest::collection::vec(step(), 30..60);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let case = |steps: Vec<Step>| {
        runtime.block_on(async {
            let (ledger, _guard) = open().await;
            let mut running = Vec::new();
            for (number, step) in steps.iter().enumerate() {
                take(&*ledger, step, &mut running).await;
                if number % 15 == 14 {
                    compare(&*ledger).await;
                }
            }
            compare(&*ledger).await;
            ledger.close().await;
        });
        Ok(())
    };
    if let Err(error) = TestRunner::new(config).run(&steps, case) {
        panic!("{error}");
    }
}

fn cases(part: u32) -> u32 {
    ProptestConfig::default().cases.div_ceil(part)
}

macro_rules! contract {
    ($open:expr) => {
        contract!(
            $open,
            hours_are_counted_once,
            late_changes_uncount_only_their_hour,
            shared_refusals_uncount_their_hour,
            deleted_space_uncounts_hours,
            approved_calls_count_when_they_start
        );
    };
    ($open:expr, $($test:ident),*) => {
        $(#[tokio::test]
        async fn $test() {
            let Some((ledger, _guard)) = $open.await else {
                return;
            };
            super::$test(&*ledger).await;
        })*
    };
}

mod sqlite {
    use super::*;

    contract!(async { Some(open_file().await) });

    #[test]
    fn counts_match_the_calls_after_random_steps() {
        check(cases(12), open_file);
    }
}

mod postgres {
    use super::*;

    async fn open_on(server: Arc<TestServer>) -> (Arc<dyn Ledger>, Arc<TestServer>) {
        let settings = Settings {
            url: server.create_ledger_database().await,
            ..settings()
        };
        (open(&settings, minute(0)).await.unwrap(), server)
    }

    async fn open_shared() -> Option<(Arc<dyn Ledger>, Arc<TestServer>)> {
        Some(open_on(TestServer::shared()?).await)
    }

    contract!(open_shared());

    #[test]
    fn counts_match_the_calls_after_random_steps() {
        let Some(server) = TestServer::shared() else {
            return;
        };
        check(cases(64), async || open_on(server.clone()).await);
    }
}

mod memory {
    use super::*;

    // It counts nothing ahead.
    contract!(
        async { Some((Arc::new(MemoryLedger::default()), ())) },
        approved_calls_count_when_they_start
    );
}
