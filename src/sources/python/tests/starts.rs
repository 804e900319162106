//! Starts: what a module may be, and what is said of one that cannot be loaded.

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
        settings.program = "python2.99".into();
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
    let module = module(settings(&folder, source, &mark));
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
    let module = module(settings(&folder, "1 / 0", &mark));
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
    let module = Arc::new(module(settings(&folder, source, &mark)));
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
