//! Tests with real servers in real processes. No test sleeps for a fixed time: it polls a condition until the condition
//! holds. On a machine without Python these tests print a notice and pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::call::{
    Caller, Effect, Event, Invocation, JsonObject, ProgressSink, Reporter, ToolContext, ToolError, ToolName,
    ToolResult, ToolSettings,
};
use crate::environment::Environment;
use crate::secrets::Redactor;
use crate::tools::process::tests::{in_fast_time, python};
use crate::tools::{DiscoveredTool, Listed, ProcessEnv, Runner, Source};

/// Longest wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
const SCRIPT: &str = include_str!("tests/server.py");

/// A folder with a server, and what the server has listed.
struct Crib {
    server: Server,
    offers: Vec<DiscoveredTool>,
    warnings: Vec<String>,
    folder: TempDir,
}

fn surroundings() -> ProcessEnv {
    ProcessEnv::new(Arc::new(Redactor::new(["hunter2-hunter2"])), &Environment::of_this_process())
}

/// Whether there is no Python. Prints a notice then.
fn no_python() -> bool {
    let none = python().is_none();
    if none {
        println!("skipped: there is no python3");
    }
    none
}

fn settings(folder: &Path, quirks: &[&str]) -> ServerSettings {
    std::fs::write(folder.join("server.py"), SCRIPT).unwrap();
    let argv = [python().unwrap().into(), "server.py".into()]
        .into_iter()
        .chain(quirks.iter().map(ToString::to_string))
        .collect();
    ServerSettings {
        name: "probe".into(),
        reach: Transport::Command {
            argv,
            environment: BTreeMap::from([("MARK".into(), "declared".into())]),
            workdir: folder.into(),
        },
        mode: Mode::Persistent,
        include: Vec::new(),
        exclude: Vec::new(),
        start_timeout: PATIENCE,
    }
}

impl Crib {
    async fn try_new(quirks: &[&str], change: impl FnOnce(&mut ServerSettings)) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path(), quirks);
        change(&mut settings);
        let server = Server::new(settings, &surroundings());
        let Listed { tools, warnings, .. } = server.list(&|_| {}).await.map_err(|fault| fault.0)?;
        Ok(Self { server, offers: tools, warnings, folder })
    }

    async fn new(quirks: &[&str]) -> Self {
        Self::try_new(quirks, |_| {}).await.unwrap()
    }

    async fn on_demand(quirks: &[&str]) -> Self {
        Self::try_new(quirks, |settings| settings.mode = Mode::OnDemand).await.unwrap()
    }

    fn names(&self) -> Vec<&str> {
        self.offers.iter().map(|offer| offer.name.as_str()).collect()
    }

    fn runner(&self, name: &str) -> Arc<dyn Runner> {
        self.offers.iter().find(|offer| offer.name == name).unwrap_or_else(|| panic!("{name}")).runner.clone()
    }

    /// A call, which starts when it is polled.
    fn call(&self, name: &str, arguments: Value) -> impl Future<Output = Result<ToolResult, ToolError>> + Send + use<> {
        let (runner, context) = (self.runner(name), context(&invocation(), Effect::Write, PATIENCE));
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
    Invocation::new(tool, JsonObject::new(), Arc::new(Caller::anonymous()), jiff::Timestamp::UNIX_EPOCH)
}

