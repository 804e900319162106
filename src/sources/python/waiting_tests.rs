//! Calls that wait for a worker. A future that is not polled again stands for a task that has not
//! run yet: its call must start, or not start, all the same.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::tests::{Fixture, TIMEOUT, context, invocation, is_python_missing, object, wait_until};
use crate::call::{Effect, Invocation, ToolError, ToolResult};
use crate::sources::Source;

const SOURCE: &str = "
import os, time

def note(name):
    with open('order', 'a') as order:
        order.write(name)
    open(name + '.here', 'w').write('x')

@tool
def hold(name: str) -> str:
    'Ends when there is a file.'
    note(name)
    while not os.path.exists(name + '.go'):
        time.sleep(0.005)
    return str(os.getpid())

@tool
def pass_by(name: str, text: str = '') -> str:
    'Ends at once.'
    note(name)
    return f'{os.getpid()} {len(text)}'

@tool
def die(name: str) -> str:
    'Dies when there is a file.'
    note(name)
    while not os.path.exists(name + '.go'):
        time.sleep(0.005)
    os._exit(3)
";

/// More than a pipe takes.
const LARGE: usize = 1 << 20;

/// A call whose future runs only when the test polls it.
struct Call {
    future: Pin<Box<dyn Future<Output = Result<ToolResult, ToolError>> + Send>>,
    invocation: Invocation,
}

impl Call {
    fn new(fixture: &Fixture, tool: &str, arguments: Value, deadline: Duration) -> Self {
        let invocation = invocation();
        let mut context = context(&invocation, Effect::Write);
        context.deadline = tokio::time::Instant::now() + deadline;
        let runner = fixture.runner(tool);
        Self {
            future: Box::pin(async move { runner.call(object(arguments), context).await }),
            invocation,
        }
    }

    /// A call that has been polled once, so it waits.
    fn waiting(fixture: &Fixture, tool: &str, arguments: Value) -> Self {
        Self::new(fixture, tool, arguments, TIMEOUT).polled()
    }

    fn polled(mut self) -> Self {
        assert!(self.is_pending(), "it waits");
        self
    }

    fn is_pending(&mut self) -> bool {
        (&mut self.future).now_or_never().is_none()
    }

    /// Whether it counts as waiting, so that its cancellation means that nothing has run.
    fn is_queued(&self) -> bool {
        self.invocation.report.attempt.lock().queued
    }

    async fn text(self) -> String {
        let result = self.future.await.unwrap();
        assert!(!result.is_error, "{result:?}");
        result.as_text()
    }
}

/// A module whose only worker is busy until [`let_go`].
async fn busy() -> Option<(
    Fixture,
    tokio::task::JoinHandle<Result<ToolResult, ToolError>>,
)> {
    if is_python_missing() {
        return None;
    }
    let fixture = Fixture::new(SOURCE, 1).await;
    let held = tokio::spawn(fixture.call("hold", json!({"name": "a"})));
    fixture.wait_for_file("a.here").await;
    Some((fixture, held))
}

fn let_go(fixture: &Fixture, name: &str) {
    std::fs::write(fixture.file(&format!("{name}.go")), "").unwrap();
}

fn order(fixture: &Fixture) -> String {
    std::fs::read_to_string(fixture.file("order")).unwrap()
}

#[tokio::test]
async fn ended_call_starts_the_next_one() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "b"}));
    assert!(next.is_queued());
    let_go(&fixture, "a");
    let worker = held.await.unwrap().unwrap().as_text();
    assert!(!next.is_queued(), "its line is written");
    // It runs although its own task does not.
    fixture.wait_for_file("b.here").await;
    assert_eq!(next.text().await, format!("{worker} 0"));
    assert_eq!(fixture.module.status().replaced, 0);
}

