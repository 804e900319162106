//! Tests with real programs and real processes. No test sleeps for a fixed time: each polls until
//! its condition is true.

use crate::kinds::sandbox::{SandboxDefaults, SandboxSetting, Sandboxes, ServiceFiles};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::call::{
    Caller, Content, Effect, Invocation, JsonObject, ToolContext, ToolError, ToolName, ToolResult,
    ToolSettings, UpstreamFailure,
};
use crate::kinds::{BuildContext, ConfigFault, Runner, ValueFault, Values};

#[path = "arguments_tests.rs"]
mod arguments;
#[path = "config_tests.rs"]
mod config;
#[path = "results_tests.rs"]
mod results;

/// How long a condition may take to become true.
const PATIENCE: Duration = Duration::from_secs(10);

fn invocation() -> Invocation {
    let (tool, caller) = (ToolName::parse("t").unwrap(), Arc::new(Caller::anonymous()));
    Invocation::new(tool, JsonObject::new(), caller, jiff::Timestamp::now())
}

fn context(invocation: &Invocation) -> ToolContext {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    ToolContext::new(invocation, deadline, Arc::new(ToolSettings::default()))
}

type BuildResult = Result<(Arc<dyn Runner>, Vec<ConfigFault>), Vec<ConfigFault>>;

fn build_with(config: Value, schema: &Value, effect: Effect) -> BuildResult {
    let defaults = SandboxDefaults {
        setting: SandboxSetting::None,
        ..SandboxDefaults::default()
    };
    build_in(config, schema, effect, &defaults)
}

fn build_in(
    config: Value,
    schema: &Value,
    effect: Effect,
    sandboxes: &SandboxDefaults,
) -> BuildResult {
    let config = serde_json::from_value(config).unwrap();
    build(
        config,
        &BuildContext {
            name: "t",
            base_dir: Path::new("/tmp"),
            input_schema: schema,
            context_fields: &["tenant".to_owned(), "user-id".to_owned()],
            effect,
            trusted: true,
        },
        sandboxes,
    )
}

/// A runner with the string parameters `a` and `b`, both required.
fn runner(config: Value, effect: Effect) -> Arc<dyn Runner> {
    let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]});
    build_with(config, &schema, effect)
        .unwrap_or_else(|faults| panic!("{faults:?}"))
        .0
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        other => panic!("{other}"),
    }
}

async fn call(
    runner: &Arc<dyn Runner>,
    arguments: Value,
) -> (Result<ToolResult, ToolError>, Vec<String>) {
    let invocation = invocation();
    let result = runner.call(object(arguments), context(&invocation)).await;
    let warnings = invocation.report.tool.lock().warnings.clone();
    (result, warnings)
}

/// The result of `/bin/sh -c script`, and the warnings of the call.
async fn run_shell(script: &str, more: Value) -> (Result<ToolResult, ToolError>, Vec<String>) {
    let mut config = json!({"command": ["/bin/sh", "-c", script], "stdin": ""});
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    call(&runner(config, Effect::Read), json!({})).await
}

fn wait_until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = holds() {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes, other than this one, with `needle` in their environment or command line.
fn survivors(needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    let me = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let holds = |bytes: Vec<u8>| {
            bytes
                .windows(needle.len())
                .any(|window| window == needle.as_bytes())
        };
        let name = entry.file_name().into_string().unwrap();
        if name != me
            && name.parse::<u32>().is_ok()
            && (holds(read("environ")) || holds(read("cmdline")))
        {
            found.push(name);
        }
    }
    found
}

/// The number of dead children of this process that have not been reaped.
fn zombies() -> usize {
    let zombie = format!(") Z {} ", std::process::id());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(&zombie)).count()
}

fn open_files() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    // Counts pipes and pidfds only: other tests open files at the same time.
    let link = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path())
            .ok()?
            .to_str()
            .map(str::to_owned)
    };
    entries
        .filter_map(link)
        .filter(|link| link.starts_with("pipe:") || link.contains("pidfd"))
        .collect()
}

fn text(result: (Result<ToolResult, ToolError>, Vec<String>)) -> String {
    let result = result.0.unwrap();
    assert!(!result.is_error, "{result:?}");
    result.as_text()
}

