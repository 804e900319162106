//! Tests: backups while calls run.

use super::*;

#[tokio::test]
async fn backup_during_calls_is_consistent() {
    let (ledger, folder) = open().await;
    let interrupted = row("t", "a", now());
    ledger
        .reserve(interrupted.clone(), vec![charge(100_000, Per::Lifetime)])
        .await
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..8)
        .map(|_| {
            let (ledger, stop) = (ledger.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let row = row("t", "a", now());
                    ledger
                        .reserve(row.clone(), vec![charge(100_000, Per::Lifetime)])
                        .await
                        .unwrap();
                    ledger
                        .settle(ended_row(&row, State::Succeeded), vec![])
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    let mut counted = Vec::new();
    for name in ["one.db", "two.db"] {
        let last = row("t", "b", now());
        ledger
            .record(ended_row(&last, State::Succeeded))
            .await
            .unwrap();
        let file = folder.path().join(name);
        let bytes = ledger.backup(&file).await.unwrap();
        let found = std::fs::metadata(&file).unwrap();
        assert_eq!(
            (found.len(), found.permissions().mode() & 0o777),
            (bytes, 0o600)
        );

        let copy = super::super::super::open(&settings_for(&file), now())
            .await
            .unwrap();
        assert!(
            copy.get(last.id).await.unwrap().is_some(),
            "what was committed before is in it"
        );
        assert_eq!(
            copy.get(interrupted.id).await.unwrap().unwrap().row.state,
            State::Unknown
        );
        // A row and its unit are in one commit, so the copy has both or neither.
        let used = copy
            .units_used(&[charge(100_000, Per::Lifetime)], now())
            .await
            .unwrap()[0]
            .used;
        let usage = copy.usage_totals(Some("a")).await.unwrap();
        assert_eq!(usage[0].calls, used);
        copy.reserve(row("t", "a", now()), vec![charge(used + 1, Per::Lifetime)])
            .await
            .unwrap();
        assert!(
            copy.reserve(row("t", "a", now()), vec![charge(used + 1, Per::Lifetime)])
                .await
                .is_err()
        );
        copy.close().await;
        counted.push(used);
    }
    stop.store(true, Ordering::Relaxed);
    for task in busy {
        task.await.unwrap();
    }
    let used = ledger
        .units_used(&[charge(100_000, Per::Lifetime)], now())
        .await
        .unwrap()[0]
        .used;
    assert!(
        counted[0] < counted[1] && counted[1] <= used,
        "{counted:?} {used}: calls continued"
    );
}

#[tokio::test]
async fn backup_never_overwrites_a_file() {
    let (ledger, folder) = open().await;
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("mine"), "kept").unwrap();
    std::os::unix::fs::symlink(file("nowhere"), file("link")).unwrap();
    for (to, expected) in [
        ("mine", "exists already"),
        ("test.db", "exists already"),
        ("link", "exists already"),
        ("no/such/folder", "No such file"),
    ] {
        let error = ledger.backup(&file(to)).await.unwrap_err().to_string();
        assert!(
            error.starts_with("backup ") && error.contains(expected),
            "{to}: {error}"
        );
    }
    assert_eq!(std::fs::read(file("mine")).unwrap(), b"kept");
    // The relative path of a ledger opened for reading.
    let reader = open_read_only(&settings_for(&file("test.db")))
        .await
        .unwrap();
    reader.backup(&file("copy")).await.unwrap();
    assert!(open_read_only(&settings_for(&file("copy"))).await.is_ok());
}

#[tokio::test]
async fn dropped_backup_leaves_no_file() {
    let (ledger, folder) = open().await;
    for _ in 0..24 {
        let long = Row {
            arguments: format!("\"{}\"", "x".repeat(1 << 20)).into(),
            ..row("t", "a", now())
        };
        ledger
            .record(ended_row(&long, State::Succeeded))
            .await
            .unwrap();
    }
    let to = folder.path().join("copy");
    let copy_sizes = || {
        let files = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap());
        let copies = files.filter(|file| file.file_name().to_string_lossy().starts_with("copy"));
        copies
            .map(|file| file.metadata().map_or(0, |found| found.len()))
            .collect::<Vec<u64>>()
    };
    let mut backup = ledger.backup(&to);
    while copy_sizes().iter().sum::<u64>() < 1 << 20 {
        assert!(
            futures_util::poll!(&mut backup).is_pending(),
            "too fast to be given up"
        );
        tokio::task::yield_now().await;
    }
    drop(backup);
    assert_eq!(copy_sizes(), [0; 0]);
    ledger.backup(&to).await.unwrap();
    assert_eq!(copy_sizes().len(), 1);
}

#[tokio::test]
async fn backup_removes_files_of_a_killed_backup() {
    let (ledger, folder) = open().await;
    let file = |name: &str| folder.path().join(name);
    let id = |digit: char| digit.to_string().repeat(32);
    let (killed, running) = (
        format!("copy.{}.partial", id('1')),
        format!("copy.{}.partial", id('2')),
    );
    let others = [
        format!("copy.x{}.partial", id('1')),
        format!("other.{}.partial", id('3')),
        "copy.partial".to_owned(),
    ];
    for name in others
        .iter()
        .chain([&killed, &running, &format!("{killed}-journal")])
    {
        std::fs::write(file(name), "half").unwrap();
    }
    // Another backup holds the lock on its file as long as it runs.
    let lock = std::fs::File::open(file(&running)).unwrap();
    lock.lock().unwrap();
    ledger.backup(&file("copy")).await.unwrap();
    assert!(!file(&killed).exists() && !file(&format!("{killed}-journal")).exists());
    assert!(
        others
            .iter()
            .chain([&running])
            .all(|name| file(name).exists())
    );
    let copy = super::super::super::open(&settings_for(&file("copy")), now())
        .await
        .unwrap();
    copy.close().await;
}

#[tokio::test]
async fn concurrent_backups_do_not_interfere() {
    let (ledger, folder) = open().await;
    for _ in 0..5 {
        ledger
            .record(ended_row(
                &with_long_arguments(row("t", "a", now())),
                State::Succeeded,
            ))
            .await
            .unwrap();
    }
    let to = folder.path().join("copy");
    let backups = futures_util::future::join_all((0..4).map(|_| ledger.backup(&to))).await;
    assert_eq!(
        backups.iter().filter(|backups| backups.is_ok()).count(),
        1,
        "one has the name: {backups:?}"
    );
    let named = |name: std::ffi::OsString| name.to_string_lossy().starts_with("copy");
    let remaining = std::fs::read_dir(folder.path())
        .unwrap()
        .filter(|file| named(file.as_ref().unwrap().file_name()));
    assert_eq!(remaining.count(), 1);
    super::super::super::open(&settings_for(&to), now())
        .await
        .unwrap()
        .close()
        .await;
}