#[tokio::test]
async fn later_call_does_not_overtake() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let second = Call::waiting(&fixture, "pass_by", json!({"name": "b"}));
    let third = Call::waiting(&fixture, "pass_by", json!({"name": "c"}));
    let_go(&fixture, "a");
    held.await.unwrap().unwrap();
    // The worker has ended the second call, but the task of that call has not read its answer.
    fixture.wait_for_file("b.here").await;
    let fourth = Call::waiting(&fixture, "pass_by", json!({"name": "d"}));
    assert!(
        third.is_queued() && fourth.is_queued(),
        "one call at a time"
    );
    let (fourth, third, second) = tokio::join!(fourth.text(), third.text(), second.text());
    assert_eq!((&second, &second), (&third, &fourth));
    assert_eq!(order(&fixture), "abcd");
}

#[tokio::test]
async fn call_dropped_while_it_waits_never_runs() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let dropped = Call::waiting(&fixture, "pass_by", json!({"name": "b"}));
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "c"}));
    drop(dropped.future);
    assert!(dropped.invocation.report.attempt.lock().queued);
    let_go(&fixture, "a");
    held.await.unwrap().unwrap();
    next.text().await;
    assert_eq!(
        (order(&fixture), fixture.module.status().replaced),
        ("ac".into(), 0)
    );
}

#[tokio::test]
async fn call_dropped_after_its_start_ends_its_worker() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let dropped = Call::waiting(&fixture, "hold", json!({"name": "b"}));
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "c"}));
    let_go(&fixture, "a");
    let worker = held.await.unwrap().unwrap().as_text();
    fixture.wait_for_file("b.here").await;
    drop(dropped.future);
    assert!(
        !dropped.invocation.report.attempt.lock().queued,
        "its function has started"
    );
    assert_ne!(next.text().await, format!("{worker} 0"));
    assert_eq!(
        (order(&fixture), fixture.module.status().replaced),
        ("abc".into(), 1)
    );
}

#[tokio::test]
async fn cancelled_or_left_call_does_not_start() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let cancelled = Call::waiting(&fixture, "pass_by", json!({"name": "b"}));
    let mut left = Call::waiting(&fixture, "pass_by", json!({"name": "c"}));
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "d"}));
    cancelled.invocation.signals.cancelled.cancel();
    // `on_disconnect: finish` lets a call end that has started. This one has not.
    left.invocation.signals.disconnect(false);
    let_go(&fixture, "a");
    held.await.unwrap().unwrap();
    next.text().await;
    assert!(cancelled.is_queued() && left.is_queued());
    assert!(left.is_pending() && left.invocation.signals.cancelled.is_cancelled());
    assert_eq!(
        (order(&fixture), fixture.module.status().replaced),
        ("ad".into(), 0)
    );
}

#[tokio::test]
async fn started_call_goes_on_after_its_caller_has_left() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "b"}));
    let_go(&fixture, "a");
    let worker = held.await.unwrap().unwrap().as_text();
    next.invocation.signals.disconnect(false);
    assert_eq!(next.text().await, format!("{worker} 0"));
}

#[tokio::test]
async fn call_that_waited_too_long_never_runs() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let arguments = json!({"name": "b"});
    let late = Call::new(&fixture, "pass_by", arguments, Duration::from_millis(20)).polled();
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "c"}));
    assert!(matches!(
        late.future.await,
        Err(ToolError::Unavailable { started: false, .. })
    ));
    assert!(!late.invocation.report.attempt.lock().queued);
    let_go(&fixture, "a");
    held.await.unwrap().unwrap();
    next.text().await;
    assert_eq!(order(&fixture), "ac");
}

#[tokio::test]
async fn started_call_is_not_refused_as_late() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let limit = Duration::from_secs(1);
    let began = Instant::now();
    let next = Call::new(&fixture, "pass_by", json!({"name": "b"}), limit).polled();
    let_go(&fixture, "a");
    let worker = held.await.unwrap().unwrap().as_text();
    if next.is_queued() {
        return; // The machine was so busy that the call was late indeed.
    }
    wait_until("it could not begin any more", || {
        (began.elapsed() > limit / 2).then_some(())
    })
    .await;
    assert_eq!(next.text().await, format!("{worker} 0"));
}