fn context(invocation: &Invocation, effect: Effect, time: Duration) -> ToolContext {
    let settings = ToolSettings { effect, ..ToolSettings::default() };
    ToolContext::new(invocation, tokio::time::Instant::now() + time, Arc::new(settings))
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether the process has ended and was reaped.
fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tools_of_all_pages_are_offered_as_the_server_defines_them() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let crib = Crib::new(quirks).await;
        assert_eq!(crib.offers.len(), 22, "{:?}", crib.names());
        let echo = &crib.offers[0];
        assert_eq!((echo.name.as_str(), echo.description.as_str()), ("echo", "Does echo."));
        assert_eq!(Value::Object(echo.annotations.clone()), json!({"readOnlyHint": true, "title": "Echo"}));
        assert_eq!(echo.input_schema, json!({"type": "object", "properties": {"text": {"type": "string"}}}));
        assert!(crib.offers.last().unwrap().output_schema.is_some());
        assert_eq!(crib.text("echo", json!({"text": "héllo"})).await, "héllo");
        let weather = crib.call("weather", json!({})).await.unwrap();
        assert_eq!((weather.structured_content, weather.content.len()), (Some(json!({"celsius": 21.5})), 0));
        let status = crib.server.status();
        assert_eq!((status.up, status.workers, status.replaced, status.fault), (true, 1, 0, None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_run_side_by_side_on_one_process() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let began = Instant::now();
    let sleeps = (0..8).map(|_| crib.call("slow", json!({"seconds": 0.5, "mark": "x"})));
    let all = futures_util::future::join_all(sleeps).await;
    assert!(all.into_iter().all(|result| result.unwrap().as_text() == "slept"));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(crib.process().await, crib.process().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_dies_costs_its_calls_and_is_replaced() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let before = crib.process().await;
    let other = tokio::spawn(crib.call("slow", json!({"seconds": 60, "mark": "x"})));
    let killed = crib.call("die", json!({})).await.unwrap_err();
    for error in [killed, other.await.unwrap().unwrap_err()] {
        let ToolError::Unavailable { message, started: true, .. } = error else { panic!("{error:?}") };
        let why = "the MCP server probe did not answer: its process ended with exit status 3, saying: I cannot go on";
        assert_eq!(message, why);
    }
    let after = crib.process().await;
    assert_ne!(before, after);
    let status = crib.server.status();
    assert_eq!((status.up, status.workers, status.replaced), (true, 1, 1));
    assert_eq!((status.fault, status.fault_at), (None, None), "the connection that is there is well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_demand_nothing_runs_between_calls() {
    if no_python() {
        return;
    }
    let crib = Crib::on_demand(&[]).await;
    let mut processes = Vec::new();
    for _ in 0..2 {
        let (server, helper) = (crib.process().await, pid(&crib.text("helper", json!({})).await));
        processes.extend([server, helper]);
    }
    assert_ne!(processes[0], processes[2]);
    until("all of them end", || processes.iter().all(|process| is_gone(*process))).await;
    let Err(ToolError::Unavailable { message, started: true, .. }) = crib.call("die", json!({})).await else {
        panic!()
    };
    assert!(message.contains("exit status 3, saying: I cannot go on"), "{message}");
    let status = crib.server.status();
    assert_eq!((status.up, status.workers), (true, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_was_killed_is_there_again_and_what_it_started_is_gone() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    for round in 1..=3 {
        let helper = pid(&crib.text("helper", json!({})).await);
        kill_process(crib.process().await, Signal::KILL).unwrap();
        // A call now could still use the old connection, and would end with it. So wait for the replacement.
        until("the restart", || crib.server.status().replaced == round).await;
        assert_eq!(crib.text("echo", json!({"text": "again"})).await, "again");
        until("the helper ends", || is_gone(helper)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whoever_drops_the_server_ends_it_with_all_that_it_started() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["stubborn"]] {
        let crib = Crib::new(quirks).await;
        let processes = [crib.process().await, pid(&crib.text("helper", json!({})).await)];
        drop(crib);
        until("both end", || processes.iter().all(|process| is_gone(*process))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_takes_the_place_of_a_process_that_is_still_there() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&["stubborn"]).await;
    let before = crib.process().await;
    let slow = || tokio::spawn(crib.call("slow", json!({"seconds": 60, "mark": "x"})));
    let others = [slow(), slow(), slow(), slow()];
    crib.call("mum", json!({})).await.unwrap_err();
    assert_ne!(crib.process().await, before);
    assert!(is_gone(before), "though calls were under way on it");
    for other in others {
        other.await.unwrap().unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn progress_comes_in_order_and_is_asked_for_only_if_somebody_listens() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let mut invocation = invocation();
    assert_eq!(crib.text("progress", json!({})).await, "False");
    let (sink, mut listener) = ProgressSink::channel();
    invocation.progress = Some(sink);
    let reporter = Reporter::of(&invocation, || Box::new(|_| {}));
    let context = context(&invocation, Effect::Read, PATIENCE).reporting(reporter);
    let result = crib.runner("progress").call(object(json!({})), context).await.unwrap();
    assert_eq!(result.as_text(), "True");
    for n in 1..=5 {
        let Some(Event::Progress(progress)) = listener.try_next() else { panic!("progress {n}") };
        let expected = json!({"progress": f64::from(n), "total": 5.0, "message": format!("step {n}")});
        assert_eq!(serde_json::from_str::<Value>(progress.data.get()).unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tools_that_cannot_be_used_are_left_out_and_the_others_stay() {
    if no_python() {
        return;
    }
    for quirks in [&["spoiled"][..], &["spoiled", "modern"]] {
        let crib = Crib::new(quirks).await;
        assert_eq!(crib.names(), ["good", "also_good"]);
        let [no_schema, twice, root, pattern, unnamed @ ..] = &crib.warnings[..] else { panic!("{:?}", crib.warnings) };
        assert!(no_schema.starts_with("the tool `no_schema` is left out: invalid type: integer `7`"), "{no_schema}");
        assert_eq!(twice, "the tool `good` is left out: it is there twice");
        assert!(root.contains("`odd_root`") && root.contains("the root must be `type: object`"), "{root}");
        assert!(pattern.contains("`bad_pattern`") && pattern.contains("inputSchema/properties/a"), "{pattern}");
        let rest = [
            "the tool `` is left out: it has no name",
            "the tool ` ` is left out: it has no name",
            "the tool `deep` is left out: its definition is nested more than 128 levels deep",
        ];
        assert_eq!(unnamed, rest);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_is_given_up_is_cancelled_and_the_connection_stays() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let (process, mark) = (crib.process().await, crib.file("cancelled"));
    let slow = tokio::spawn(crib.call("slow", json!({"seconds": 600, "mark": mark})));
    crib.text("slow", json!({"seconds": 0.1, "mark": mark})).await;
    slow.abort();
    until("the server is told", || mark.exists()).await;
    assert_eq!(crib.process().await, process);
    assert_eq!(crib.server.status().replaced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_is_too_long_is_refused_and_costs_nobody_else() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["backwards"]] {
        let crib = Crib::new(quirks).await;
        let process = crib.process().await;
        let other = tokio::spawn(crib.call("slow", json!({"seconds": 0.5, "mark": "x"})));
        let before = resident();
        let error = crib.call("big", json!({"bytes": 50_000_000})).await.unwrap_err();
        let said = "the MCP server probe answered more than 4.0 MiB: ask for less";
        assert_eq!(error, ToolError::BadOutput(said.into()));
        assert!(resident() < before + (40 << 20), "{before} {}", resident());
        assert_eq!(other.await.unwrap().unwrap().as_text(), "slept");
        assert_eq!(crib.text("big", json!({"bytes": 4_000_000})).await.len(), 4_000_000);
        assert_eq!(crib.process().await, process);
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lines_that_are_no_messages_are_passed_over() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    assert_eq!(crib.text("chatter", json!({})).await, "said");
    assert_eq!(crib.text("shout", json!({"text": "hunter2-hunter2"})).await, "shouted");
    assert_eq!(crib.server.status().replaced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_whose_answers_are_all_swallowed_is_replaced() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let mut ends = vec![crib.call("babble", json!({})).await.unwrap_err()];
    for _ in 0..2 {
        ends.push(crib.call("echo", json!({"text": "x"})).await.unwrap_err());
    }
    let Some(ToolError::Unavailable { message, started: true, .. }) = ends.pop() else { panic!("{ends:?}") };
    assert!(message.ends_with("it writes lines without an end again and again"), "{message}");
    assert_eq!(crib.text("echo", json!({"text": "again"})).await, "again");
    assert_eq!(crib.server.status().replaced, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn errors_of_the_protocol_become_failures_of_their_kind() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let refuse = async |code: i64| crib.call("refuse", json!({"code": code})).await.unwrap_err();
    let said = ToolError::Said("The MCP server probe refuses the call: no such luck".into());
    assert_eq!(refuse(-32602).await, said, "it had the call, and may have done something of it");
    for (code, retryable) in [(-32603, true), (-32000, true), (-32601, false), (-32021, false), (17, false)] {
        let expected = format!("the MCP server probe answered with error {code}: no such luck");
        let ToolError::Upstream { message, retryable: may, down: false, .. } = refuse(code).await else { panic!() };
        assert_eq!((message, may), (expected, retryable));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_sees_its_own_environment_and_a_few_variables_of_the_service() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let seen: BTreeMap<String, String> = serde_json::from_str(&crib.text("environment", json!({})).await).unwrap();
    assert_eq!((seen["MARK"].as_str(), seen.contains_key("PATH")), ("declared", true));
    let passed = surroundings().variables;
    let foreign = seen.keys().filter(|name| !passed.contains_key(std::ffi::OsStr::new(name)));
    let foreign: Vec<_> =
        foreign.filter(|name| !["MARK", "TOOLCRIB_MCP_SERVER", "LC_CTYPE"].contains(&name.as_str())).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_server_asks_of_us_is_refused() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let answer: Value = serde_json::from_str(&crib.text("ask", json!({})).await).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("a1"), &json!(-32601)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_with_effects_carries_the_same_key_in_every_try() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let invocation = invocation();
    for (effect, key) in
        [(Effect::Write, json!(invocation.id)), (Effect::Idempotent, json!(invocation.id)), (Effect::Read, json!(null))]
    {
        let context = context(&invocation, effect, PATIENCE);
        let meta = crib.runner("meta").call(object(json!({})), context).await.unwrap().as_text();
        assert_eq!(serde_json::from_str::<Value>(&meta).unwrap()["toolcrib/idempotencyKey"], key, "{meta}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_after_a_call_was_given_up_is_replaced() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let crib = Crib::new(quirks).await;
        let process = crib.process().await;
        let waits = tokio::spawn(crib.call("slow", json!({"seconds": 600, "mark": "x"})));
        let hang = crib.call("hang", json!({}));
        let hangs = crib.file("hangs");
        tokio::select! {
            ended = hang => panic!("{ended:?}"),
            () = until("it hangs", || hangs.exists()) => {}
        }
        let waits = in_fast_time(50, waits).await;
        let Err(ToolError::Unavailable { message, started: true, .. }) = waits.unwrap() else { panic!() };
        assert!(message.ends_with("it said nothing any more after a call that was given up"), "{message}");
        assert_eq!(crib.text("echo", json!({"text": "again"})).await, "again");
        until("the old one ends", || is_gone(process)).await;
        assert_eq!(crib.server.status().replaced, 1);
    }
}

#[tokio::test]
async fn a_server_that_asks_all_the_time_and_reads_nothing_is_replaced() {
    if no_python() {
        return;
    }
    for crib in [Crib::new(&[]).await, Crib::on_demand(&[]).await] {
        let before = resident();
        // Time runs slowly enough for the server to send more requests than memory could hold.
        let Err(ToolError::Unavailable { message, started: true, .. }) =
            in_fast_time(4, crib.call("pester", json!({}))).await
        else {
            panic!()
        };
        assert!(message.ends_with("it asks again and again and reads no answer"), "{message}");
        assert!(resident() < before + (20 << 20), "{before} {}", resident());
        assert_eq!(crib.text("echo", json!({"text": "again"})).await, "again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_that_the_server_tells_is_heard_and_listed_over_the_same_connection() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let crib = Crib::new(quirks).await;
        let process = crib.process().await;
        assert!(futures_util::FutureExt::now_or_never(crib.server.changed()).is_none());
        crib.text("grow", json!({})).await;
        tokio::time::timeout(PATIENCE, crib.server.changed()).await.unwrap();
        let listed = crib.server.list(&|_| {}).await.unwrap();
        assert_eq!(listed.tools.last().unwrap().name, "grown");
        let call = listed.tools[1].runner.call(object(json!({})), context(&invocation(), Effect::Read, PATIENCE));
        assert_eq!(pid(&call.await.unwrap().as_text()), process);
        assert!(futures_util::FutureExt::now_or_never(crib.server.changed()).is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_comes_back_with_other_tools_has_changed_and_one_with_the_same_has_not() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    crib.call("die", json!({})).await.unwrap_err();
    crib.process().await;
    assert!(futures_util::FutureExt::now_or_never(crib.server.changed()).is_none());
    std::fs::write(crib.file("late"), "").unwrap();
    crib.call("die", json!({})).await.unwrap_err();
    tokio::time::timeout(PATIENCE, crib.server.changed()).await.unwrap();
    assert_eq!(crib.server.list(&|_| {}).await.unwrap().tools.last().unwrap().name, "late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_tool_that_was_approved_is_not_called_when_it_is_another_by_then() {
    if no_python() {
        return;
    }
    for mode in [Mode::Persistent, Mode::OnDemand] {
        let crib = Crib::try_new(&[], |settings| settings.mode = mode).await.unwrap();
        let pinned = |name: &str| {
            let said = crib.offers.iter().find(|offer| offer.name == name).unwrap().said.clone().unwrap();
            let context = context(&invocation(), Effect::Write, PATIENCE);
            async move { said.runner.call(object(json!({"text": "hello"})), context).await }
        };
        pid(&pinned("pid").await.unwrap().as_text());
        std::fs::write(crib.file("other"), "").unwrap();
        // A persistent server returns with another definition, which has not been listed for the source yet.
        crib.call("die", json!({})).await.unwrap_err();
        assert!(matches!(pinned("pid").await, Err(ToolError::Changed)), "{mode:?}");
        assert_eq!(pinned("echo").await.unwrap().as_text(), "hello", "that is the same");
        crib.process().await;
        tokio::time::timeout(PATIENCE, crib.server.changed()).await.unwrap();
        std::fs::remove_file(crib.file("other")).unwrap();
        crib.call("die", json!({})).await.unwrap_err();
        pid(&pinned("pid").await.unwrap().as_text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_tool_that_was_approved_is_not_called_while_nobody_knows_what_it_is_now() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let said = crib.offers[0].said.clone().unwrap();
    let pinned = || said.runner.call(object(json!({"text": "hello"})), context(&invocation(), Effect::Read, PATIENCE));
    std::fs::write(crib.file("endless"), "").unwrap();
    crib.text("grow", json!({})).await;
    tokio::time::timeout(PATIENCE, crib.server.changed()).await.unwrap();
    for _ in 0..2 {
        let error = pinned().await.unwrap_err();
        let ToolError::Unavailable { message, started: false, .. } = error else { panic!("{error:?}") };
        let says = "the MCP server probe says that its tools have changed, and what they are now is not known: its list of tools has no end";
        assert!(message.starts_with(says), "{message}");
    }
    assert_eq!(crib.text("echo", json!({"text": "hello"})).await, "hello", "nobody has approved it");
    std::fs::remove_file(crib.file("endless")).unwrap();
    crib.server.list(&|_| {}).await.unwrap();
    assert_eq!(pinned().await.unwrap().as_text(), "hello", "it is the same");
    // The server reports another change, so it is asked again before the call.
    crib.text("grow", json!({})).await;
    tokio::time::timeout(PATIENCE, crib.server.changed()).await.unwrap();
    assert_eq!(pinned().await.unwrap().as_text(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hashes_are_of_what_a_server_says_before_secrets_are_taken_out() {
    let tool = |words: &str| {
        let json = json!({"name": "t", "description": words, "inputSchema": {"type": "object"}, "annotations": {"title": words}});
        listing::prints(&serde_json::from_value(json).unwrap())
    };
    let (one, other) = (tool("Reads hunter2-hunter2."), tool("Reads [redacted]."));
    assert!(one.whole != other.whole && one.parts["description"] != other.parts["description"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_listing_that_fails_leaves_what_is_there() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let process = crib.process().await;
    std::fs::write(crib.file("endless"), "").unwrap();
    assert!(crib.server.list(&|_| {}).await.is_err());
    assert_eq!((crib.process().await, crib.server.status().up), (process, true));
    std::fs::remove_file(crib.file("endless")).unwrap();
    assert_eq!(crib.server.list(&|_| {}).await.unwrap().tools.len(), crib.offers.len());
    assert_eq!(crib.process().await, process);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_the_tools_that_are_wanted_are_offered() {
    if no_python() {
        return;
    }
    let change = |settings: &mut ServerSettings| {
        settings.include = vec!["e*".into(), "p?d".into()];
        settings.exclude = vec!["*ment".into()];
    };
    assert_eq!(Crib::try_new(&[], change).await.unwrap().names(), ["echo", "pid"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn why_a_server_did_not_come_up_is_said() {
    if no_python() {
        return;
    }
    let fault =
        async |quirks: &[&str], change: fn(&mut ServerSettings)| Crib::try_new(quirks, change).await.err().unwrap();
    assert_eq!(fault(&["stillborn"], |_| {}).await, "its process ended with exit status 4, saying: no licence found");
    assert_eq!(
        fault(&["endless"], |_| {}).await,
        "its list of tools has no end: a page says that it comes after itself"
    );
    assert_eq!(fault(&["crowd"], |_| {}).await, "it lists more than 1000 tools");
    for quirk in ["wordy", "windy"] {
        assert_eq!(fault(&[quirk], |_| {}).await, "its tools take more than 16.0 MiB to define", "{quirk}");
    }
    let fault = fault(&[], |settings| {
        if let Transport::Command { argv, .. } = &mut settings.reach {
            argv[0] = "no-such-program".into();
        }
    });
    assert_eq!(fault.await, "there is no program `no-such-program` along the PATH");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_ends_at_its_start_is_started_twice_only_the_first_time() {
    if no_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(settings(folder.path(), &["stillborn"]), &surroundings());
    for starts in ["xx", "xxx", "xxxx", "xxxxx"] {
        assert!(server.list(&|_| {}).await.is_err());
        assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), starts);
    }
    std::fs::write(folder.path().join("server.py"), SCRIPT.replace("\"stillborn\" in", "\"unborn\" in")).unwrap();
    assert!(server.list(&|_| {}).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_does_not_come_back_is_waited_for_in_vain() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    std::fs::write(crib.file("server.py"), "import sys; sys.exit('broken')").unwrap();
    crib.call("die", json!({})).await.unwrap_err();
    until("it is down", || !crib.server.status().up).await;
    assert!(!crib.runner("echo").is_available());
    let error = crib.call("echo", json!({"text": "x"})).await.unwrap_err();
    let ToolError::Unavailable { message, started: false, retry_after: Some(_) } = error else { panic!("{error:?}") };
    assert_eq!(message, "the MCP server probe is down: its process ended with exit status 1, saying: broken");
    std::fs::write(crib.file("server.py"), SCRIPT).unwrap();
    until("it is up again", || crib.server.status().up).await;
    assert_eq!(crib.text("echo", json!({"text": "x"})).await, "x");
}

#[tokio::test]
async fn servers_that_are_slow_or_silent_at_the_start_are_understood_all_the_same() {
    if no_python() {
        return;
    }
    // The SDK waits ten seconds for an answer to `server/discover`; here they pass in a tenth of a second.
    let patient = |settings: &mut ServerSettings| settings.start_timeout = 100 * PATIENCE;
    let quirks = [&["late"][..], &["late", "modern"], &["late", "modern", "strict"], &["mute"]];
    let cribs = futures_util::future::join_all(quirks.map(|quirks| Crib::try_new(quirks, patient)));
    let on_demand = Crib::try_new(&["mute"], |settings| {
        patient(settings);
        settings.mode = Mode::OnDemand;
    });
    let (cribs, crib) = in_fast_time(100, async { tokio::join!(cribs, on_demand) }).await;
    for crib in cribs {
        assert_eq!(crib.unwrap().text("echo", json!({"text": "here"})).await, "here");
    }
    let began = Instant::now();
    crib.unwrap().text("echo", json!({"text": "at once"})).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hundred_kills_leave_nothing_behind() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut last = crib.process().await;
    let (tasks, files) = (alive(), open_files());
    let mut dead = Vec::new();
    for round in 1..=100 {
        let helper = pid(&crib.text("helper", json!({})).await);
        kill_process(last, Signal::KILL).unwrap();
        until("the restart", || crib.server.status().replaced == round).await;
        dead.extend([last, helper]);
        last = crib.process().await;
    }
    until("all that was killed is gone", || dead.iter().all(|process| is_gone(*process))).await;
    until("no task is left", || alive() <= tasks).await;
    // Other tests of this process also have files open. A leak in a hundred rounds would still be visible.
    until("no file is left open", || open_files() < files + 100).await;
    assert_eq!(crib.server.status().workers, 1);
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
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.py"), SCRIPT).unwrap();
        let process = Self::process(folder.path(), port, quirks);
        let remote = Self { process, port, quirks: quirks.to_vec(), folder };
        remote.until_up().await;
        remote
    }

    fn process(folder: &Path, port: u16, quirks: &[&str]) -> std::process::Child {
        let mut command = std::process::Command::new(python().unwrap());
        command.args(["server.py", "http", &format!("port={port}")]).args(quirks).current_dir(folder);
        command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    }

    async fn until_up(&self) {
        until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()).await;
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn restart(&mut self) {
        self.process = Self::process(self.folder.path(), self.port, &self.quirks);
        self.until_up().await;
    }

    async fn try_crib(&self, change: impl FnOnce(&mut ServerSettings)) -> Result<Crib, String> {
        Crib::try_new(&[], |settings| {
            settings.reach = Transport::Url {
                url: format!("http://127.0.0.1:{}/mcp", self.port).parse().unwrap(),
                headers: BTreeMap::from([("authorization".into(), "Bearer let-me-in".into())]),
            };
            change(settings);
        })
        .await
    }

    async fn crib(&self) -> Crib {
        self.try_crib(|_| {}).await.unwrap()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_by_url_is_called_in_either_era_and_knows_nothing_of_the_caller() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern"], &["modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let crib = remote.crib().await;
        assert_eq!(crib.offers.len(), 22, "{quirks:?}");
        assert_eq!(crib.text("echo", json!({"text": "héllo"})).await, "héllo");
        let headers: BTreeMap<String, String> = serde_json::from_str(&crib.text("headers", json!({})).await).unwrap();
        assert_eq!(headers["authorization"], "Bearer let-me-in");
        let version = if quirks.contains(&"modern") { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(headers["mcp-protocol-version"], version);
        assert_eq!(headers.contains_key("mcp-session-id"), !quirks.contains(&"modern"));
        assert_eq!(crib.server.status().workers, 0);
        drop(crib);
        if !quirks.contains(&"modern") {
            until("the session is ended", || remote.folder.path().join("deleted").exists()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn progress_of_a_server_by_url_comes_in_order() {
    if no_python() {
        return;
    }
    for quirks in [&["sse"][..], &["sse", "modern"]] {
        let remote = Remote::new(quirks).await;
        let crib = remote.crib().await;
        let mut invocation = invocation();
        let (sink, mut listener) = ProgressSink::channel();
        invocation.progress = Some(sink);
        let reporter = Reporter::of(&invocation, || Box::new(|_| {}));
        let context = context(&invocation, Effect::Read, PATIENCE).reporting(reporter);
        crib.runner("progress").call(object(json!({})), context).await.unwrap();
        let heard = std::iter::from_fn(|| match listener.try_next()? {
            Event::Progress(progress) => {
                Some(serde_json::from_str::<Value>(progress.data.get()).unwrap()["progress"].clone())
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(heard.collect::<Vec<_>>(), [json!(1.0), json!(2.0), json!(3.0), json!(4.0), json!(5.0)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_that_is_gone_is_replaced_without_a_word() {
    if no_python() {
        return;
    }
    let remote = Remote::new(&[]).await;
    let crib = remote.crib().await;
    assert_eq!(crib.text("forget", json!({})).await, "forgotten");
    assert_eq!(crib.text("echo", json!({"text": "again"})).await, "again");
    assert_eq!(crib.server.status().replaced, 1, "its tools are listed anew before the call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_by_url_that_refuses_us_or_sends_us_on_is_told_by_what_it_means() {
    if no_python() {
        return;
    }
    let remote = Remote::new(&["locked"]).await;
    assert_eq!(remote.crib().await.text("echo", json!({"text": "in"})).await, "in");
    let wrong = |settings: &mut ServerSettings| {
        if let Transport::Url { headers, .. } = &mut settings.reach {
            headers.insert("authorization".into(), "Bearer wrong-wrong".into());
        }
    };
    let fault = remote.try_crib(wrong).await.err().unwrap();
    let said = "the MCP server probe does not let us in (HTTP 401 Unauthorized): see `headers` of its entry";
    assert_eq!(fault, said);
    let moved = Remote::new(&["moved"]).await;
    let fault = moved.try_crib(|_| {}).await.err().unwrap();
    let host = format!("127.0.0.1:{}", moved.port);
    let said =
        "answered HTTP 307 Temporary Redirect and points to https://elsewhere.example; redirects are not followed";
    assert_eq!(fault, format!("`{host}` {said}"));
    let odd = |settings: &mut ServerSettings| {
        if let Transport::Url { headers, .. } = &mut settings.reach {
            headers.insert("x-key".into(), "two\nlines".into());
        }
    };
    assert_eq!(remote.try_crib(odd).await.err().unwrap(), "its header `x-key` cannot be sent: it has odd characters");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_by_url_that_dies_costs_its_call_and_is_found_again() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern"], &["modern", "sse"]] {
        let mut remote = Remote::new(quirks).await;
        let crib = remote.crib().await;
        let error = crib.call("die", json!({})).await.unwrap_err();
        let started = matches!(
            error,
            ToolError::Unavailable { started: true, .. } | ToolError::Upstream { untouched: false, .. }
        );
        assert!(started, "{error:?}");
        remote.kill();
        let error = loop {
            let context = context(&invocation(), Effect::Write, Duration::from_secs(1));
            match crib.runner("echo").call(object(json!({"text": "x"})), context).await.unwrap_err() {
                // The call used an idle connection whose end was not noticed yet.
                ToolError::Upstream { untouched: false, .. } => {}
                error => break error,
            }
        };
        let ToolError::Unavailable { message, started: false, .. } = error else { panic!("{error:?}") };
        assert!(
            message.starts_with("the MCP server probe is down: ") && message.contains("no connection"),
            "{message}"
        );
        remote.restart().await;
        until("it is found again", || crib.server.status().up).await;
        assert_eq!(crib.text("echo", json!({"text": "again"})).await, "again", "{quirks:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_that_is_refused_costs_its_own_call_and_none_that_was_sent_before() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let remote = Remote::new(quirks).await;
        let crib = remote.crib().await;
        let sent = tokio::spawn(crib.call("slow", json!({"seconds": 3, "mark": "x"})));
        crib.text("slow", json!({"seconds": 0.1, "mark": "y"})).await;
        crib.text("shut", json!({})).await;
        let refused = loop {
            let context = context(&invocation(), Effect::Write, Duration::from_secs(1));
            let echo = crib.runner("echo").call(object(json!({"text": "x"})), context).await;
            if let Err(error) = echo {
                break error;
            }
        };
        let ToolError::Unavailable { message, started: false, .. } = refused else { panic!("{refused:?}") };
        assert!(message.contains("no connection"), "{message}");
        assert!(!sent.is_finished(), "it is under way, while others are refused");
        assert_eq!(sent.await.unwrap().unwrap().as_text(), "slept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_by_url_that_is_too_long_is_refused() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["sse"], &["modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let crib = remote.crib().await;
        let before = resident();
        let error = crib.call("big", json!({"bytes": 50_000_000})).await.unwrap_err();
        let said = "the MCP server probe answered more than 4.0 MiB: ask for less";
        assert_eq!(error, ToolError::BadOutput(said.into()));
        assert!(resident() < before + (40 << 20), "{before} {}", resident());
        assert_eq!(crib.text("echo", json!({"text": "x"})).await, "x");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_demand_a_server_by_url_is_asked_for_each_call() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["modern", "sse"], &["spoiled", "modern", "sse"]] {
        let remote = Remote::new(quirks).await;
        let crib = remote.try_crib(|settings| settings.mode = Mode::OnDemand).await.unwrap();
        if quirks.contains(&"spoiled") {
            assert_eq!(crib.names(), ["good", "also_good"]);
            continue;
        }
        for _ in 0..3 {
            assert_eq!(crib.text("echo", json!({"text": "x"})).await, "x");
        }
    }
}
