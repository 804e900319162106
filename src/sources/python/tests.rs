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
use crate::sources::{DiscoveredTool, Source, SourceStatus};

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
        name: "probe".into(),
        module: ModulePath::File(file),
        interpreter: Interpreter::Program(python().unwrap().into()),
        workers: WorkerRange::exactly(1),
        functions: None,
        object: None,
        share: false,
        init: JsonObject::new(),
        environment: [("MARK".into(), mark.to_owned())].into(),
        workdir: folder.path().into(),
        venvs: folder.path().join("venvs"),
        start_timeout: TIMEOUT,
    }
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
        let module = Module::new(settings, &test_env());
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

mod calls {
    use super::*;

    #[tokio::test]
    async fn function_prints_stay_out_of_the_protocol() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(
            "
import sys

@tool
def greet(name: str, times: int = 2) -> dict:
    '''Greets somebody.

    Args:
        name: Who is greeted.
    '''
    print('{\"op\":\"result\",\"id\":1,\"content\":[],\"is_error\":true}')
    sys.__stdout__.write('no JSON\\n')
    return {'said': ['hello ' + name] * times}
",
            1,
        )
        .await;
        let [tool] = &fixture.tools[..] else { panic!() };
        assert_eq!(
            (tool.name.as_str(), tool.input_schema["required"].clone()),
            ("greet", json!(["name"]))
        );
        assert!(!tool.runner.traits().takes_context && tool.runner.is_available());
        for _ in 0..3 {
            let result = fixture
                .call("greet", json!({"name": "ÆØÅ\n\u{1f600}", "times": 1}))
                .await
                .unwrap();
            assert_eq!(
                result.structured_content,
                Some(json!({"said": ["hello ÆØÅ\n\u{1f600}"]}))
            );
            assert!(!result.is_error);
        }
        let status = fixture.module.status();
        assert_eq!(
            (status.is_up, status.workers, status.replaced, status.fault),
            (true, 1, 0, None)
        );
    }

    #[tokio::test]
    async fn errors_progress_and_context_are_passed_on() {
        if is_python_missing() {
            return;
        }
        let source = "
import datetime

@tool
def fails() -> str:
    'Fails.'
    raise ValueError('no such city')

@tool
def when(day: datetime.date) -> str:
    'Takes a day.'
    return day.isoformat()

@tool
def steps():
    'Tells how far it is.'
    yield {'step': 1}
    yield 'the end'

@tool(context=True)
def who(tool_context) -> str:
    'Says who calls.'
    return tool_context.invocation_state['tenant'] + ' ' + tool_context.agent.name

@tool
def big() -> dict:
    'Counts far.'
    return {'n': 2 ** 70}
";
        let fixture = Fixture::new(source, 1).await;
        let result = fixture.call("fails", json!({})).await.unwrap();
        assert!(
            result.is_error && result.as_text() == "Error: no such city",
            "{result:?}"
        );
        match fixture.call("when", json!({"day": "soon"})).await {
            Err(ToolError::InvalidArguments(violations)) => {
                let first = &violations[0];
                assert_eq!(
                    (first.pointer.as_str(), first.keyword.as_str()),
                    ("/day", "python")
                );
                assert_eq!(first.schema_pointer, "/properties/day");
            }
            other => panic!("{other:?}"),
        }
        let (sink, mut listener) = ProgressSink::channel();
        let mut invocation = invocation();
        invocation.delivery.progress = Some(sink);
        let reporter = invocation.progress_reporter(|| Box::new(|_| {}));
        let context = context(&invocation, Effect::Read).with_reporter(reporter);
        let result = fixture
            .runner("steps")
            .call(object(json!({})), context)
            .await
            .unwrap();
        assert_eq!(result.as_text(), "the end");
        match listener.try_next() {
            Some(Event::Progress(progress)) => assert_eq!(progress.data.get(), r#"{"step":1}"#),
            other => panic!("{other:?}"),
        }
        assert!(fixture.runner("who").traits().takes_context);
        assert_eq!(fixture.text("who", json!({})).await, "acme anonymous");
        let big = fixture.call("big", json!({})).await.unwrap();
        assert_eq!(
            big.structured_content,
            Some(json!({"n": "1180591620717411303424"}))
        );
        assert_eq!(big.as_text(), r#"{"n":"1180591620717411303424"}"#);
        assert_eq!(
            fixture.module.status().replaced,
            0,
            "none of this costs a worker"
        );
    }

    #[tokio::test]
    async fn calls_wait_in_order_for_free_worker() {
        if is_python_missing() {
            return;
        }
        let source = "
import os, time

@tool
def meet(name: str, others: int) -> str:
    'Waits until so many are here.'
    open(name + '.here', 'w').write('x')
    while len([file for file in os.listdir('.') if file.endswith('.here')]) < others:
        time.sleep(0.005)
    with open('order', 'a') as order:
        order.write(name)
    return str(os.getpid())
";
        let fixture = Fixture::new(source, 2).await;
        fixture.wait_for_workers(2, 0).await;
        let meet = |name: &str, others: usize| {
            tokio::spawn(fixture.call("meet", json!({"name": name, "others": others})))
        };
        let (first, second) = (meet("a", 3), meet("b", 2));
        assert_ne!(fixture.wait_for_file("a.here").await, "");
        let freed = second.await.unwrap().unwrap().as_text();
        // `a` keeps its worker until there is a third file. So these two calls use the other
        // worker, one after the other.
        let third = meet("c", 0);
        let fourth = meet("d", 0);
        assert_eq!(third.await.unwrap().unwrap().as_text(), freed);
        first.await.unwrap().unwrap();
        fourth.await.unwrap().unwrap();
        let order = std::fs::read_to_string(fixture.file("order")).unwrap();
        assert_eq!(order.replace('a', ""), "bcd");
    }

    /// Four calls end only if they run at the same time. `keep` is for how long an idle worker is
    /// kept.
    async fn four_at_once(keep: Duration) -> Fixture {
        let source = "
import os, time

@tool
def meet(name: str, others: int) -> str:
    'Waits until so many are here.'
    open(name + '.here', 'w').write('x')
    while len([file for file in os.listdir('.') if file.endswith('.here')]) < others:
        time.sleep(0.005)
    return str(os.getpid())
";
        let range = WorkerRange {
            min: 1,
            max: 4,
            idle_period: keep,
        };
        let fixture = Fixture::try_new(source, |settings| settings.workers = range)
            .await
            .unwrap();
        assert_eq!(fixture.module.status().workers, 1);
        let meet = |name: &str, others: usize| {
            tokio::spawn(fixture.call("meet", json!({"name": name, "others": others})))
        };
        let calls: Vec<_> = ["a", "b", "c", "d", "e"]
            .iter()
            .map(|name| meet(name, 4))
            .collect();
        let mut processes = BTreeSet::new();
        for call in calls {
            processes.insert(call.await.unwrap().unwrap().as_text());
        }
        assert_eq!(processes.len(), 4);
        fixture
    }

    #[tokio::test]
    async fn waiting_calls_start_workers() {
        if is_python_missing() {
            return;
        }
        let fixture = four_at_once(Duration::from_secs(3600)).await;
        let status = fixture.module.status();
        assert_eq!((status.workers, status.replaced), (4, 0));
    }

    #[tokio::test]
    async fn unneeded_workers_end() {
        if is_python_missing() {
            return;
        }
        let fixture = four_at_once(Duration::from_millis(20)).await;
        fixture.wait_for_workers(1, 0).await;
        wait_until("the processes have ended", || {
            (processes_with_mark(&fixture.mark).len() == 1).then_some(())
        })
        .await;
        fixture
            .text("meet", json!({"name": "f", "others": 0}))
            .await;
    }

    #[tokio::test]
    async fn late_progress_of_a_thread_is_ignored() {
        if is_python_missing() {
            return;
        }
        let source = "
import os, sys, threading

def sink():
    frame = sys._getframe()
    while 'wire' not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals['wire'].sink

@tool
def late() -> str:
    'Says something later.'
    to, go = sink(), threading.Event()
    def tell():
        go.wait(0.05)
        os.write(to, b'{\"op\":\"progress\",\"id\":1,\"data\":1}\\n')
        open('told', 'w').write('x')
    threading.Thread(target=tell).start()
    return str(os.getpid())
";
        let fixture = Fixture::new(source, 1).await;
        let before = fixture.text("late", json!({})).await;
        fixture.wait_for_file("told").await;
        assert_eq!(fixture.text("late", json!({})).await, before);
        assert_eq!(fixture.module.status().replaced, 0);
    }

    #[tokio::test]
    async fn large_values_pass_both_ways() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(
            "@tool\ndef echo(text: str) -> str:\n    'Echoes.'\n    return text\n",
            1,
        )
        .await;
        let text = "ø".repeat(1_000_000);
        assert!(fixture.text("echo", json!({"text": text})).await == text);
        assert_eq!(
            fixture.text("echo", json!({"text": "small"})).await,
            "small"
        );
    }
}

