//! Tests with real servers in real processes. No test sleeps for a fixed time: it polls a condition
//! until the condition holds. On a machine without Python these tests print a notice and pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::call::{
    Caller, Effect, Event, Invocation, JsonObject, ProgressSink, ToolContext, ToolError, ToolName,
    ToolResult, ToolSettings,
};
use crate::environment::Environment;
use crate::kinds::process::tests::{python, with_fast_clock};
use crate::kinds::{ProcessEnv, Runner};
use crate::secrets::Redactor;
use crate::sources::{DefinitionFingerprint, DiscoveredTool, Source, SourceListing};

/// Longest wait for an event that must happen.
const TIMEOUT: Duration = Duration::from_secs(30);
const SCRIPT: &str = include_str!("tests/server.py");

/// A folder with a server, and what the server has listed.
struct Fixture {
    server: Server,
    tools: Vec<DiscoveredTool>,
    warnings: Vec<String>,
    folder: TempDir,
}

fn test_env() -> ProcessEnv {
    ProcessEnv::new(
        Arc::new(Redactor::new(["hunter2-hunter2"])),
        &Environment::from_process(),
    )
}

/// Whether there is no Python. Prints a notice then.
fn is_python_missing() -> bool {
    let is_missing = python().is_none();
    if is_missing {
        println!("skipped: there is no python3");
    }
    is_missing
}

fn settings(folder: &Path, quirks: &[&str]) -> ServerSettings {
    std::fs::write(folder.join("server.py"), SCRIPT).unwrap();
    // Without `site`, whose import takes as long as the rest of the start.
    let argv = [python().unwrap().into(), "-S".into(), "server.py".into()]
        .into_iter()
        .chain(quirks.iter().map(ToString::to_string))
        .collect();
    ServerSettings {
        name: "probe".into(),
        transport: Transport::Command {
            argv,
            environment: BTreeMap::from([("MARK".into(), "declared".into())]),
            workdir: folder.into(),
        },
        mode: Mode::Persistent,
        include: Vec::new(),
        exclude: Vec::new(),
        protocol: None,
        start_timeout: TIMEOUT,
    }
}

impl Fixture {
    async fn try_new(
        quirks: &[&str],
        change: impl FnOnce(&mut ServerSettings),
    ) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path(), quirks);
        change(&mut settings);
        let server = Server::new(settings, &test_env());
        let SourceListing {
            tools, warnings, ..
        } = server.list(&|_| {}).await.map_err(|fault| fault.0)?;
        Ok(Self {
            server,
            tools,
            warnings,
            folder,
        })
    }

    async fn new(quirks: &[&str]) -> Self {
        Self::try_new(quirks, |_| {}).await.unwrap()
    }

    async fn on_demand(quirks: &[&str]) -> Self {
        Self::try_new(quirks, |settings| settings.mode = Mode::OnDemand)
            .await
            .unwrap()
    }

    fn tool_names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    fn runner(&self, name: &str) -> Arc<dyn Runner> {
        self.tools
            .iter()
            .find(|tool| tool.name == name)
            .unwrap_or_else(|| panic!("{name}"))
            .runner
            .clone()
    }

    /// A call, which starts when it is polled.
    fn call(
        &self,
        name: &str,
        arguments: Value,
    ) -> impl Future<Output = Result<ToolResult, ToolError>> + Send + use<> {
        let (runner, context) = (
            self.runner(name),
            context(&invocation(), Effect::Write, TIMEOUT),
        );
        async move { runner.call(object(arguments), context).await }
    }

    async fn text(&self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await.unwrap();
        assert!(!result.is_error, "{result:?}");
        result.as_text()
    }

    async fn process(&self) -> Pid {
        pid(&self.text("pid", json!({})).await)
    }

    /// A file in the server's working folder.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        other => panic!("{other}"),
    }
}

fn invocation() -> Invocation {
    let tool = ToolName::parse("probe").unwrap();
    Invocation::new(
        tool,
        JsonObject::new(),
        Arc::new(Caller::anonymous()),
        jiff::Timestamp::UNIX_EPOCH,
    )
}

fn context(invocation: &Invocation, effect: Effect, time: Duration) -> ToolContext {
    let settings = ToolSettings {
        effect,
        ..ToolSettings::default()
    };
    ToolContext::new(
        invocation,
        tokio::time::Instant::now() + time,
        Arc::new(settings),
    )
}

