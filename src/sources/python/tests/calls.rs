//! Calls: arguments, results, errors and what their workers print.

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
    yield {'step': 2 ** 70}
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
    let context = context(&invocation, Effect::Read);
    let result = fixture
        .runner("steps")
        .call(object(json!({})), context)
        .await
        .unwrap();
    assert_eq!(result.as_text(), "the end");
    match listener.try_next() {
        Some(Event::Progress(progress)) => {
            assert_eq!(progress.data.get(), r#"{"step":"1180591620717411303424"}"#);
        }
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