#[tokio::test]
async fn waiting_call_gets_the_replacement_of_a_dead_worker() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(SOURCE, 1).await;
    let dies = tokio::spawn(fixture.call("die", json!({"name": "a"})));
    fixture.wait_for_file("a.here").await;
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "b"}));
    let_go(&fixture, "a");
    assert!(matches!(
        dies.await.unwrap(),
        Err(ToolError::Unavailable { started: true, .. })
    ));
    next.text().await;
    assert_eq!(
        (order(&fixture), fixture.module.status().replaced),
        ("ab".into(), 1)
    );
}

#[tokio::test]
async fn started_call_ends_with_its_worker() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let next = Call::waiting(&fixture, "die", json!({"name": "b"}));
    let_go(&fixture, "a");
    held.await.unwrap().unwrap();
    fixture.wait_for_file("b.here").await;
    let_go(&fixture, "b");
    match next.future.await {
        Err(ToolError::Unavailable {
            message,
            started: true,
            ..
        }) => assert!(message.contains("exit status 3"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(order(&fixture), "ab", "it did not run twice");
}

#[tokio::test]
async fn long_line_is_written_by_its_own_call() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let arguments = json!({"name": "b", "text": "x".repeat(LARGE)});
    let next = Call::waiting(&fixture, "pass_by", arguments);
    let_go(&fixture, "a");
    let worker = held.await.unwrap().unwrap().as_text();
    assert!(!next.is_queued(), "its line is written in part");
    assert_eq!(next.text().await, format!("{worker} {LARGE}"));
}

#[tokio::test]
async fn call_with_half_a_line_runs_on_another_worker() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let arguments = json!({"name": "b", "text": "x".repeat(LARGE)});
    let next = Call::waiting(&fixture, "pass_by", arguments.clone());
    let_go(&fixture, "a");
    let worker = held.await.unwrap().unwrap().as_text();
    let process = Pid::from_raw(worker.parse().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    assert_ne!(next.text().await, format!("{worker} {LARGE}"));

    // Without its call, half a line is never completed.
    let held = tokio::spawn(fixture.call("hold", json!({"name": "c"})));
    fixture.wait_for_file("c.here").await;
    let dropped = Call::waiting(&fixture, "pass_by", arguments);
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "d"}));
    let_go(&fixture, "c");
    held.await.unwrap().unwrap();
    drop(dropped);
    next.text().await;
    assert_eq!(
        (order(&fixture), fixture.module.status().replaced),
        ("abcd".into(), 2)
    );
}

#[tokio::test]
async fn waiting_call_keeps_its_workers_over_a_new_listing() {
    let Some((fixture, held)) = busy().await else {
        return;
    };
    let next = Call::waiting(&fixture, "pass_by", json!({"name": "b"}));
    fixture
        .module
        .list(&|_| {})
        .await
        .map_err(|fault| fault.0)
        .unwrap();
    let_go(&fixture, "a");
    let worker = held.await.unwrap().unwrap().as_text();
    assert_eq!(next.text().await, format!("{worker} 0"));
}

/// Tasks on several threads: calls end while others are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_call_runs_only_if_it_counts_as_started() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(SOURCE, 1).await;
    let calls = (0..48u64).map(|number| {
        let arguments = json!({"name": format!("{number:02},")});
        let call = Call::new(&fixture, "pass_by", arguments, TIMEOUT);
        // Every other call is dropped early or late in the queue.
        let patience = match number % 2 {
            0 => TIMEOUT,
            _ => Duration::from_micros(100 * number),
        };
        tokio::spawn(async move {
            let ended = tokio::time::timeout(patience, call.future).await;
            let is_queued = call.invocation.report.attempt.lock().queued;
            (number, ended.map(Result::unwrap), is_queued)
        })
    });
    let outcomes = futures_util::future::join_all(Vec::from_iter(calls)).await;
    let ran = order(&fixture);
    for outcome in outcomes {
        let (number, ended, is_queued) = outcome.unwrap();
        let times = ran.matches(&format!("{number:02},")).count();
        match ended {
            Ok(_) => assert_eq!(times, 1, "{number} of {ran}"),
            Err(_) if is_queued => assert_eq!(times, 0, "{number} of {ran}"),
            Err(_) => assert!(times <= 1, "{number} of {ran}"),
        }
    }
}
