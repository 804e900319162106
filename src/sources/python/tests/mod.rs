//! Tests with real workers in real processes. No test sleeps for a fixed time: it polls a condition
//! until the condition holds. On a machine without Python these tests print a notice and pass.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::call::{
    Caller, Effect, Event, Invocation, JsonObject, ProgressSink, ToolContext, ToolError, ToolName,
    ToolResult, ToolSettings,
};
use crate::environment::Environment;
use crate::kinds::process::OrphanReaper;
use crate::kinds::process::tests::{python, with_fast_clock};
use crate::kinds::{ProcessEnv, Runner};
use crate::secrets::Redactor;
use crate::sources::workers::testing::settings_for_tests;
use crate::sources::workers::{Language, Module, ModuleSettings, Setup, WorkerRange};
use crate::sources::{DiscoveredTool, Source, SourceStatus};

mod calls;
mod coroutines;
mod ends;
mod log;
mod starts;
mod venvs;

/// Longest wait for an event that must happen.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// A folder with a module, and what the module has listed.
pub(super) struct Fixture {
    pub module: Module,
    tools: Vec<DiscoveredTool>,
    /// A text in the environment of each of its processes.
    mark: String,
    folder: TempDir,
}

fn test_env() -> ProcessEnv {
    ProcessEnv::new(
        Arc::new(Redactor::new(["hunter2-hunter2"])),
        &Environment::from_process(),
    )
}

/// Whether there is no Python. Prints a notice then.
pub(super) fn is_python_missing() -> bool {
    let is_missing = python().is_none();
    if is_missing {
        println!("skipped: there is no python3");
    }
    is_missing
}

fn settings(folder: &TempDir, source: &str, mark: &str) -> ModuleSettings {
    let file = folder.path().join("tools.py");
    std::fs::write(&file, source).unwrap();
    ModuleSettings {
        program: python().unwrap().into(),
        environment: [("MARK".into(), mark.to_owned())].into(),
        start_timeout: TIMEOUT,
        ..settings_for_tests(Language::Python, &file)
    }
}

fn module(settings: ModuleSettings) -> Module {
    Module::new(settings, PythonRuntime, &test_env())
}

impl Fixture {
    async fn try_new(
        source: &str,
        change: impl FnOnce(&mut ModuleSettings),
    ) -> Result<Self, String> {
        let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
        let mut settings = settings(
            &folder,
            &format!("from toolcrib import tool\n{source}"),
            &mark,
        );
        change(&mut settings);
        let module = module(settings);
        let tools = module.list(&|_| {}).await.map_err(|fault| fault.0)?.tools;
        Ok(Self {
            module,
            tools,
            mark,
            folder,
        })
    }

    pub(super) async fn new(source: &str, workers: usize) -> Self {
        Self::try_new(source, |settings| {
            settings.workers = WorkerRange::exactly(workers);
        })
        .await
        .unwrap()
    }

    pub(super) fn runner(&self, name: &str) -> Arc<dyn Runner> {
        self.tools
            .iter()
            .find(|tool| tool.name == name)
            .unwrap_or_else(|| panic!("{name}"))
            .runner
            .clone()
    }

    /// A call, which starts when it is polled.
    pub(super) fn call(
        &self,
        name: &str,
        arguments: Value,
    ) -> impl Future<Output = Result<ToolResult, ToolError>> + Send + use<> {
        self.call_with(name, arguments, Effect::Write)
    }

    fn call_with(
        &self,
        name: &str,
        arguments: Value,
        effect: Effect,
    ) -> impl Future<Output = Result<ToolResult, ToolError>> + Send + use<> {
        let (runner, context) = (self.runner(name), context(&invocation(), effect));
        async move { runner.call(object(arguments), context).await }
    }

    async fn text(&self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await.unwrap();
        assert!(!result.is_error, "{result:?}");
        result.as_text()
    }

    async fn call_unavailable(&self, name: &str, arguments: Value) -> String {
        match self.call(name, arguments).await {
            Err(ToolError::Unavailable {
                message,
                started: true,
                ..
            }) => message,
            other => panic!("{other:?}"),
        }
    }

    async fn process(&self) -> Pid {
        Pid::from_raw(self.text("pid", json!({})).await.parse().unwrap()).unwrap()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) async fn wait_for_file(&self, name: &str) -> String {
        let file = self.file(name);
        wait_until(name, || {
            std::fs::read_to_string(&file)
                .ok()
                .filter(|text| !text.is_empty())
        })
        .await
    }

    async fn wait_for_workers(&self, workers: usize, replaced: u64) {
        wait_until("the workers are there", || {
            let status = self.module.status();
            (status.workers == workers && status.replaced == replaced && status.is_up).then_some(())
        })
        .await;
    }
}

/// Functions that several tests use.
const PID: &str = "
import os, signal, subprocess, sys, time

@tool
def pid() -> str:
    'Says which process it is.'
    return str(os.getpid())
";

pub(super) fn invocation() -> Invocation {
    let caller = Arc::new(Caller::anonymous());
    let mut invocation = Invocation::new(
        ToolName::parse("t").unwrap(),
        JsonObject::new(),
        caller,
        jiff::Timestamp::now(),
    );
    invocation.input.context = object(json!({"tenant": "acme"}));
    invocation
}

pub(super) fn context(invocation: &Invocation, effect: Effect) -> ToolContext {
    let settings = ToolSettings {
        effect,
        ..ToolSettings::default()
    };
    ToolContext::new(
        invocation,
        tokio::time::Instant::now() + TIMEOUT,
        Arc::new(settings),
    )
}

pub(super) fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        other => panic!("{other}"),
    }
}

pub(super) async fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Processes with `mark` in their environment.
fn processes_with_mark(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .windows(mark.len())
            .any(|window| window == mark.as_bytes())
        {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
    found
}

/// The pipes that a process has open.
fn open_pipes(process: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let link = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path())
            .ok()?
            .to_str()
            .map(str::to_owned)
    };
    entries
        .filter_map(link)
        .filter(|link| link.starts_with("pipe:"))
        .collect()
}