mod bounds {
    use super::*;

    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[tokio::test]
    async fn endless_output_stops_program_and_is_cut() {
        let started = Instant::now();
        let before = resident();
        // The writer gets a session of its own, so that killing the group is not enough.
        let script = "setsid -w yes é";
        let (result, warnings) = run_shell(script, json!({"max_output": "64KiB"})).await;
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            started.elapsed()
        );
        // Other tests of this process allocate memory at the same time. Output without a cap would
        // take gigabytes per second.
        assert!(resident() < before + (512 << 20));
        let text = result.unwrap().as_text();
        assert!(
            text.len() <= 65_536 && text.len() > 65_530 && !text.contains('\u{fffd}'),
            "{}",
            text.len()
        );
        assert!(
            warnings.len() == 1 && warnings[0].contains("max_output"),
            "{warnings:?}"
        );
        let (result, _) = run_shell("yes", json!({"output": "json"})).await;
        assert!(
            matches!(result, Err(ToolError::BadOutput(message)) if message.contains("max_output"))
        );
    }

    #[tokio::test]
    async fn programs_are_confined() {
        let script = "grep NoNewPrivs /proc/self/status | tr -d '\\t'; umask; ulimit -c; ulimit -Hn; ulimit -Sn; ls -l /proc/self/fd | wc -l";
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let output = text(run_shell(script, json!({"output": "text"})).await);
        // The three streams, the folder that `ls` reads, and the headline.
        assert_eq!(
            output.lines().collect::<Vec<_>>(),
            ["NoNewPrivs:1", "0077", "0", "1024", "1024", "5"]
        );
    }

    #[tokio::test]
    async fn write_completes_despite_long_output() {
        let folder = tempfile::tempdir().unwrap();
        let script = "head -c 20000000 /dev/zero | tr '\\0' x; echo done > done";
        let config = json!({"command": ["/bin/sh", "-c", script], "workdir": folder.path(), "max_output": "1KiB"});
        let (result, warnings) = call(&runner(config, Effect::Write), json!({})).await;
        assert_eq!(result.unwrap().as_text().len(), 1024);
        assert!(
            warnings[0].contains("19998976 bytes were left out"),
            "{warnings:?}"
        );
        assert_eq!(
            std::fs::read_to_string(folder.path().join("done")).unwrap(),
            "done\n"
        );
    }

    #[tokio::test]
    async fn unread_and_echoed_input_do_not_block() {
        let input = "0123456789".repeat(1 << 20);
        let deaf = runner(
            json!({"command": ["sh", "-c", "echo hi"], "stdin": "{{ a }}"}),
            Effect::Read,
        );
        assert_eq!(text(call(&deaf, json!({"a": input, "b": ""})).await), "hi");
        let config =
            json!({"command": ["cat"], "stdin": "{{ a }}", "max_output": "4MiB", "output": "text"});
        let input = "x".repeat(4 << 20);
        assert_eq!(
            text(call(&runner(config, Effect::Read), json!({"a": input, "b": ""})).await).len(),
            4 << 20
        );
    }

    #[tokio::test]
    async fn simultaneous_stdout_and_stderr_do_not_block() {
        let script = "head -c 3000000 /dev/zero >&2; head -c 100000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 0";
        let result = run_shell(script, json!({})).await.0.unwrap();
        assert!(matches!(&result.content[0], Content::Text { text } if text.len() == 100_000));
    }
}

mod endings {
    use super::*;
    use crate::kinds::process::tests::python;

    /// Forks twice into a session of its own, ignores SIGTERM and SIGHUP, and holds all pipes open.
    const HOSTILE: &str = "
import os, signal, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
def wait():
    while True: time.sleep(3600)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        wait()
    os._exit(0)
os.wait()
if os.fork() == 0:
    os.setsid()
    os.execve('/bin/sleep', ['sleep', os.environ['NAP'] + '25'], {})
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.execve('/bin/sleep', ['sleep', os.environ['NAP'] + '75'], {})
    os._exit(0)
os.wait()
open(os.environ['READY'], 'w').close()
wait()
";

    /// Leaves an orphan to init that keeps its environment, and a child of it without the variables
    /// and the limit.
    const BELOW_AN_ORPHAN: &str = "
import os, resource, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if os.fork() == 0:
            resource.setrlimit(resource.RLIMIT_RTTIME, (10 ** 9, 10 ** 9))
            os.execve('/bin/sleep', ['sleep', os.environ['NAP'] + '625'], {})
        signal.pause()
    os._exit(0)
os.wait()
signal.pause()
";

    const ROUNDS: usize = 20;

    /// The start of the sleep time of programs that have no other marker. It distinguishes them
    /// from those of another run of this test on the same machine.
    fn sleep_prefix() -> String {
        format!("3600.{}", std::process::id())
    }

