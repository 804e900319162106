//! Ends of workers, of calls, and of whole modules.

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
        let (runner, mut context) = (fixture.runner("pid"), context(&invocation(), Effect::Write));
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
