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

mod calls;
mod direct;
mod processes;
mod tool_lists;
mod urls;

/// Longest wait for an event that must happen.
const TIMEOUT: Duration = Duration::from_secs(30);

const SCRIPT: &str = include_str!("server.py");

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
            sandbox: crate::kinds::SandboxSetting::None,
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

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
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
