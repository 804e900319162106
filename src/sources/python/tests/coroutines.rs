//! Coroutines, which share one worker.

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
        tokio::spawn(fixture.call_with("rest_until", json!({"file": "go", "name": name}), effect))
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
    let context = context(&invocation, Effect::Read);
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