mod ends {
    use super::*;

    /// A function that never ends, and has a child process in a session of its own.
    const HANG: &str = "
@tool
def hang() -> str:
    'Never ends.'
    subprocess.Popen(['setsid', 'sleep', '3600'])
    open('hangs', 'w').write(str(os.getpid()))
    time.sleep(3600)
";

    #[tokio::test]
    async fn dropped_call_ends_only_its_own_worker() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(&format!("{PID}{HANG}"), 2).await;
        fixture.wait_for_workers(2, 0).await;
        let call = tokio::spawn(fixture.call("hang", json!({})));
        let hung = fixture.wait_for_file("hangs").await;
        let other = fixture.process().await;
        assert_eq!(
            wait_until("a child", || Some(processes_with_mark(&fixture.mark))
                .filter(|all| all.len() == 3))
            .await
            .len(),
            3
        );
        call.abort();
        let _ = call.await;
        fixture.wait_for_workers(2, 1).await;
        let left = wait_until("they are gone", || {
            Some(processes_with_mark(&fixture.mark)).filter(|all| all.len() == 2)
        })
        .await;
        assert!(
            !left.contains(&hung) && left.contains(&other.as_raw_nonzero().to_string()),
            "{left:?}"
        );
    }

    #[tokio::test]
    async fn dead_worker_fails_call_and_is_replaced() {
        if is_python_missing() {
            return;
        }
        let source = "
@tool
def die(how: str) -> str:
    'Dies.'
    if how == 'exit':
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(3600)
";
        let fixture = Fixture::new(&format!("{PID}{source}"), 1).await;
        let mut before = fixture.process().await;
        for (how, words) in [
            ("exit", "its worker process ended with exit status 3"),
            ("SIGSEGV", "SIGSEGV"),
            ("SIGABRT", "SIGABRT"),
            (
                "SIGKILL",
                "was killed (SIGKILL), perhaps because memory ran out",
            ),
        ] {
            let message = fixture.call_unavailable("die", json!({"how": how})).await;
            assert!(
                message.starts_with("the function did not end: ") && message.contains(words),
                "{message}"
            );
            // No pause, however often a worker dies: each worker has answered a call, so its death
            // is not an early one.
            let after = fixture.process().await;
            assert_ne!(after, before);
            before = after;
        }
        let status = fixture.module.status();
        assert_eq!((status.workers, status.replaced), (1, 4));
        assert_eq!(
            (status.fault, status.fault_at),
            (None, None),
            "the current worker has no fault"
        );
    }

    #[tokio::test]
    async fn dead_idle_worker_is_replaced_before_call() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(PID, 1).await;
        let before = fixture.process().await;
        kill_process(before, Signal::KILL).unwrap();
        fixture.wait_for_workers(1, 1).await;
        assert_ne!(fixture.process().await, before);
    }

    #[tokio::test]
    async fn just_died_worker_fails_no_call() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(PID, 1).await;
        for _ in 0..2 {
            let before = fixture.process().await;
            kill_process(before, Signal::KILL).unwrap();
            // Wait here, without an await, so that the runtime cannot notice the death. All threads
            // of the worker must have ended, because its pipe stays open until then.
            waitid(
                WaitId::Pid(before),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            )
            .unwrap();
            assert_ne!(fixture.process().await, before);
        }
    }

    #[tokio::test]
    async fn child_with_open_pipes_hides_no_death() {
        if is_python_missing() {
            return;
        }
        let source = "
import ctypes

@tool
def fork_and_die() -> str:
    'Leaves a child behind that no handler of Python knows of.'
    if ctypes.CDLL(None).fork() == 0:
        ctypes.CDLL(None).sleep(3600)
    os._exit(7)
";
        let fixture = Fixture::new(&format!("{PID}{source}"), 1).await;
        let message = fixture.call_unavailable("fork_and_die", json!({})).await;
        assert!(message.contains("exit status 7"), "{message}");
        fixture.wait_for_workers(1, 1).await;
        wait_until("the child is gone", || {
            (processes_with_mark(&fixture.mark).len() == 1).then_some(())
        })
        .await;
    }

    #[tokio::test]
    async fn module_is_down_while_workers_keep_dying() {
        if is_python_missing() {
            return;
        }
        let source = "
if os.path.exists('broken'):
    raise RuntimeError('no database, password hunter2-hunter2')

@tool
def die() -> str:
    'Dies.'
    os._exit(1)
";
        let fixture = Fixture::new(&format!("{PID}{HANG}{source}"), 1).await;
        std::fs::write(fixture.file("broken"), "").unwrap();
        fixture.call_unavailable("die", json!({})).await;
        wait_until("it is unavailable", || {
            (!fixture.runner("pid").is_available()).then_some(())
        })
        .await;
        match fixture.call("pid", json!({})).await {
            Err(ToolError::Unavailable {
                message,
                started: false,
                retry_after: Some(after),
            }) => {
                assert!(
                    message.starts_with("the Python module probe is unavailable: "),
                    "{message}"
                );
                assert!(
                    message.contains("tools.py:") && message.contains("no database"),
                    "{message}"
                );
                assert!(!message.contains("hunter2"), "{message}");
                assert!(after >= Duration::from_secs(1));
            }
            other => panic!("{other:?}"),
        }
        assert!(!fixture.module.status().is_up);
        std::fs::remove_file(fixture.file("broken")).unwrap();
        wait_until("it is back", || fixture.module.status().is_up.then_some(())).await;
        let before = fixture.process().await;
        // Earlier faults no longer count: a worker that has to be ended now is replaced at once.
        let call = tokio::spawn(fixture.call("hang", json!({})));
        fixture.wait_for_file("hangs").await;
        call.abort();
        let _ = call.await;
        assert_ne!(fixture.process().await, before);
    }

    #[tokio::test]
    async fn waiting_call_fails_when_no_worker_starts() {
        if is_python_missing() {
            return;
        }
        let source = "
if os.path.exists('broken'):
    os._exit(9)

@tool
def die_later() -> str:
    'Waits for a file, and dies.'
    while not os.path.exists('broken'):
        time.sleep(0.005)
    os._exit(1)
";
        let fixture = Fixture::new(&format!("{PID}{source}"), 1).await;
        let dies = tokio::spawn(fixture.call("die_later", json!({})));
        wait_until("it runs", || {
            (fixture.module.status().workers == 1).then_some(())
        })
        .await;
        tokio::task::yield_now().await;
        let waits = tokio::spawn(fixture.call("pid", json!({})));
        tokio::task::yield_now().await;
        std::fs::write(fixture.file("broken"), "").unwrap();
        assert!(matches!(
            dies.await.unwrap(),
            Err(ToolError::Unavailable { started: true, .. })
        ));
        match waits.await.unwrap() {
            Err(ToolError::Unavailable {
                message,
                started: false,
                ..
            }) => {
                assert!(message.contains("exit status 9"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn busy_workers_refuse_the_call_before_start() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(&format!("{PID}{HANG}"), 1).await;
        let hangs = tokio::spawn(fixture.call("hang", json!({})));
        fixture.wait_for_file("hangs").await;
        let mut context = context(&invocation(), Effect::Write);
        context.deadline = tokio::time::Instant::now() + Duration::from_millis(100);
        match fixture.runner("pid").call(object(json!({})), context).await {
            Err(ToolError::Unavailable {
                message,
                started: false,
                retry_after: Some(_),
            }) => {
                assert_eq!(
                    message,
                    "the worker process of the Python module probe was busy; `workers:` of the module sets how many there are"
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(!hangs.is_finished());
        assert_eq!(fixture.module.status().replaced, 0);
    }

    #[tokio::test]
    async fn failing_starts_leave_the_first_worker() {
        if is_python_missing() {
            return;
        }
        let source = format!(
            "
import os
open('starts', 'a').write('x')
if os.path.exists('listed'):
    raise RuntimeError('no memory left')
open('listed', 'w').close()
{PID}{HANG}"
        );
        let range = WorkerRange {
            min: 1,
            max: 8,
            idle_period: Duration::from_secs(3600),
        };
        let fixture = Fixture::try_new(&source, |settings| settings.workers = range)
            .await
            .unwrap();
        let hangs = tokio::spawn(fixture.call("hang", json!({})));
        fixture.wait_for_file("hangs").await;
        let pid = || {
            let (runner, mut context) =
                (fixture.runner("pid"), context(&invocation(), Effect::Write));
            context.deadline = tokio::time::Instant::now() + Duration::from_secs(2);
            tokio::spawn(async move { runner.call(object(json!({})), context).await })
        };
        let waiting: Vec<_> = (0..6).map(|_| pid()).collect();
        for call in waiting {
            assert!(matches!(
                call.await.unwrap(),
                Err(ToolError::Unavailable { started: false, .. })
            ));
        }
        // On a busy machine no start may have failed by the deadline of the calls.
        let fault = wait_until("a start fails", || fixture.module.status().fault).await;
        assert!(fault.contains("no memory left"), "{fault}");
        let status = fixture.module.status();
        assert_eq!((status.workers, status.is_up), (1, true));
        // At most six at the same time until the third failure counts, and then one after each
        // pause.
        let starts = std::fs::read_to_string(fixture.file("starts"))
            .unwrap()
            .len();
        assert!((2..=60).contains(&starts), "{starts}");
        assert!(!hangs.is_finished());
    }

    #[tokio::test]
    async fn invalid_lines_end_the_worker() {
        if is_python_missing() {
            return;
        }
        let source = "
def sink():
    frame = sys._getframe()
    while 'wire' not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals['wire'].sink

def shout(data):
    while data:
        data = data[os.write(sink(), data):]
    time.sleep(3600)

@tool
def huge() -> str:
    'Writes a line without end.'
    shout(b'x' * (17 << 20))

@tool
def nonsense(line: str) -> str:
    'Writes a line.'
    shout(line.encode() + b'\\n')
";
        let fixture = Fixture::new(&format!("{PID}{source}"), 1).await;
        let result = br#"{"op":"result","id":99,"content":[]}"#;
        for (function, arguments, why) in [
            ("huge", json!({}), "longer than any result"),
            ("nonsense", json!({"line": "hello"}), "expected value"),
            (
                "nonsense",
                json!({"line": String::from_utf8_lossy(result)}),
                "about call 99",
            ),
        ] {
            match fixture.call(function, arguments).await {
                Err(ToolError::BadOutput(message)) => assert!(message.contains(why), "{message}"),
                other => panic!("{other:?}"),
            }
        }
        fixture.process().await;
        assert_eq!(fixture.module.status().replaced, 3);
    }

    #[tokio::test]
    async fn many_rounds_leak_no_process_or_pipe() {
        if is_python_missing() {
            return;
        }
        // The test runner gives its own pipes to every process. Ignore them.
        let others = open_pipes("self");
        let fixture = Fixture::new(&format!("{PID}{HANG}"), 1).await;
        let mark = fixture.mark.clone();
        let mut used = BTreeSet::new();
        for round in 1..=10 {
            let call = tokio::spawn(fixture.call("hang", json!({})));
            used.append(&mut open_pipes(&fixture.wait_for_file("hangs").await));
            call.abort();
            let _ = call.await;
            std::fs::remove_file(fixture.file("hangs")).unwrap();
            fixture.wait_for_workers(1, round).await;
        }
        wait_until("one worker is left", || {
            (processes_with_mark(&mark).len() == 1).then_some(())
        })
        .await;
        let began = Instant::now();
        drop(fixture);
        assert!(
            processes_with_mark(&mark).is_empty(),
            "the drop of a module waits for its processes"
        );
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "the drop waits only for the processes"
        );
        used.retain(|pipe| !others.contains(pipe));
        assert!(used.len() >= 30, "three for each worker: {}", used.len());
        wait_until("all pipes are closed", || {
            open_pipes("self").is_disjoint(&used).then_some(())
        })
        .await;
    }
}

mod coroutines {
    use super::*;

    const SOURCE: &str = "
import asyncio, os, time

@tool
async def rest(seconds: float, name: str = '') -> str:
    'Rests.'
    if name:
        open(name, 'w').write('x')
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        open('cancelled', 'w').write('x')
        raise
    return str(os.getpid())

@tool
async def meet(others: int) -> str:
    'Waits until so many are here, at the same time.'
    global here
    here += 1
    while here < others:
        await asyncio.sleep(0.005)
    return str(os.getpid())

here = 0

@tool
async def rest_until(file: str, name: str) -> str:
    'Rests until there is a file.'
    open(name, 'w').write('x')
    while not os.path.exists(file):
        await asyncio.sleep(0.005)
    return str(os.getpid())

@tool
async def flood() -> str:
    'Tells and tells, and lets nothing else happen.'
    open('floods', 'w').write('x')
    while True:
        yield 1

@tool
async def block() -> str:
    'Blocks the loop.'
    await asyncio.sleep(0)
    open('blocks', 'w').write('x')
    time.sleep(3600)

@tool
async def die() -> str:
    'Dies.'
    os._exit(4)
";

    #[tokio::test]
    async fn coroutines_share_one_process() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(SOURCE, 4).await;
        let calls = (0..50).map(|_| tokio::spawn(fixture.call("meet", json!({"others": 50}))));
        let calls: Vec<_> = calls.collect();
        let mut processes = BTreeSet::new();
        for call in calls {
            processes.insert(call.await.unwrap().unwrap().as_text());
        }
        assert_eq!(processes.len(), 1);
        assert_eq!(
            fixture.module.status().workers,
            1,
            "there are no blocking functions"
        );
        wait_until("the first worker is gone", || {
            (processes_with_mark(&fixture.mark).len() == 1).then_some(())
        })
        .await;
    }

    #[tokio::test]
    async fn dropped_call_is_cancelled_alone() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(SOURCE, 1).await;
        let before = fixture.text("rest", json!({"seconds": 0})).await;
        let stays = tokio::spawn(fixture.call("rest", json!({"seconds": 1.5})));
        let goes = tokio::spawn(fixture.call("rest", json!({"seconds": 3600, "name": "rests"})));
        fixture.wait_for_file("rests").await;
        goes.abort();
        fixture.wait_for_file("cancelled").await;
        assert_eq!(
            stays.await.unwrap().unwrap().as_text(),
            before,
            "it runs longer than CANCEL_TIMEOUT"
        );
        assert_eq!(fixture.module.status().replaced, 0);
    }

    #[tokio::test]
    async fn blocked_loop_is_replaced_and_reads_restart() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(SOURCE, 1).await;
        let before = fixture.text("rest", json!({"seconds": 0})).await;
        let rest = |effect: Effect, name: &str| {
            tokio::spawn(fixture.call_with(
                "rest_until",
                json!({"file": "go", "name": name}),
                effect,
            ))
        };
        let (read, write) = (rest(Effect::Read, "read"), rest(Effect::Write, "write"));
        fixture.wait_for_file("read").await;
        fixture.wait_for_file("write").await;
        let blocks = tokio::spawn(fixture.call("block", json!({})));
        fixture.wait_for_file("blocks").await;
        blocks.abort();
        match write.await.unwrap() {
            Err(ToolError::Unavailable {
                message,
                started: true,
                ..
            }) => {
                assert!(message.contains("another call blocked it"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        std::fs::write(fixture.file("go"), "").unwrap();
        assert_ne!(read.await.unwrap().unwrap().as_text(), before);
        assert_eq!(fixture.module.status().replaced, 1);
    }

    #[tokio::test]
    async fn flood_of_progress_can_be_cancelled() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(SOURCE, 1).await;
        let (sink, listener) = ProgressSink::channel();
        let mut invocation = invocation();
        invocation.delivery.progress = Some(sink);
        let reporter = invocation.progress_reporter(|| Box::new(|_| {}));
        let context = context(&invocation, Effect::Read).with_reporter(reporter);
        let runner = fixture.runner("flood");
        let call = tokio::spawn(async move { runner.call(object(json!({})), context).await });
        fixture.wait_for_file("floods").await;
        call.abort();
        wait_until("it is ended", || {
            (fixture.module.status().replaced == 1).then_some(())
        })
        .await;
        drop(listener);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_wait_for_the_replacement_worker() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(SOURCE, 1).await;
        for round in 1..=3 {
            fixture.text("rest", json!({"seconds": 0})).await;
            let calls = [(); 4].map(|()| {
                let calls = [(); 200].map(|()| fixture.call("rest", json!({"seconds": 0})));
                tokio::spawn(async move {
                    let mut refused = Vec::new();
                    for call in calls {
                        if let Err(ToolError::Unavailable {
                            message,
                            started: false,
                            ..
                        }) = call.await
                        {
                            refused.push(message);
                        }
                    }
                    refused
                })
            });
            fixture.call_unavailable("die", json!({})).await;
            for call in calls {
                assert_eq!(call.await.unwrap(), [""; 0]);
            }
            assert_eq!(fixture.module.status().replaced, round);
        }
    }

    #[tokio::test]
    async fn dead_async_worker_fails_its_calls() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(SOURCE, 1).await;
        let other = tokio::spawn(fixture.call_with(
            "rest",
            json!({"seconds": 3600, "name": "rests"}),
            Effect::Read,
        ));
        fixture.wait_for_file("rests").await;
        let message = fixture.call_unavailable("die", json!({})).await;
        assert!(message.contains("exit status 4"), "{message}");
        assert!(matches!(
            other.await.unwrap(),
            Err(ToolError::Unavailable { started: true, .. })
        ));
        fixture.text("rest", json!({"seconds": 0})).await;
        assert_eq!(fixture.module.status().replaced, 1);
        let mark = fixture.mark.clone();
        drop(fixture);
        wait_until("nothing is left", || {
            processes_with_mark(&mark).is_empty().then_some(())
        })
        .await;
    }
}

mod starts {
    use super::*;

    async fn fault(source: &str, change: impl FnOnce(&mut ModuleSettings)) -> String {
        Fixture::try_new(source, change).await.err().unwrap()
    }

    #[tokio::test]
    async fn load_failure_names_place_and_reason() {
        if is_python_missing() {
            return;
        }
        let syntax = fault("def f(:\n", |_| {}).await;
        assert!(syntax.contains("tools.py:2"), "{syntax}");
        let import = fault("\nimport no_such_thing\n", |_| {}).await;
        assert!(
            import.contains("tools.py:3") && import.contains("no_such_thing"),
            "{import}"
        );
        let exit = fault(
            "import os, sys\nprint('no licence: hunter2-hunter2')\nos._exit(5)\n",
            |_| {},
        )
        .await;
        assert_eq!(
            exit,
            "its worker process ended with exit status 5; its last output: no licence: [redacted]"
        );
        let missing = fault("", |settings| {
            settings.interpreter = Interpreter::Program("python2.99".into());
        })
        .await;
        assert_eq!(
            missing,
            "there is no interpreter `python2.99` in the service's PATH"
        );
        let nowhere = fault("", |settings| settings.workdir = "/no/such/folder".into()).await;
        assert_eq!(nowhere, "its working folder /no/such/folder does not exist");
    }

    #[tokio::test]
    async fn slow_load_fails_at_its_timeout() {
        if is_python_missing() {
            return;
        }
        let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
        let source = "import time\nopen('loads', 'w').close()\ntime.sleep(3600)\n";
        let module = Module::new(settings(&folder, source, &mark), &test_env());
        let mut listing = std::pin::pin!(module.list(&|_| {}));
        let loads = folder.path().join("loads");
        // Time runs fast only once the module loads: the interpreter starts in real time.
        tokio::select! {
            _ = &mut listing => panic!("it ended before its module loads"),
            () = wait_until("the module loads", || loads.exists().then_some(())) => {}
        }
        let listed = with_fast_clock(100, listing).await;
        assert_eq!(listed.err().unwrap().0, "it was not ready after 30s");
    }

    #[tokio::test]
    async fn module_can_be_listed_after_a_failure() {
        if is_python_missing() {
            return;
        }
        let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
        let module = Module::new(settings(&folder, "1 / 0", &mark), &test_env());
        let fault = module.list(&|_| {}).await.err().unwrap().0;
        assert!(
            fault.contains("tools.py:1") && fault.contains("division by zero"),
            "{fault}"
        );
        let status = module.status();
        let known = SourceStatus {
            fault: Some(fault),
            fault_at: status.fault_at,
            ..SourceStatus::default()
        };
        assert!(status.fault_at.is_some() && status == known, "{status:?}");
        std::fs::write(
            folder.path().join("tools.py"),
            format!("from toolcrib import tool\n{PID}"),
        )
        .unwrap();
        let listed = module.list(&|_| {}).await.unwrap();
        assert_eq!(listed.tools.len(), 1);
        drop(module);
        let result = listed.tools[0]
            .runner
            .call(object(json!({})), context(&invocation(), Effect::Read))
            .await;
        assert!(!result.unwrap().is_error, "its runners keep it alive");
        drop(listed);
        wait_until("nothing is left", || {
            processes_with_mark(&mark).is_empty().then_some(())
        })
        .await;
    }

    #[tokio::test]
    async fn aborted_listing_leaves_no_process() {
        if is_python_missing() {
            return;
        }
        let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
        let source = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '3600'])\nopen('up', 'w').write('x')\ntime.sleep(3600)\n";
        let module = Arc::new(Module::new(settings(&folder, source, &mark), &test_env()));
        let listing = tokio::spawn({
            let module = module.clone();
            async move { module.list(&|_| {}).await.map(drop) }
        });
        wait_until("it loads", || {
            folder.path().join("up").exists().then_some(())
        })
        .await;
        listing.abort();
        wait_until("nothing is left", || {
            processes_with_mark(&mark).is_empty().then_some(())
        })
        .await;
    }

    #[tokio::test]
    async fn worker_gets_the_declared_environment_only() {
        if is_python_missing() {
            return;
        }
        let source = "
import json, os, sys

@tool
def environment() -> dict:
    'Says what it sees.'
    return {'names': sorted(os.environ), 'folder': os.getcwd(), 'utf8': sys.flags.utf8_mode}
";
        let fixture = Fixture::new(source, 1).await;
        let values = fixture
            .call("environment", json!({}))
            .await
            .unwrap()
            .structured_content
            .unwrap();
        // Python itself may add `LC_CTYPE` when it coerces the C locale.
        let names: Vec<&str> = values["names"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(
            names
                .into_iter()
                .filter(|name| *name != "LC_CTYPE")
                .collect::<Vec<_>>(),
            ["MARK", "TOOLCRIB_WORKER"]
        );
        assert_eq!(values["utf8"], 1);
        let folder = fixture.folder.path().canonicalize().unwrap();
        assert_eq!(values["folder"], folder.to_str().unwrap());
    }
}

mod log {
    use std::io::Write;

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct LogLines(Arc<Mutex<Vec<u8>>>);

    impl Write for LogLines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for LogLines {
        type Writer = Self;
        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    impl LogLines {
        async fn wait_for_line(&self, needle: &str) -> Value {
            wait_until(needle, || {
                let lines = String::from_utf8(self.0.lock().clone()).unwrap();
                lines
                    .lines()
                    .find(|line| line.contains(needle))
                    .map(|line| serde_json::from_str(line).unwrap())
            })
            .await
        }
    }

    #[tokio::test]
    async fn prints_are_logged_clean_under_their_call() {
        if is_python_missing() {
            return;
        }
        let lines = LogLines::default();
        let log = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(lines.clone())
            .finish();
        // The runtime of this test uses only this thread.
        let _log = tracing::subscriber::set_default(log);
        let source = "
import os, sys
print('loading')

@tool
def speak(text: str) -> str:
    'Prints.'
    print(text)
    os.system('echo from a child')
    print('x' * 10000, file=sys.stderr)
    raise RuntimeError('the traceback has its place')
";
        let fixture = Fixture::new(source, 1).await;
        assert_eq!(lines.wait_for_line("loading").await.get("tool"), None);
        let invocation = invocation();
        let arguments = object(json!({"text": "\u{1b}[31mkey hunter2-hunter2\u{1b}[0m"}));
        let result = fixture
            .runner("speak")
            .call(arguments, context(&invocation, Effect::Read))
            .await
            .unwrap();
        assert!(
            result.is_error && !result.as_text().contains("Traceback"),
            "{result:?}"
        );
        let line = lines.wait_for_line("key ").await;
        assert_eq!(line["message"], "key [redacted]");
        assert_eq!(
            (line["module"].as_str(), line["tool"].as_str()),
            (Some("probe"), Some("t"))
        );
        assert_eq!(
            (&line["invocation_id"], &line["level"]),
            (&json!(invocation.id.to_string()), &json!("INFO"))
        );
        assert_eq!(line["target"], "toolcrib::python");
        lines.wait_for_line("from a child").await;
        let long = lines.wait_for_line("xxx").await["message"]
            .as_str()
            .unwrap()
            .len();
        assert!(long < 5000, "{long}");
        // One record with the whole traceback.
        let line = lines.wait_for_line("ended with an exception").await;
        assert_eq!(
            (&line["invocation_id"], &line["level"]),
            (&json!(invocation.id.to_string()), &json!("WARN"))
        );
        let traceback = line["traceback"].as_str().unwrap();
        for part in [
            "Traceback (most recent call last):\n",
            ", in speak\n",
            "RuntimeError: the traceback has its place",
        ] {
            assert!(traceback.contains(part), "{traceback}");
        }
    }

    #[tokio::test]
    async fn later_workers_run_the_listed_source() {
        if is_python_missing() {
            return;
        }
        let fixture = Fixture::new(
            &format!("{PID}\n@tool\ndef version() -> int:\n    'Version.'\n    return 1\n"),
            1,
        )
        .await;
        for (edited, replaced) in [
            (
                "@tool\ndef version() -> int:\n    'Version.'\n    return 2\n",
                1,
            ),
            ("def (", 2),
        ] {
            let before = fixture.process().await;
            std::fs::write(fixture.file("tools.py"), format!("{PID}\n{edited}\n")).unwrap();
            kill_process(before, Signal::KILL).unwrap();
            fixture.wait_for_workers(1, replaced).await;
            assert_eq!(fixture.text("version", json!({})).await, "1");
        }
    }
}

mod venvs {
    use super::*;

    /// Makes a wheel by hand, so that the test needs no network.
    fn wheel(folder: &Path) {
        let script = "
import sys, zipfile
with zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'ANSWER = 42')
    wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.0.dist-info/RECORD', '')
";
        assert!(
            std::process::Command::new(python().unwrap())
                .args(["-c", script])
                .current_dir(folder)
                .status()
                .unwrap()
                .success()
        );
    }

    /// Whether this Python cannot make virtual environments. Debian has a separate package for
    /// them.
    fn is_venv_missing() -> bool {
        let venv = std::process::Command::new("python3")
            .args(["-c", "import venv, ensurepip"])
            .output();
        let is_missing = !venv.is_ok_and(|output| output.status.success());
        if is_missing {
            println!("skipped: python3 has no venv");
        }
        is_missing
    }

    const SOURCE: &str = "from toolcrib import tool\nimport tiny, sys\n
@tool
def answer() -> list:
    'Answers.'
    return [tiny.ANSWER, sys.prefix]
";

    fn module(folder: &TempDir, mark: &str) -> Module {
        let mut settings = settings(folder, SOURCE, mark);
        settings.interpreter = Interpreter::Requirements(folder.path().join("requirements.txt"));
        Module::new(settings, &test_env())
    }

    fn built_environments(folder: &TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(folder.path().join("venvs"))
            .unwrap()
            .flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| !name.ends_with(".lock")).collect()
    }

    #[tokio::test]
    async fn environment_is_built_once_after_an_interruption() {
        if is_python_missing() || is_venv_missing() {
            return;
        }
        let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
        wheel(folder.path());
        std::fs::write(folder.path().join("requirements.txt"), "-r more.txt\n").unwrap();
        std::fs::write(
            folder.path().join("more.txt"),
            "./tiny-1.0-py3-none-any.whl  # by hand\n",
        )
        .unwrap();
        let first = Arc::new(module(&folder, &mark));
        let interrupted = tokio::spawn({
            let first = first.clone();
            async move { first.list(&|_| {}).await.map(drop) }
        });
        let venvs = folder.path().join("venvs");
        wait_until("the build has started", || {
            venvs
                .is_dir()
                .then(|| built_environments(&folder))
                .filter(|built_environments| built_environments.len() == 1)
        })
        .await;
        interrupted.abort();
        let _ = interrupted.await;
        wait_until("nothing runs", || {
            processes_with_mark(&mark).is_empty().then_some(())
        })
        .await;

        let reports = Arc::new(Mutex::new(Vec::new()));
        let second = module(&folder, &mark);
        let collector = reports.clone();
        let report_status = move |line: String| collector.lock().push(line);
        let (one, other) = tokio::join!(first.list(&report_status), second.list(&report_status));
        for listed in [one, other] {
            let listed = listed.unwrap();
            let result = listed.tools[0]
                .runner
                .call(object(json!({})), context(&invocation(), Effect::Read))
                .await;
            let result = result.unwrap().structured_content.unwrap();
            assert_eq!(result[0], 42);
            let prefix = result[1].as_str().unwrap();
            assert!(
                prefix.ends_with(&format!("venvs/{}", built_environments(&folder)[0])),
                "{prefix}"
            );
        }
        let reports = reports.lock().clone();
        let count_of = |what: &str| reports.iter().filter(|line| line.starts_with(what)).count();
        assert_eq!(
            (
                count_of("building a virtual environment"),
                count_of("its virtual environment is built")
            ),
            (1, 1),
            "{reports:?}"
        );
        assert_eq!(count_of("waiting for another build"), 1, "{reports:?}");
        assert_eq!(built_environments(&folder).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_builds_time_out() {
        if is_python_missing() {
            return;
        }
        let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
        let file = folder.path().join("requirements.txt");
        std::fs::write(&file, "tiny\n").unwrap();
        std::fs::write(
            folder.path().join("venv.py"),
            "import time\ntime.sleep(3600)\n",
        )
        .unwrap();
        let mut settings = settings(&folder, SOURCE, &mark);
        settings.environment.insert(
            "PYTHONPATH".into(),
            folder.path().to_str().unwrap().to_owned(),
        );
        let (process_env, orphan_reaper) = (test_env(), OrphanReaper::default());
        let program = interpreter::locate_program("python3".as_ref(), &process_env).unwrap();
        let python = interpreter::Python {
            program,
            version: "3".into(),
        };
        let spec = venv::VenvSpec {
            file: &file,
            settings: &settings,
            process_env: &process_env,
            orphan_reaper: &orphan_reaper,
            report_status: &|_| {},
        };
        let fault = spec.ensure_built(&python).await.unwrap_err();
        let shown = file.display();
        let expected = format!(
            "the virtual environment for {shown} was not built in 10m; python -m venv was still running"
        );
        assert_eq!(fault, expected);
        wait_until("nothing runs", || {
            processes_with_mark(&mark).is_empty().then_some(())
        })
        .await;

        let venvs = std::fs::read_dir(&settings.venvs)
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        let lock = venvs
            .into_iter()
            .find(|path| path.extension().is_some_and(|ending| ending == "lock"))
            .unwrap();
        let lock = std::fs::File::open(lock).unwrap();
        // A process that another test has just forked also holds the lock, until it executes its
        // program.
        wait_until("the lock is free", || lock.try_lock().ok()).await;
        let fault = spec.ensure_built(&python).await.unwrap_err();
        assert!(
            fault.starts_with("another build of the virtual environment ")
                && fault.ends_with(" has been running for 10m"),
            "{fault}"
        );
    }

    #[tokio::test]
    async fn build_failure_repeats_the_last_output() {
        if is_python_missing() {
            return;
        }
        let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
        let requirements = folder.path().join("requirements.txt");
        std::fs::write(&requirements, "tiny\n").unwrap();
        let fails = "import sys\nprint('no room for hunter2-hunter2')\nsys.exit(1)\n";
        std::fs::write(folder.path().join("venv.py"), fails).unwrap();
        let mut settings = settings(&folder, SOURCE, &mark);
        settings.interpreter = Interpreter::Requirements(requirements.clone());
        settings.environment.insert(
            "PYTHONPATH".into(),
            folder.path().to_str().unwrap().to_owned(),
        );
        let module = Module::new(settings, &test_env());
        let fault = module.list(&|_| {}).await.err().unwrap().0;
        let expected = "failed with exit status: 1: no room for [redacted]";
        assert_eq!(
            fault,
            format!("python -m venv for {} {expected}", requirements.display())
        );
        std::fs::remove_file(&requirements).unwrap();
        let fault = module.list(&|_| {}).await.err().unwrap().0;
        assert!(
            fault.starts_with("cannot read ") && fault.contains("requirements.txt"),
            "{fault}"
        );
    }
}
