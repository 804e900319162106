//! Server processes: starts, handshakes, ends and replacements.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dead_server_fails_calls_and_is_replaced() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let before = fixture.process().await;
    // Output of an earlier call explains nothing.
    fixture.text("shout", json!({"text": "all is well"})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let other = tokio::spawn(fixture.call("slow", json!({"seconds": 60, "mark": "x"})));
    let killed = fixture.call("die", json!({})).await.unwrap_err();
    for error in [killed, other.await.unwrap().unwrap_err()] {
        let ToolError::Unavailable {
            message,
            started: true,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        let expected = "the MCP server probe did not answer: its process ended with exit status 3; its last output: I cannot go on";
        assert_eq!(message, expected);
    }
    let after = fixture.process().await;
    assert_ne!(before, after);
    let status = fixture.server.status();
    assert_eq!(
        (status.is_up, status.workers, status.replaced),
        (true, 1, 1)
    );
    assert_eq!(
        (status.fault, status.fault_at),
        (None, None),
        "the current connection has no fault"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_demand_server_ends_with_the_call() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::on_demand(&[]).await;
    let mut processes = Vec::new();
    for _ in 0..2 {
        let (server, helper) = (
            fixture.process().await,
            pid(&fixture.text("helper", json!({})).await),
        );
        processes.extend([server, helper]);
    }
    assert_ne!(processes[0], processes[2]);
    wait_until("all of them end", || {
        processes.iter().all(|process| is_gone(*process))
    })
    .await;
    let Err(ToolError::Unavailable {
        message,
        started: true,
        ..
    }) = fixture.call("die", json!({})).await
    else {
        panic!()
    };
    assert!(
        message.contains("exit status 3; its last output: I cannot go on"),
        "{message}"
    );
    let status = fixture.server.status();
    assert_eq!((status.is_up, status.workers), (true, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn killed_server_restarts_without_its_old_children() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    for round in 1..=3 {
        let helper = pid(&fixture.text("helper", json!({})).await);
        kill_process(fixture.process().await, Signal::KILL).unwrap();
        // A call now could still use the old connection, and would end with it. So wait for the
        // replacement.
        wait_until("the restart", || fixture.server.status().replaced == round).await;
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
        wait_until("the helper ends", || is_gone(helper)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drop_ends_the_server_and_its_children() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["stubborn"]] {
        let fixture = Fixture::new(quirks).await;
        let processes = [
            fixture.process().await,
            pid(&fixture.text("helper", json!({})).await),
        ];
        drop(fixture);
        wait_until("both end", || {
            processes.iter().all(|process| is_gone(*process))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replacement_waits_for_end_of_process() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&["stubborn"]).await;
    let before = fixture.process().await;
    let slow = || tokio::spawn(fixture.call("slow", json!({"seconds": 60, "mark": "x"})));
    let others = [slow(), slow(), slow(), slow()];
    fixture.call("mum", json!({})).await.unwrap_err();
    assert_ne!(fixture.process().await, before);
    assert!(is_gone(before), "though it had running calls");
    for other in others {
        other.await.unwrap().unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_with_endless_lines_is_replaced() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let mut ends = vec![fixture.call("babble", json!({})).await.unwrap_err()];
    for _ in 0..2 {
        ends.push(
            fixture
                .call("echo", json!({"text": "x"}))
                .await
                .unwrap_err(),
        );
    }
    let Some(ToolError::Unavailable {
        message,
        started: true,
        ..
    }) = ends.pop()
    else {
        panic!("{ends:?}")
    };
    assert!(
        message.ends_with("it repeatedly wrote lines without an end"),
        "{message}"
    );
    assert_eq!(
        fixture.text("echo", json!({"text": "again"})).await,
        "again"
    );
    assert_eq!(fixture.server.status().replaced, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_gets_declared_and_passed_variables_only() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let seen: BTreeMap<String, String> =
        serde_json::from_str(&fixture.text("environment", json!({})).await).unwrap();
    assert_eq!(
        (seen["MARK"].as_str(), seen.contains_key("PATH")),
        ("declared", true)
    );
    let passed = test_env().variables;
    let foreign = seen
        .keys()
        .filter(|name| !passed.contains_key(std::ffi::OsStr::new(name)));
    let foreign: Vec<_> = foreign
        .filter(|name| !["MARK", "TOOLCRIB_MCP_SERVER", "LC_CTYPE"].contains(&name.as_str()))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[tokio::test]
async fn silent_server_is_replaced_after_cancellation() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["modern"]] {
        let fixture = Fixture::new(quirks).await;
        let process = fixture.process().await;
        let waits = tokio::spawn(fixture.call("slow", json!({"seconds": 600, "mark": "x"})));
        let hang = fixture.call("hang", json!({}));
        let hangs = fixture.file("hangs");
        tokio::select! {
            ended = hang => panic!("{ended:?}"),
            () = wait_until("it hangs", || hangs.exists()) => {}
        }
        let waits = with_fast_clock(50, waits).await;
        let Err(ToolError::Unavailable {
            message,
            started: true,
            ..
        }) = waits.unwrap()
        else {
            panic!()
        };
        assert!(
            message.ends_with("it did not respond after a call was cancelled"),
            "{message}"
        );
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
        wait_until("the old one ends", || is_gone(process)).await;
        assert_eq!(fixture.server.status().replaced, 1);
    }
}

#[tokio::test]
async fn server_that_never_reads_is_replaced() {
    if is_python_missing() {
        return;
    }
    for fixture in [Fixture::new(&[]).await, Fixture::on_demand(&[]).await] {
        let before = resident_bytes();
        // Time runs slowly enough for the server to send more requests than memory could hold.
        let Err(ToolError::Unavailable {
            message,
            started: true,
            ..
        }) = with_fast_clock(4, fixture.call("pester", json!({}))).await
        else {
            panic!()
        };
        assert!(
            message.ends_with("it sent requests and read no responses"),
            "{message}"
        );
        assert!(
            resident_bytes() < before + (20 << 20),
            "{before} {}",
            resident_bytes()
        );
        assert_eq!(
            fixture.text("echo", json!({"text": "again"})).await,
            "again"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn start_failures_name_the_reason() {
    if is_python_missing() {
        return;
    }
    let fault = async |quirks: &[&str], change: fn(&mut ServerSettings)| {
        Fixture::try_new(quirks, change).await.err().unwrap()
    };
    assert_eq!(
        fault(&["stillborn"], |_| {}).await,
        "its process ended with exit status 4; its last output: no licence found"
    );
    assert_eq!(
        fault(&["endless"], |_| {}).await,
        "its list of tools has no end: a page refers to an earlier page"
    );
    assert_eq!(
        fault(&["crowd"], |_| {}).await,
        "it lists more than 1000 tools"
    );
    for quirk in ["wordy", "windy"] {
        assert_eq!(
            fault(&[quirk], |_| {}).await,
            "the definitions of its tools are larger than 16.0 MiB",
            "{quirk}"
        );
    }
    let fault = fault(&[], |settings| {
        if let Transport::Command { argv, .. } = &mut settings.transport {
            argv[0] = "no-such-program".into();
        }
    });
    assert_eq!(
        fault.await,
        "there is no program `no-such-program` in the PATH"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn second_start_is_attempted_only_once() {
    if is_python_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(settings(folder.path(), &["stillborn"]), &test_env());
    for starts in ["xx", "xxx", "xxxx", "xxxxx"] {
        assert!(server.list(&|_| {}).await.is_err());
        assert_eq!(
            std::fs::read_to_string(folder.path().join("starts")).unwrap(),
            starts
        );
    }
    std::fs::write(
        folder.path().join("server.py"),
        SCRIPT.replace("\"stillborn\" in", "\"unborn\" in"),
    )
    .unwrap();
    assert!(server.list(&|_| {}).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_fail_while_the_server_cannot_restart() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    std::fs::write(fixture.file("server.py"), "import sys; sys.exit('broken')").unwrap();
    fixture.call("die", json!({})).await.unwrap_err();
    wait_until("it is unavailable", || !fixture.server.status().is_up).await;
    assert!(!fixture.runner("echo").is_available());
    let error = fixture
        .call("echo", json!({"text": "x"}))
        .await
        .unwrap_err();
    let ToolError::Unavailable {
        message,
        started: false,
        retry_after: Some(_),
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        message,
        "the MCP server probe is unavailable: its process ended with exit status 1; its last output: broken"
    );
    std::fs::write(fixture.file("server.py"), SCRIPT).unwrap();
    wait_until("it is up again", || fixture.server.status().is_up).await;
    assert_eq!(fixture.text("echo", json!({"text": "x"})).await, "x");
}

#[tokio::test]
async fn slow_and_silent_handshakes_succeed() {
    if is_python_missing() {
        return;
    }
    // The SDK waits ten seconds for an answer to `server/discover`; with the fast clock they pass
    // in a tenth of a second.
    let patient = |settings: &mut ServerSettings| settings.start_timeout = 100 * TIMEOUT;
    let quirks = [
        &["late"][..],
        &["late", "modern"],
        &["late", "modern", "strict"],
        &["mute"],
    ];
    let fixtures =
        futures_util::future::join_all(quirks.map(|quirks| Fixture::try_new(quirks, patient)));
    let on_demand = Fixture::try_new(&["mute"], |settings| {
        patient(settings);
        settings.mode = Mode::OnDemand;
    });
    let (fixtures, fixture) =
        with_fast_clock(100, async { tokio::join!(fixtures, on_demand) }).await;
    for fixture in fixtures {
        assert_eq!(
            fixture.unwrap().text("echo", json!({"text": "here"})).await,
            "here"
        );
    }
    let began = Instant::now();
    fixture
        .unwrap()
        .text("echo", json!({"text": "at once"}))
        .await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hundred_kills_leak_nothing() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let mut last = fixture.process().await;
    let (tasks, files) = (alive(), open_files());
    let mut dead = Vec::new();
    for round in 1..=100 {
        let helper = pid(&fixture.text("helper", json!({})).await);
        kill_process(last, Signal::KILL).unwrap();
        wait_until("the restart", || fixture.server.status().replaced == round).await;
        dead.extend([last, helper]);
        last = fixture.process().await;
    }
    wait_until("all killed processes are gone", || {
        dead.iter().all(|process| is_gone(*process))
    })
    .await;
    wait_until("no task is left", || alive() <= tasks).await;
    // Other tests of this process also have files open. A leak in a hundred rounds would still be
    // visible.
    wait_until("no file is left open", || open_files() < files + 100).await;
    assert_eq!(fixture.server.status().workers, 1);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