async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether the process has ended and was reaped.
fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn listing_has_the_tools_of_all_pages() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let fixture = Fixture::new(quirks).await;
        assert_eq!(fixture.tools.len(), 22, "{:?}", fixture.tool_names());
        let echo = &fixture.tools[0];
        assert_eq!(
            (echo.name.as_str(), echo.description.as_str()),
            ("echo", "Does echo.")
        );
        assert_eq!(
            Value::Object(echo.annotations.clone()),
            json!({"readOnlyHint": true, "title": "Echo"})
        );
        assert_eq!(
            echo.input_schema,
            json!({"type": "object", "properties": {"text": {"type": "string"}}})
        );
        assert!(fixture.tools.last().unwrap().output_schema.is_some());
        assert_eq!(
            fixture.text("echo", json!({"text": "héllo"})).await,
            "héllo"
        );
        let weather = fixture.call("weather", json!({})).await.unwrap();
        assert_eq!(
            (weather.structured_content, weather.content.len()),
            (Some(json!({"celsius": 21.5})), 0)
        );
        let status = fixture.server.status();
        assert_eq!(
            (status.is_up, status.workers, status.replaced, status.fault),
            (true, 1, 0, None)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_share_one_process() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let began = Instant::now();
    let sleeps = (0..8).map(|_| fixture.call("slow", json!({"seconds": 0.5, "mark": "x"})));
    let all = futures_util::future::join_all(sleeps).await;
    assert!(
        all.into_iter()
            .all(|result| result.unwrap().as_text() == "slept")
    );
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(fixture.process().await, fixture.process().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dead_server_fails_calls_and_is_replaced() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let before = fixture.process().await;
    // Output of an earlier call explains nothing.
    fixture.text("shout", json!({"text": "all is well"})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let other = tokio::spawn(fixture.call("slow", json!({"seconds": 60, "mark": "x"})));
    let killed = fixture.call("die", json!({})).await.unwrap_err();
    for error in [killed, other.await.unwrap().unwrap_err()] {
        let ToolError::Unavailable {
            message,
            started: true,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        let expected = "the MCP server probe did not answer: its process ended with exit status 3; its last output: I cannot go on";
        assert_eq!(message, expected);
    }
    let after = fixture.process().await;
    assert_ne!(before, after);
    let status = fixture.server.status();
    assert_eq!(
        (status.is_up, status.workers, status.replaced),
        (true, 1, 1)
    );
    assert_eq!(
        (status.fault, status.fault_at),
        (None, None),
        "the current connection has no fault"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_demand_server_ends_with_the_call() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::on_demand(&[]).await;
    let mut processes = Vec::new();
    for _ in 0..2 {
        let (server, helper) = (
            fixture.process().await,
            pid(&fixture.text("helper", json!({})).await),
        );
        processes.extend([server, helper]);
    }
    assert_ne!(processes[0], processes[2]);
    wait_until("all of them end", || {
        processes.iter().all(|process| is_gone(*process))
    })
    .await;
    let Err(ToolError::Unavailable {
        message,
        started: true,
        ..
    }) = fixture.call("die", json!({})).await
    else {
        panic!()
    };
    assert!(
        message.contains("exit status 3; its last output: I cannot go on"),
        "{message}"
    );
    let status = fixture.server.status();
    assert_eq!((status.is_up, status.workers), (true, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn killed_server_restarts_without_its_old_children() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    for round in 1..=3 {
        let helper = pid(&fixture.text("helper", json!({})).await);
        kill_process(fixture.process().await, Signal::KILL).unwrap();
        // A call now could still use the old connection, and would end with it. So wait for the
        // replacement.
        wait_until("the restart", || fixture.server.status().replaced == round).await;
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
        wait_until("the helper ends", || is_gone(helper)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drop_ends_the_server_and_its_children() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["stubborn"]] {
        let fixture = Fixture::new(quirks).await;
        let processes = [
            fixture.process().await,
            pid(&fixture.text("helper", json!({})).await),
        ];
        drop(fixture);
        wait_until("both end", || {
            processes.iter().all(|process| is_gone(*process))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replacement_waits_for_end_of_process() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&["stubborn"]).await;
    let before = fixture.process().await;
    let slow = || tokio::spawn(fixture.call("slow", json!({"seconds": 60, "mark": "x"})));
    let others = [slow(), slow(), slow(), slow()];
    fixture.call("mum", json!({})).await.unwrap_err();
    assert_ne!(fixture.process().await, before);
    assert!(is_gone(before), "though it had running calls");
    for other in others {
        other.await.unwrap().unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn progress_is_ordered_and_needs_a_listener() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let mut invocation = invocation();
    assert_eq!(fixture.text("progress", json!({})).await, "False");
    let (sink, mut listener) = ProgressSink::channel();
    invocation.delivery.progress = Some(sink);
    let reporter = invocation.progress_reporter(|| Box::new(|_| {}));
    let context = context(&invocation, Effect::Read, TIMEOUT).with_reporter(reporter);
    let result = fixture
        .runner("progress")
        .call(object(json!({})), context)
        .await
        .unwrap();
    assert_eq!(result.as_text(), "True");
    for n in 1..=5 {
        let Some(Event::Progress(progress)) = listener.try_next() else {
            panic!("progress {n}")
        };
        let expected =
            json!({"progress": f64::from(n), "total": 5.0, "message": format!("step {n}")});
        assert_eq!(
            serde_json::from_str::<Value>(progress.data.get()).unwrap(),
            expected
        );
    }
}

/// The usable tools of a `spoiled` list.
const SPOILED_TOOLS: [&str; 6] = [
    "good",
    "untyped",
    "also_good",
    "bare",
    "hinted",
    "null_words",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unusable_tools_are_skipped_with_warnings() {
    if is_python_missing() {
        return;
    }
    for quirks in [&["spoiled"][..], &["spoiled", "modern"]] {
        let fixture = Fixture::new(quirks).await;
        assert_eq!(fixture.tool_names(), SPOILED_TOOLS);
        let [no_schema, twice, root, pattern, unnamed @ ..] = &fixture.warnings[..] else {
            panic!("{:?}", fixture.warnings)
        };
        assert!(
            no_schema.starts_with("the tool `no_schema` is left out: invalid type: integer `7`"),
            "{no_schema}"
        );
        assert_eq!(
            twice,
            "the tool `good` is left out: the list contains it twice"
        );
        assert!(
            root.contains("`odd_root`") && root.contains("the root must be `type: object`"),
            "{root}"
        );
        assert!(
            pattern.contains("`bad_pattern`") && pattern.contains("inputSchema/properties/a"),
            "{pattern}"
        );
        let rest = [
            "the tool `` is left out: it has no name",
            "the tool ` ` is left out: it has no name",
            "the tool `deep` is left out: its definition is nested more than 128 levels deep",
            "the tool `untyped`: its inputSchema has no type and is read as `type: object`; the server should write the type",
            "the tool `bare`: its inputSchema has no type and is read as `type: object`; the server should write the type",
            "the tool `hinted`: its `annotations` is left out: invalid type: string \"yes\", expected a boolean",
            "the tool `null_words`: its inputSchema has no valid `properties` and no valid `required`, which is read as absent",
        ];
        assert_eq!(unnamed, rest);
        let schema_of = |name: &str| {
            let tool = fixture.tools.iter().find(|tool| tool.name == name);
            tool.unwrap().input_schema.clone()
        };
        assert_eq!(
            schema_of("null_words"),
            json!({"type": "object", "properties": {"required": {"type": "object"}}})
        );
        let untyped = fixture
            .tools
            .iter()
            .find(|tool| tool.name == "untyped")
            .unwrap();
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(untyped.input_schema, schema);
        let sent = DefinitionFingerprint::new(
            "untyped",
            [(
                "inputSchema",
                Some(json!({"properties": schema["properties"]})),
            )],
        );
        assert_eq!(
            *untyped.snapshot.as_ref().unwrap().fingerprint,
            sent,
            "pins cover what the server sent"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn aborted_call_is_cancelled_at_the_server() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let (process, mark) = (fixture.process().await, fixture.file("cancelled"));
    let slow = tokio::spawn(fixture.call("slow", json!({"seconds": 600, "mark": mark})));
    fixture
        .text("slow", json!({"seconds": 0.1, "mark": mark}))
        .await;
    slow.abort();
    wait_until("the server gets the cancellation", || mark.exists()).await;
    assert_eq!(fixture.process().await, process);
    assert_eq!(fixture.server.status().replaced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn overlong_response_fails_only_its_call() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["backwards"]] {
        let fixture = Fixture::new(quirks).await;
        let process = fixture.process().await;
        let other = tokio::spawn(fixture.call("slow", json!({"seconds": 0.5, "mark": "x"})));
        let before = resident_bytes();
        let error = fixture
            .call("big", json!({"bytes": 50_000_000}))
            .await
            .unwrap_err();
        let expected = "the MCP server probe answered more than 4.0 MiB: ask for less";
        assert_eq!(error, ToolError::BadOutput(expected.into()));
        assert!(
            resident_bytes() < before + (40 << 20),
            "{before} {}",
            resident_bytes()
        );
        assert_eq!(other.await.unwrap().unwrap().as_text(), "slept");
        assert_eq!(
            fixture.text("big", json!({"bytes": 4_000_000})).await.len(),
            4_000_000
        );
        assert_eq!(fixture.process().await, process);
    }
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn invalid_lines_are_ignored() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    assert_eq!(fixture.text("chatter", json!({})).await, "said");
    assert_eq!(
        fixture
            .text("shout", json!({"text": "hunter2-hunter2"}))
            .await,
        "shouted"
    );
    assert_eq!(fixture.server.status().replaced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_with_endless_lines_is_replaced() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let mut ends = vec![fixture.call("babble", json!({})).await.unwrap_err()];
    for _ in 0..2 {
        ends.push(
            fixture
                .call("echo", json!({"text": "x"}))
                .await
                .unwrap_err(),
        );
    }
    let Some(ToolError::Unavailable {
        message,
        started: true,
        ..
    }) = ends.pop()
    else {
        panic!("{ends:?}")
    };
    assert!(
        message.ends_with("it repeatedly wrote lines without an end"),
        "{message}"
    );
    assert_eq!(
        fixture.text("echo", json!({"text": "again"})).await,
        "again"
    );
    assert_eq!(fixture.server.status().replaced, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn json_rpc_errors_map_to_tool_errors() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let refuse = async |code: i64| {
        fixture
            .call("refuse", json!({"code": code}))
            .await
            .unwrap_err()
    };
    for code in [-32602, -32603, 17, -31999, -32769] {
        let text = format!("The MCP server probe answered with error {code}: no such luck");
        assert_eq!(
            refuse(code).await,
            ToolError::ErrorResult(text),
            "the model reads it"
        );
    }
    for (code, retryable) in [
        (-32000, true),
        (-32601, false),
        (-32600, false),
        (-32700, false),
        (-32021, false),
    ] {
        let expected = format!("the MCP server probe answered with error {code}: no such luck");
        let ToolError::Upstream {
            message,
            retryable: may,
            unavailable: false,
            ..
        } = refuse(code).await
        else {
            panic!()
        };
        assert_eq!((message, may), (expected, retryable));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_gets_declared_and_passed_variables_only() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let seen: BTreeMap<String, String> =
        serde_json::from_str(&fixture.text("environment", json!({})).await).unwrap();
    assert_eq!(
        (seen["MARK"].as_str(), seen.contains_key("PATH")),
        ("declared", true)
    );
    let passed = test_env().variables;
    let foreign = seen
        .keys()
        .filter(|name| !passed.contains_key(std::ffi::OsStr::new(name)));
    let foreign: Vec<_> = foreign
        .filter(|name| !["MARK", "TOOLCRIB_MCP_SERVER", "LC_CTYPE"].contains(&name.as_str()))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_requests_are_refused() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let answer: Value = serde_json::from_str(&fixture.text("ask", json!({})).await).unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!("a1"), &json!(-32601))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn idempotency_key_is_same_in_all_attempts() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let invocation = invocation();
    for (effect, key) in [
        (Effect::Write, json!(invocation.id)),
        (Effect::Idempotent, json!(invocation.id)),
        (Effect::Read, json!(null)),
    ] {
        let context = context(&invocation, effect, TIMEOUT);
        let meta = fixture
            .runner("meta")
            .call(object(json!({})), context)
            .await
            .unwrap()
            .as_text();
        assert_eq!(
            serde_json::from_str::<Value>(&meta).unwrap()["toolcrib/idempotencyKey"],
            key,
            "{meta}"
        );
    }
}

#[tokio::test]
async fn silent_server_is_replaced_after_cancellation() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let fixture = Fixture::new(quirks).await;
        let process = fixture.process().await;
        let waits = tokio::spawn(fixture.call("slow", json!({"seconds": 600, "mark": "x"})));
        let hang = fixture.call("hang", json!({}));
        let hangs = fixture.file("hangs");
        tokio::select! {
            ended = hang => panic!("{ended:?}"),
            () = wait_until("it hangs", || hangs.exists()) => {}
        }
        let waits = with_fast_clock(50, waits).await;
        let Err(ToolError::Unavailable {
            message,
            started: true,
            ..
        }) = waits.unwrap()
        else {
            panic!()
        };
        assert!(
            message.ends_with("it did not respond after a call was cancelled"),
            "{message}"
        );
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
        wait_until("the old one ends", || is_gone(process)).await;
        assert_eq!(fixture.server.status().replaced, 1);
    }
}

#[tokio::test]
async fn server_that_never_reads_is_replaced() {
    if is_python_missing() {
        return;
    }
    for fixture in [Fixture::new(&[]).await, Fixture::on_demand(&[]).await] {
        let before = resident_bytes();
        // Time runs slowly enough for the server to send more requests than memory could hold.
        let Err(ToolError::Unavailable {
            message,
            started: true,
            ..
        }) = with_fast_clock(4, fixture.call("pester", json!({}))).await
        else {
            panic!()
        };
        assert!(
            message.ends_with("it sent requests and read no responses"),
            "{message}"
        );
        assert!(
            resident_bytes() < before + (20 << 20),
            "{before} {}",
            resident_bytes()
        );
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reported_change_is_listed_over_same_connection() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let fixture = Fixture::new(quirks).await;
        let process = fixture.process().await;
        assert!(futures_util::FutureExt::now_or_never(fixture.server.changed()).is_none());
        fixture.text("grow", json!({})).await;
        tokio::time::timeout(TIMEOUT, fixture.server.changed())
            .await
            .unwrap();
        let listed = fixture.server.list(&|_| {}).await.unwrap();
        assert_eq!(listed.tools.last().unwrap().name, "grown");
        let call = listed.tools[1].runner.call(
            object(json!({})),
            context(&invocation(), Effect::Read, TIMEOUT),
        );
        assert_eq!(pid(&call.await.unwrap().as_text()), process);
        assert!(futures_util::FutureExt::now_or_never(fixture.server.changed()).is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn restart_signals_change_only_for_other_tools() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    fixture.call("die", json!({})).await.unwrap_err();
    fixture.process().await;
    assert!(futures_util::FutureExt::now_or_never(fixture.server.changed()).is_none());
    std::fs::write(fixture.file("late"), "").unwrap();
    fixture.call("die", json!({})).await.unwrap_err();
    tokio::time::timeout(TIMEOUT, fixture.server.changed())
        .await
        .unwrap();
    assert_eq!(
        fixture
            .server
            .list(&|_| {})
            .await
            .unwrap()
            .tools
            .last()
            .unwrap()
            .name,
        "late"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pinned_tool_is_refused_after_a_change() {
    if is_python_missing() {
        return;
    }
    for mode in [Mode::Persistent, Mode::OnDemand] {
        let fixture = Fixture::try_new(&[], |settings| settings.mode = mode)
            .await
            .unwrap();
        let pinned = |name: &str| {
            let snapshot = fixture
                .tools
                .iter()
                .find(|tool| tool.name == name)
                .unwrap()
                .snapshot
                .clone()
                .unwrap();
            let context = context(&invocation(), Effect::Write, TIMEOUT);
            async move {
                snapshot
                    .runner
                    .call(object(json!({"text": "hello"})), context)
                    .await
            }
        };
        pid(&pinned("pid").await.unwrap().as_text());
        std::fs::write(fixture.file("other"), "").unwrap();
        // A persistent server returns with another definition, which has not been listed for the
        // source yet.
        fixture.call("die", json!({})).await.unwrap_err();
        assert!(
            matches!(pinned("pid").await, Err(ToolError::DefinitionChanged)),
            "{mode:?}"
        );
        assert_eq!(
            pinned("echo").await.unwrap().as_text(),
            "hello",
            "that is the same"
        );
        fixture.process().await;
        tokio::time::timeout(TIMEOUT, fixture.server.changed())
            .await
            .unwrap();
        std::fs::remove_file(fixture.file("other")).unwrap();
        fixture.call("die", json!({})).await.unwrap_err();
        pid(&pinned("pid").await.unwrap().as_text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pinned_tool_without_known_definition_is_refused() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let snapshot = fixture.tools[0].snapshot.clone().unwrap();
    let pinned = || {
        snapshot.runner.call(
            object(json!({"text": "hello"})),
            context(&invocation(), Effect::Read, TIMEOUT),
        )
    };
    std::fs::write(fixture.file("endless"), "").unwrap();
    fixture.text("grow", json!({})).await;
    tokio::time::timeout(TIMEOUT, fixture.server.changed())
        .await
        .unwrap();
    for _ in 0..2 {
        let error = pinned().await.unwrap_err();
        let ToolError::Unavailable {
            message,
            started: false,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        let expected = "the MCP server probe reported changed tools, but could not list them: its list of tools has no end";
        assert!(message.starts_with(expected), "{message}");
    }
    assert_eq!(
        fixture.text("echo", json!({"text": "hello"})).await,
        "hello",
        "it is not pinned"
    );
    std::fs::remove_file(fixture.file("endless")).unwrap();
    fixture.server.list(&|_| {}).await.unwrap();
    assert_eq!(pinned().await.unwrap().as_text(), "hello", "it is the same");
    // The server reports another change, so its tools are listed again before the call.
    fixture.text("grow", json!({})).await;
    tokio::time::timeout(TIMEOUT, fixture.server.changed())
        .await
        .unwrap();
    assert_eq!(pinned().await.unwrap().as_text(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn fingerprint_is_computed_before_redaction() {
    let tool = |words: &str| {
        let json = json!({"name": "t", "description": words, "inputSchema": {"type": "object"}, "annotations": {"title": words}});
        listing::fingerprint_definition(&serde_json::from_value(json).unwrap())
    };
    let (one, other) = (tool("Reads hunter2-hunter2."), tool("Reads [redacted]."));
    assert!(
        one.full_hash != other.full_hash
            && one.part_hashes["description"] != other.part_hashes["description"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn failed_listing_keeps_the_connection() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let process = fixture.process().await;
    std::fs::write(fixture.file("endless"), "").unwrap();
    assert!(fixture.server.list(&|_| {}).await.is_err());
    assert_eq!(
        (fixture.process().await, fixture.server.status().is_up),
        (process, true)
    );
    std::fs::remove_file(fixture.file("endless")).unwrap();
    assert_eq!(
        fixture.server.list(&|_| {}).await.unwrap().tools.len(),
        fixture.tools.len()
    );
    assert_eq!(fixture.process().await, process);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn include_and_exclude_filter_the_listing() {
    if is_python_missing() {
        return;
    }
    let change = |settings: &mut ServerSettings| {
        settings.include = vec!["e*".into(), "p?d".into()];
        settings.exclude = vec!["*ment".into()];
    };
    assert_eq!(
        Fixture::try_new(&[], change).await.unwrap().tool_names(),
        ["echo", "pid"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn start_failures_name_the_reason() {
    if is_python_missing() {
        return;
    }
    let fault = async |quirks: &[&str], change: fn(&mut ServerSettings)| {
        Fixture::try_new(quirks, change).await.err().unwrap()
    };
    assert_eq!(
        fault(&["stillborn"], |_| {}).await,
        "its process ended with exit status 4; its last output: no licence found"
    );
    assert_eq!(
        fault(&["endless"], |_| {}).await,
        "its list of tools has no end: a page refers to an earlier page"
    );
    assert_eq!(
        fault(&["crowd"], |_| {}).await,
        "it lists more than 1000 tools"
    );
    for quirk in ["wordy", "windy"] {
        assert_eq!(
            fault(&[quirk], |_| {}).await,
            "the definitions of its tools are larger than 16.0 MiB",
            "{quirk}"
        );
    }
    let fault = fault(&[], |settings| {
        if let Transport::Command { argv, .. } = &mut settings.transport {
            argv[0] = "no-such-program".into();
        }
    });
    assert_eq!(
        fault.await,
        "there is no program `no-such-program` in the PATH"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn second_start_is_attempted_only_once() {
    if is_python_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(settings(folder.path(), &["stillborn"]), &test_env());
    for starts in ["xx", "xxx", "xxxx", "xxxxx"] {
        assert!(server.list(&|_| {}).await.is_err());
        assert_eq!(
            std::fs::read_to_string(folder.path().join("starts")).unwrap(),
            starts
        );
    }
    std::fs::write(
        folder.path().join("server.py"),
        SCRIPT.replace("\"stillborn\" in", "\"unborn\" in"),
    )
    .unwrap();
    assert!(server.list(&|_| {}).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_fail_while_the_server_cannot_restart() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    std::fs::write(fixture.file("server.py"), "import sys; sys.exit('broken')").unwrap();
    fixture.call("die", json!({})).await.unwrap_err();
    wait_until("it is unavailable", || !fixture.server.status().is_up).await;
    assert!(!fixture.runner("echo").is_available());
    let error = fixture
        .call("echo", json!({"text": "x"}))
        .await
        .unwrap_err();
    let ToolError::Unavailable {
        message,
        started: false,
        retry_after: Some(_),
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        message,
        "the MCP server probe is unavailable: its process ended with exit status 1; its last output: broken"
    );
    std::fs::write(fixture.file("server.py"), SCRIPT).unwrap();
    wait_until("it is up again", || fixture.server.status().is_up).await;
    assert_eq!(fixture.text("echo", json!({"text": "x"})).await, "x");
}

#[tokio::test]
async fn slow_and_silent_handshakes_succeed() {
    if is_python_missing() {
        return;
    }
    // The SDK waits ten seconds for an answer to `server/discover`; with the fast clock they pass
    // in a tenth of a second.
    let patient = |settings: &mut ServerSettings| settings.start_timeout = 100 * TIMEOUT;
    let quirks = [
        &["late"][..],
        &["late", "modern"],
        &["late", "modern", "strict"],
        &["mute"],
    ];
    let fixtures =
        futures_util::future::join_all(quirks.map(|quirks| Fixture::try_new(quirks, patient)));
    let on_demand = Fixture::try_new(&["mute"], |settings| {
        patient(settings);
        settings.mode = Mode::OnDemand;
    });
    let (fixtures, fixture) =
        with_fast_clock(100, async { tokio::join!(fixtures, on_demand) }).await;
    for fixture in fixtures {
        assert_eq!(
            fixture.unwrap().text("echo", json!({"text": "here"})).await,
            "here"
        );
    }
    let began = Instant::now();
    fixture
        .unwrap()
        .text("echo", json!({"text": "at once"}))
        .await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unusual_handshakes_succeed() {
    if is_python_missing() {
        return;
    }
    for quirks in [&["hollow"][..], &["picky"], &["modern", "vague"]] {
        let fixture = Fixture::new(quirks).await;
        assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
    }
    for quirks in [&["modern", "vague"][..], &["modern", "vague", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
    }
    let fixed = Fixture::try_new(&["modern"], |settings| {
        settings.protocol = Some(Protocol::V20250618);
    });
    let fixture = fixed.await.unwrap();
    assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hundred_kills_leak_nothing() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let mut last = fixture.process().await;
    let (tasks, files) = (alive(), open_files());
    let mut dead = Vec::new();
    for round in 1..=100 {
        let helper = pid(&fixture.text("helper", json!({})).await);
        kill_process(last, Signal::KILL).unwrap();
        wait_until("the restart", || fixture.server.status().replaced == round).await;
        dead.extend([last, helper]);
        last = fixture.process().await;
    }
    wait_until("all killed processes are gone", || {
        dead.iter().all(|process| is_gone(*process))
    })
    .await;
    wait_until("no task is left", || alive() <= tasks).await;
    // Other tests of this process also have files open. A leak in a hundred rounds would still be
    // visible.
    wait_until("no file is left open", || open_files() < files + 100).await;
    assert_eq!(fixture.server.status().workers, 1);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A server with a URL, whose process the test itself has started.
struct Remote {
    process: std::process::Child,
    port: u16,
    quirks: Vec<&'static str>,
    folder: TempDir,
}

impl Remote {
    async fn new(quirks: &[&'static str]) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.py"), SCRIPT).unwrap();
        let process = Self::process(folder.path(), port, quirks);
        let remote = Self {
            process,
            port,
            quirks: quirks.to_vec(),
            folder,
        };
        remote.wait_until_up().await;
        remote
    }

    fn process(folder: &Path, port: u16, quirks: &[&str]) -> std::process::Child {
        let mut command = std::process::Command::new(python().unwrap());
        command
            .args(["-S", "server.py", "http", &format!("port={port}")])
            .args(quirks)
            .current_dir(folder);
        command
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    }

    async fn wait_until_up(&self) {
        wait_until("the server listens", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        })
        .await;
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn restart(&mut self) {
        self.process = Self::process(self.folder.path(), self.port, &self.quirks);
        self.wait_until_up().await;
    }

    async fn try_fixture(
        &self,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Result<Fixture, String> {
        Fixture::try_new(&[], |settings| {
            settings.transport = Transport::Url {
                url: format!("http://127.0.0.1:{}/mcp", self.port)
                    .parse()
                    .unwrap(),
                headers: BTreeMap::from([("authorization".into(), "Bearer let-me-in".into())]),
                auth: None,
                per_caller: None,
            };
            change(settings);
        })
        .await
    }

    async fn fixture(&self) -> Fixture {
        self.try_fixture(|_| {}).await.unwrap()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_works_with_both_protocol_versions() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern"], &["modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        assert_eq!(fixture.tools.len(), 22, "{quirks:?}");
        assert_eq!(
            fixture.text("echo", json!({"text": "héllo"})).await,
            "héllo"
        );
        let headers: BTreeMap<String, String> =
            serde_json::from_str(&fixture.text("headers", json!({})).await).unwrap();
        assert_eq!(headers["authorization"], "Bearer let-me-in");
        let version = if quirks.contains(&"modern") {
            "2026-07-28"
        } else {
            "2025-11-25"
        };
        assert_eq!(headers["mcp-protocol-version"], version);
        assert_eq!(
            headers.contains_key("mcp-session-id"),
            !quirks.contains(&"modern")
        );
        assert_eq!(fixture.server.status().workers, 0);
        drop(fixture);
        if !quirks.contains(&"modern") {
            wait_until("the session is ended", || {
                remote.folder.path().join("deleted").exists()
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_progress_is_ordered() {
    if is_python_missing() {
        return;
    }
    for quirks in [&["sse"][..], &["sse", "modern"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let mut invocation = invocation();
        let (sink, mut listener) = ProgressSink::channel();
        invocation.delivery.progress = Some(sink);
        let reporter = invocation.progress_reporter(|| Box::new(|_| {}));
        let context = context(&invocation, Effect::Read, TIMEOUT).with_reporter(reporter);
        fixture
            .runner("progress")
            .call(object(json!({})), context)
            .await
            .unwrap();
        let received = std::iter::from_fn(|| match listener.try_next()? {
            Event::Progress(progress) => Some(
                serde_json::from_str::<Value>(progress.data.get()).unwrap()["progress"].clone(),
            ),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            received.collect::<Vec<_>>(),
            [json!(1.0), json!(2.0), json!(3.0), json!(4.0), json!(5.0)]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn expired_session_is_replaced() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["gone"], &["confused"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        assert_eq!(fixture.text("forget", json!({})).await, "forgotten");
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
        assert_eq!(
            fixture.server.status().replaced,
            1,
            "a new session lists the tools before the call"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_refusal_and_redirect_are_explained() {
    if is_python_missing() {
        return;
    }
    let remote = Remote::new(&["locked"]).await;
    assert_eq!(
        remote
            .fixture()
            .await
            .text("echo", json!({"text": "in"}))
            .await,
        "in"
    );
    let wrong = |settings: &mut ServerSettings| {
        if let Transport::Url { headers, .. } = &mut settings.transport {
            headers.insert("authorization".into(), "Bearer wrong-wrong".into());
        }
    };
    let fault = remote.try_fixture(wrong).await.err().unwrap();
    let expected =
        "the MCP server probe refuses access (HTTP 401 Unauthorized): see `headers` of its entry";
    assert_eq!(fault, expected);
    let moved = Remote::new(&["moved"]).await;
    let fault = moved.try_fixture(|_| {}).await.err().unwrap();
    let host = format!("127.0.0.1:{}", moved.port);
    let expected = "answered HTTP 307 Temporary Redirect and points to https://elsewhere.example; redirects are not followed";
    assert_eq!(fault, format!("`{host}` {expected}"));
    let odd = |settings: &mut ServerSettings| {
        if let Transport::Url { headers, .. } = &mut settings.transport {
            headers.insert("x-key".into(), "two\nlines".into());
        }
    };
    assert_eq!(
        remote.try_fixture(odd).await.err().unwrap(),
        "its header `x-key` cannot be sent: it contains invalid characters"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn redirect_to_another_path_is_followed() {
    if is_python_missing() {
        return;
    }
    let remote = Remote::new(&["slash"]).await;
    let fixture = remote.fixture().await;
    assert_eq!(fixture.text("echo", json!({"text": "in"})).await, "in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_is_reconnected_after_its_death() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern"], &["modern", "sse"]] {
        let mut remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let error = fixture.call("die", json!({})).await.unwrap_err();
        let started = matches!(
            error,
            ToolError::Unavailable { started: true, .. }
                | ToolError::Upstream {
                    not_delivered: false,
                    ..
                }
        );
        assert!(started, "{error:?}");
        remote.kill();
        let error = loop {
            let context = context(&invocation(), Effect::Write, Duration::from_secs(1));
            match fixture
                .runner("echo")
                .call(object(json!({"text": "x"})), context)
                .await
                .unwrap_err()
            {
                // The call used an idle connection whose end was not noticed yet.
                ToolError::Upstream {
                    not_delivered: false,
                    ..
                } => {}
                error => break error,
            }
        };
        let ToolError::Unavailable {
            message,
            started: false,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        assert!(
            message.starts_with("the MCP server probe is unavailable: ")
                && message.contains("no connection"),
            "{message}"
        );
        remote.restart().await;
        wait_until("it is found again", || fixture.server.status().is_up).await;
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again",
            "{quirks:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refused_connection_keeps_earlier_calls_running() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let sent = tokio::spawn(fixture.call("slow", json!({"until": "refused"})));
        fixture
            .text("slow", json!({"seconds": 0.1, "mark": "y"}))
            .await;
        fixture.text("shut", json!({})).await;
        let refused = loop {
            let context = context(&invocation(), Effect::Write, Duration::from_secs(1));
            let echo = fixture
                .runner("echo")
                .call(object(json!({"text": "x"})), context)
                .await;
            if let Err(error) = echo {
                break error;
            }
        };
        let ToolError::Unavailable {
            message,
            started: false,
            ..
        } = refused
        else {
            panic!("{refused:?}")
        };
        assert!(message.contains("no connection"), "{message}");
        assert!(
            !sent.is_finished(),
            "it still runs while other calls are refused"
        );
        std::fs::write(remote.folder.path().join("refused"), "").unwrap();
        assert_eq!(sent.await.unwrap().unwrap().as_text(), "slept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn url_server_overlong_response_fails() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote.fixture().await;
        let before = resident_bytes();
        let error = fixture
            .call("big", json!({"bytes": 50_000_000}))
            .await
            .unwrap_err();
        let expected = "the MCP server probe answered more than 4.0 MiB: ask for less";
        assert_eq!(error, ToolError::BadOutput(expected.into()));
        assert!(
            resident_bytes() < before + (40 << 20),
            "{before} {}",
            resident_bytes()
        );
        assert_eq!(fixture.text("echo", json!({"text": "x"})).await, "x");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_demand_url_server_connects_per_call() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern", "sse"], &["spoiled", "modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let fixture = remote
            .try_fixture(|settings| settings.mode = Mode::OnDemand)
            .await
            .unwrap();
        if quirks.contains(&"spoiled") {
            assert_eq!(fixture.tool_names(), SPOILED_TOOLS);
            continue;
        }
        for _ in 0..3 {
            assert_eq!(fixture.text("echo", json!({"text": "x"})).await, "x");
        }
    }
}