    /// Runs alone: it inspects all open files and children of this process, and would see those of
    /// other tests.
    #[test]
    fn dropped_calls_clean_up_in_own_process() {
        let test = "kinds::command::tests::endings::dropped_calls_leave_nothing";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let done = alone
            .args(["--exact", "--ignored", "--nocapture", test])
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && stdout.contains("1 passed"),
            "{stdout}{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    #[ignore = "the test above runs it, in a process of its own"]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn dropped_calls_leave_nothing() {
        let Some(python) = python() else { return };
        let folder = tempfile::tempdir().unwrap();
        let before = open_files();
        let mut slowest = Duration::ZERO;
        for round in 0..ROUNDS {
            let ready = folder.path().join(round.to_string());
            let config = json!({"command": [python, "-c", HOSTILE], "environment": {"READY": ready, "NAP": sleep_prefix()}});
            let (runner, invocation) = (runner(config, Effect::Write), invocation());
            let needle = invocation.id.to_string();
            let call = tokio::spawn({
                let context = context(&invocation);
                async move { runner.call(object(json!({})), context).await }
            });
            wait_until("the program is ready", || ready.exists().then_some(()));
            assert!(survivors(&needle).len() >= 2);
            call.abort();
            let _ = call.await;
            let dropped = Instant::now();
            let is_gone = || survivors(&needle).is_empty() && survivors(&sleep_prefix()).is_empty();
            wait_until("all are gone", || is_gone().then_some(()));
            slowest = slowest.max(dropped.elapsed());
        }
        wait_until("no zombie is left", || (zombies() == 0).then_some(()));
        wait_until("no pipe is left", || {
            open_files().is_subset(&before).then_some(())
        });
        println!("{ROUNDS} rounds, slowest end {slowest:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn descendants_of_orphans_are_killed() {
        let Some(python) = python() else { return };
        let config = json!({"command": [python, "-c", BELOW_AN_ORPHAN], "environment": {"NAP": sleep_prefix()}});
        let runner = runner(config, Effect::Write);
        let asleep = format!("{}625", sleep_prefix());
        let call = tokio::spawn(async move {
            let invocation = invocation();
            runner.call(object(json!({})), context(&invocation)).await
        });
        wait_until("it runs", || (!survivors(&asleep).is_empty()).then_some(()));
        call.abort();
        let _ = call.await;
        wait_until("it is gone", || survivors(&asleep).is_empty().then_some(()));
    }

    #[tokio::test]
    async fn background_process_in_group_is_killed() {
        let invocation = invocation();
        let run = runner(
            json!({"command": ["sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo $!"]}),
            Effect::Read,
        );
        let result = run
            .call(object(json!({})), context(&invocation))
            .await
            .unwrap();
        assert!(!result.is_error);
        wait_until("it is gone", || {
            survivors(&invocation.id.to_string())
                .is_empty()
                .then_some(())
        });
        assert_eq!(invocation.report.tool.lock().warnings, Vec::<String>::new());
    }

    /// Starts a process that moves to a session of its own before the program ends, and keeps its
    /// outputs open.
    async fn run_and_leave_process(invocation: &Invocation) -> ToolResult {
        let folder = tempfile::tempdir().unwrap();
        let script =
            "setsid sh -c 'echo > up; exec sleep 3600' & until [ -e up ]; do :; done; echo fine";
        let run = runner(
            json!({"command": ["sh", "-c", script], "workdir": folder.path()}),
            Effect::Write,
        );
        run.call(object(json!({})), context(invocation))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn held_open_pipe_does_not_change_result() {
        let (invocation, started) = (invocation(), Instant::now());
        let result = run_and_leave_process(&invocation).await;
        assert_eq!(
            (result.as_text().as_str(), result.is_error),
            ("fine", false)
        );
        assert!(started.elapsed() < Duration::from_secs(10));
        assert!(invocation.report.tool.lock().warnings[0].contains("held its output open"));
        wait_until("it is gone", || {
            survivors(&invocation.id.to_string())
                .is_empty()
                .then_some(())
        });
    }

    #[tokio::test]
    async fn other_attempt_of_same_call_survives() {
        let mut invocation = invocation();
        let sleep = runner(json!({"command": ["sleep", "3600"]}), Effect::Read);
        let mut start = |attempt| {
            invocation.attempt = attempt;
            let (runner, context) = (sleep.clone(), context(&invocation));
            tokio::spawn(async move { runner.call(object(json!({})), context).await })
        };
        let (first, second) = (start(1), start(2));
        tokio::task::yield_now().await;
        let needle = invocation.id.to_string();
        wait_until("both run", || (survivors(&needle).len() == 2).then_some(()));
        first.abort();
        let _ = first.await;
        wait_until("one is gone", || {
            (survivors(&needle).len() < 2).then_some(())
        });
        assert_eq!(survivors(&needle).len(), 1);
        assert!(!second.is_finished());
        second.abort();
        let _ = second.await;
        wait_until("both are gone", || {
            survivors(&needle).is_empty().then_some(())
        });
    }

    #[test]
    fn service_shutdown_kills_its_programs() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let up = folder.path().join("up");
        let script = "(setsid sh -c 'echo > up; exec sleep 3600' &); sleep 3600";
        let (invocation, config) = (
            invocation(),
            json!({"command": ["sh", "-c", script], "workdir": folder.path()}),
        );
        let (run, context) = (runner(config, Effect::Write), context(&invocation));
        runtime.spawn(async move { run.call(object(json!({})), context).await });
        wait_until("they run", || up.exists().then_some(()));
        // Drops the call and with it the last reference to the runner, which waits for the orphan
        // reaper.
        drop(runtime);
        assert_eq!(survivors(&invocation.id.to_string()), Vec::<String>::new());
    }
}
