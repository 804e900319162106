//! Real servers in real processes. Nothing sleeps for a fixed time: what must become true is asked for until it is. On a
//! machine without Python these tests say so and pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::call::{
    Caller, Effect, Event, Invocation, JsonObject, ProgressSink, Reporter, ToolContext, ToolError, ToolName,
    ToolResult, ToolSettings,
};
use crate::secrets::Redactor;
use crate::tools::process::along;
use crate::tools::{Offer, Runner};

/// How long something that must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);
const SCRIPT: &str = include_str!("tests/server.py");

/// A folder with a server, and what was listed of it.
struct Crib {
    server: Server,
    offers: Vec<Offer>,
    warnings: Vec<String>,
    folder: TempDir,
}

fn surroundings() -> Surroundings {
    Surroundings::of_this_process(Arc::new(Redactor::new(["hunter2-hunter2"])))
}

/// Whether there is a Python at all; says so when there is none.
fn no_python() -> bool {
    let path = surroundings().variables.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default();
    let none = along(&path, Path::new("python3")).is_none();
    if none {
        println!("skipped: there is no python3");
    }
    none
}

fn settings(folder: &Path, quirks: &[&str]) -> ServerSettings {
    std::fs::write(folder.join("server.py"), SCRIPT).unwrap();
    let argv = ["python3", "server.py"].iter().chain(quirks).map(ToString::to_string).collect();
    ServerSettings {
        name: "probe".into(),
        reach: Reach::Command {
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

    /// A call, begun when it is polled.
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

/// Neither running nor a zombie that nobody has collected.
fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
}

#[tokio::test]
async fn tools_of_all_pages_are_offered_as_the_server_defines_them() {
    if no_python() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let crib = Crib::new(quirks).await;
        assert_eq!(crib.offers.len(), 16, "{:?}", crib.names());
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

#[tokio::test]
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

#[tokio::test]
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

#[tokio::test]
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

#[tokio::test]
async fn a_server_that_was_killed_is_there_again_and_what_it_started_is_gone() {
    if no_python() {
        return;
    }
    let crib = Crib::new(&[]).await;
    for round in 1..=3 {
        let helper = pid(&crib.text("helper", json!({})).await);
        kill_process(crib.process().await, Signal::KILL).unwrap();
        // The call may come before the end is known, and then it ends with it.
        until("the restart", || crib.server.status().replaced == round).await;
        assert_eq!(crib.text("echo", json!({"text": "again"})).await, "again");
        until("the helper ends", || is_gone(helper)).await;
    }
}

#[tokio::test]
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

#[tokio::test]
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

#[tokio::test]
async fn tools_that_cannot_be_used_are_left_out_and_the_others_stay() {
    if no_python() {
        return;
    }
    for quirks in [&["spoiled"][..], &["spoiled", "modern"]] {
        let crib = Crib::new(quirks).await;
        assert_eq!(crib.names(), ["good", "also_good"]);
        let [no_schema, twice, root, pattern] = &crib.warnings[..] else { panic!("{:?}", crib.warnings) };
        assert!(no_schema.starts_with("the tool `no_schema` is left out: invalid type: integer `7`"), "{no_schema}");
        assert_eq!(twice, "the tool `good` is left out: it is there twice");
        assert!(root.contains("`odd_root`") && root.contains("the root must be `type: object`"), "{root}");
        assert!(pattern.contains("`bad_pattern`") && pattern.contains("inputSchema/properties/a"), "{pattern}");
    }
}

#[tokio::test]
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
