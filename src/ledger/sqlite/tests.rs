//! Tests of this engine's guarantees beyond the contract: its file, restarts, and other processes on the same file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{Timestamp, ToSpan};

use super::super::contract::sqlite::{open, settings};
use super::super::contract::{charge, ended, now, record_at, row};
use super::super::*;
use crate::call::{Effect, InvocationId, Per};

#[path = "commit_tests.rs"]
mod commits;
#[path = "start_tests.rs"]
mod starting;

#[tokio::test]
async fn interrupted_calls_are_unknown_and_stay_charged_after_a_restart() {
    let (ledger, folder) = open().await;
    let interrupted = row("t", "a", now());
    ledger.reserve(interrupted.clone(), vec![charge(3, Per::Lifetime)]).await.unwrap();
    ledger.close().await;
    drop(ledger);
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let ledger = super::super::open(&settings, now()).await.unwrap();
    assert_eq!(ledger.get(interrupted.id).await.unwrap().unwrap().row.state, State::Unknown);
    assert_eq!(ledger.used(&[charge(3, Per::Lifetime)], now()).await.unwrap()[0].used, 1);
    let usage = ledger.usage(None).await.unwrap();
    assert_eq!((usage[0].calls, usage[0].failed, usage[0].succeeded), (1, 1, 0), "totals count them as failed");
}

#[tokio::test]
async fn a_second_process_leaves_running_calls_alone() {
    let (first, folder) = open().await;
    let running = row("t", "a", now());
    first.reserve(running.clone(), vec![]).await.unwrap();
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let second = super::super::open(&settings, now()).await.unwrap();
    assert_eq!(second.get(running.id).await.unwrap().unwrap().row.state, State::Reserved);
    first.settle(ended(&running, State::Succeeded), vec![]).await.unwrap();
}

#[tokio::test]
async fn two_processes_on_one_file_share_a_limit_to_the_unit() {
    let (first, folder) = open().await;
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let second = super::super::open(&settings, now()).await.unwrap();
    let mut admitted = 0;
    for turn in 0..30 {
        let ledger = if turn % 3 == 0 { &first } else { &second };
        let made = ledger.reserve(row("t", "a", now()), vec![charge(20, Per::Day)]).await;
        if let Ok(made) = made {
            admitted += 1;
            assert_eq!(made.charged[0].used, admitted);
        }
    }
    assert_eq!(admitted, 20);
}

#[tokio::test]
async fn counters_are_what_the_rows_say_whatever_happens() {
    let (ledger, folder) = open().await;
    let limits = || vec![charge(100, Per::Minute), charge(1000, Per::Lifetime), charge(50, Per::Run)];
    let mut made = Vec::new();
    for call in 0..40 {
        // The calls cross the boundary of a minute, with changing limits.
        let at = now() + call.seconds();
        let charges = if call % 7 == 0 { vec![] } else { limits()[..1 + call as usize % 3].to_vec() };
        let row = row("t", "a", at);
        made.push((row.clone(), ledger.reserve(row, charges).await.unwrap().charged));
    }
    for (at, (row, charged)) in made.into_iter().enumerate() {
        match at % 4 {
            0 => ledger.settle(ended(&row, State::Cancelled), charged).await.unwrap(),
            1 => {}
            _ => ledger.settle(ended(&row, State::Succeeded), vec![]).await.unwrap(),
        }
    }
    record_at(&*ledger, now()).await;
    assert_eq!(ledger.drift().await.unwrap(), 0);
    ledger.reset("t", None).await.unwrap();
    ledger.reserve(row("t", "a", now()), limits()).await.unwrap();
    assert_eq!(ledger.drift().await.unwrap(), 0);
    for _ in 0..30 {
        let row = row("t", "a", now());
        ledger.reserve(row.clone(), limits()).await.unwrap();
        ledger.settle(ended(&row, State::Succeeded), vec![]).await.unwrap();
    }
    while ledger.prune(Timestamp::now() + 1.hour(), now(), 7).await.unwrap() > 0 {}
    assert_eq!(ledger.drift().await.unwrap(), 0);
    ledger.reserve(row("t", "a", now()), limits()).await.unwrap();
    ledger.close().await;
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let ledger = super::super::open(&settings, now()).await.unwrap();
    ledger.reserve(row("t", "a", now()), limits()).await.unwrap();
    assert_eq!(ledger.drift().await.unwrap(), 0);

    let file = format!("sqlite://{}", folder.path().join("test.db").display());
    let mut other = <sqlx::SqliteConnection as sqlx::Connection>::connect(&file).await.unwrap();
    sqlx::query("update quota set used = used + 2 where per = 'lifetime'").execute(&mut other).await.unwrap();
    assert_eq!(ledger.drift().await.unwrap(), 2, "somebody's hand was in the file");
}

#[tokio::test]
async fn a_file_that_is_taken_away_is_noticed_before_anything_runs() {
    let (ledger, folder) = open().await;
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    std::fs::remove_file(folder.path().join("test.db")).unwrap();
    let Err(ReserveError::Ledger(error)) = ledger.reserve(row("t", "a", now()), vec![]).await else {
        panic!("reserved in a file that is gone")
    };
    assert!(error.to_string().contains("removed"), "{error}");
    assert!(ledger.switch(Switch { tool: "t".into(), enabled: false }).await.is_err());
    assert!(ledger.health().is_err());
}

fn at(file: &std::path::Path) -> Settings {
    let url = format!("sqlite://{}", file.display());
    Settings { url, ..settings() }
}

#[tokio::test]
async fn a_backup_taken_while_calls_go_on_is_one_moment_of_the_ledger() {
    let (ledger, folder) = open().await;
    let interrupted = row("t", "a", now());
    ledger.reserve(interrupted.clone(), vec![charge(100_000, Per::Lifetime)]).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..8)
        .map(|_| {
            let (ledger, stop) = (ledger.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let row = row("t", "a", now());
                    ledger.reserve(row.clone(), vec![charge(100_000, Per::Lifetime)]).await.unwrap();
                    ledger.settle(ended(&row, State::Succeeded), vec![]).await.unwrap();
                }
            })
        })
        .collect();
    let mut counted = Vec::new();
    for name in ["one.db", "two.db"] {
        let last = row("t", "b", now());
        ledger.record(ended(&last, State::Succeeded)).await.unwrap();
        let file = folder.path().join(name);
        let bytes = ledger.backup(&file).await.unwrap();
        let found = std::fs::metadata(&file).unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (bytes, 0o600));

        let copy = super::super::open(&at(&file), now()).await.unwrap();
        assert!(copy.get(last.id).await.unwrap().is_some(), "what was committed before is in it");
        assert_eq!(copy.get(interrupted.id).await.unwrap().unwrap().row.state, State::Unknown);
        // A row and its unit are in one commit, so the copy has both or neither.
        let used = copy.used(&[charge(100_000, Per::Lifetime)], now()).await.unwrap()[0].used;
        let usage = copy.usage(Some("a")).await.unwrap();
        assert_eq!(usage[0].calls, used);
        copy.reserve(row("t", "a", now()), vec![charge(used + 1, Per::Lifetime)]).await.unwrap();
        assert!(copy.reserve(row("t", "a", now()), vec![charge(used + 1, Per::Lifetime)]).await.is_err());
        copy.close().await;
        counted.push(used);
    }
    stop.store(true, Ordering::Relaxed);
    for task in busy {
        task.await.unwrap();
    }
    let used = ledger.used(&[charge(100_000, Per::Lifetime)], now()).await.unwrap()[0].used;
    assert!(counted[0] < counted[1] && counted[1] <= used, "{counted:?} {used}: calls went on");
}

#[tokio::test]
async fn a_backup_overwrites_nothing_and_says_what_is_in_its_way() {
    let (ledger, folder) = open().await;
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("mine"), "kept").unwrap();
    std::os::unix::fs::symlink(file("nowhere"), file("link")).unwrap();
    for (to, says) in [
        ("mine", "there already"),
        ("test.db", "there already"),
        ("link", "there already"),
        ("no/such/folder", "No such file"),
    ] {
        let said = ledger.backup(&file(to)).await.unwrap_err().to_string();
        assert!(said.starts_with("backup ") && said.contains(says), "{to}: {said}");
    }
    assert_eq!(std::fs::read(file("mine")).unwrap(), b"kept");
    // The relative path of a ledger opened for reading.
    let reader = open_to_read(&at(&file("test.db"))).await.unwrap();
    reader.backup(&file("copy")).await.unwrap();
    assert!(open_to_read(&at(&file("copy"))).await.is_ok());
}

#[tokio::test]
async fn a_backup_that_is_given_up_leaves_nothing_behind() {
    let (ledger, folder) = open().await;
    for _ in 0..24 {
        let long = Row { arguments: format!("\"{}\"", "x".repeat(1 << 20)).into(), ..row("t", "a", now()) };
        ledger.record(ended(&long, State::Succeeded)).await.unwrap();
    }
    let to = folder.path().join("copy");
    let beside = || {
        let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap());
        let copies = files.filter(|file| file.file_name().to_string_lossy().starts_with("copy"));
        copies.map(|file| file.metadata().map_or(0, |found| found.len())).collect::<Vec<u64>>()
    };
    let mut backup = ledger.backup(&to);
    while beside().iter().sum::<u64>() < 1 << 20 {
        assert!(futures_util::poll!(&mut backup).is_pending(), "too fast to be given up");
        tokio::task::yield_now().await;
    }
    drop(backup);
    assert_eq!(beside(), [0; 0]);
    ledger.backup(&to).await.unwrap();
    assert_eq!(beside().len(), 1);
}

#[tokio::test]
async fn a_newer_ledger_is_refused_by_readers_too() {
    let (ledger, folder) = open().await;
    ledger.close().await;
    let file = format!("sqlite://{}", folder.path().join("test.db").display());
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&file).await.unwrap();
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (99, 'later', true, x'00', 0)";
    sqlx::query(newer).execute(&mut connection).await.unwrap();
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    for said in [
        super::super::open(&settings, now()).await.err().unwrap().to_string(),
        open_to_read(&settings).await.err().unwrap().to_string(),
    ] {
        assert!(said.contains("newer Toolcrib (schema 99"), "{said}");
    }
}

#[tokio::test]
async fn rows_of_before_parents_are_as_sound_as_ever() {
    let (ledger, folder) = open().await;
    let old = ended(&row("t", "a", now()), State::Succeeded);
    ledger.record(old.clone()).await.unwrap();
    ledger.close().await;
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let file = format!("sqlite://{}", folder.path().join("test.db").display());
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&file).await.unwrap();
    let undo = "drop index invocation_parent; alter table invocation drop column parent; \
                delete from _sqlx_migrations where version = 6";
    sqlx::raw_sql(undo).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    let found = ledger.get(old.id).await.unwrap().unwrap().row;
    assert_eq!((found.state, found.parent), (State::Succeeded, None));
    ledger.close().await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.db");
    let noise: Vec<u8> = (0..8192u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
    std::fs::write(&file, &noise).unwrap();
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let said = super::super::open(&settings, now()).await.err().unwrap().to_string();
    assert!(said.contains("test.db") && said.contains("not a SQLite database"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), noise);
    for (url, says) in [("mysql://x", "sqlite://FILE"), ("postgres://u:secret@h/d", "not built yet")] {
        let settings = Settings { url: url.into(), ..settings.clone() };
        let said = super::super::open(&settings, now()).await.err().unwrap().to_string();
        assert!(said.contains(says) && !said.contains("secret"), "{said}");
    }
}

#[tokio::test]
async fn after_a_failure_that_leaves_the_file_in_doubt_nothing_is_written_any_more() {
    let (ledger, folder) = open().await;
    let running = row("t", "a", now());
    ledger.reserve(running.clone(), vec![charge(9, Per::Lifetime)]).await.unwrap();
    assert!(futures_util::poll!(ledger.failed()).is_pending());

    let file = folder.path().join("test.db");
    let mut other =
        <sqlx::SqliteConnection as sqlx::Connection>::connect(&format!("sqlite://{}", file.display())).await.unwrap();
    let damage = "pragma writable_schema = on; update sqlite_schema set sql = 'no sql' where name = 'quota'; \
                  pragma schema_version = 99";
    sqlx::raw_sql(damage).execute(&mut other).await.unwrap();

    let waiting = ledger.reserve(row("t", "a", now()), vec![]);
    assert!(matches!(waiting.await, Err(ReserveError::Ledger(Error::Stopped(_)))));
    let Error::Stopped(reason) = ledger.failed().await else { panic!("it has stopped") };
    assert!(reason.contains("damaged"), "{reason}");
    assert!(ledger.health().is_err_and(|said| said.contains("stopped")));
    sqlx::raw_sql("pragma writable_schema = reset").execute(&mut other).await.unwrap();
    // The writer makes no further attempt, whatever operation is sent.
    let settled = ledger.settle(ended(&running, State::Succeeded), vec![]).await;
    assert!(matches!(settled, Err(Error::Stopped(_))), "{settled:?}");
    let switched = ledger.switch(Switch { tool: "t".into(), enabled: false }).await;
    assert!(matches!(switched, Err(Error::Stopped(_))), "{switched:?}");
    ledger.close().await;
    assert!(std::fs::metadata(folder.path().join("test.db-wal")).unwrap().len() > 0, "left to the next start");
}

/// The files of a ledger whose process was killed. It recorded `calls` calls, each in a commit of its own, and its log
/// was not copied into the database.
async fn killed_after(calls: usize) -> (tempfile::TempDir, Vec<InvocationId>) {
    let (ledger, folder) = open().await;
    let copy = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for _ in 0..calls {
        let row = row("t", "a", now());
        ledger.record(ended(&row, State::Succeeded)).await.unwrap();
        ids.push(row.id);
    }
    for name in ["test.db", "test.db-wal", "test.db.head"] {
        std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    (copy, ids)
}

fn all_files(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let made =
        |name: &std::ffi::OsStr| name.to_string_lossy().ends_with("-shm") || name.to_string_lossy().ends_with(".lock");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let mut files: Vec<_> = files
        .filter(|file| !made(&file.file_name()))
        .map(|file| (file.file_name(), std::fs::read(file.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn commits_that_are_gone_from_the_log_are_missed_and_the_files_left_as_they_are() {
    let (folder, ids) = killed_after(10).await;
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let wal = folder.path().join("test.db-wal");
    let mut bytes = std::fs::read(&wal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&wal, bytes).unwrap();
    let before = all_files(folder.path());
    for _ in 0..2 {
        let Err(error) = super::super::open(&settings, now()).await else { panic!("a silent loss") };
        let Error::Missing { commits, .. } = error else { panic!("{error}") };
        assert!((1..10).contains(&commits), "{error}");
        assert!(error.to_string().contains("--accept-loss"), "{error}");
        assert_eq!(all_files(folder.path()), before);
    }
    // Opening for reading is permitted.
    assert!(open_to_read(&settings).await.is_ok());

    let accepting = Settings { accept_loss: true, ..settings.clone() };
    let ledger = super::super::open(&accepting, now()).await.unwrap();
    assert!(ledger.get(ids[0]).await.unwrap().is_some() && ledger.get(ids[9]).await.unwrap().is_none());
    record_at(&*ledger, now()).await;
    ledger.close().await;
    super::super::open(&settings, now()).await.unwrap();
}

#[tokio::test]
async fn everything_acknowledged_is_counted_and_what_is_whole_is_opened() {
    let (folder, ids) = killed_after(3).await;
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let head = || std::fs::read_to_string(folder.path().join("test.db.head")).unwrap();
    let count = || head().lines().find_map(|line| line.strip_prefix("commits ")?.parse::<u64>().ok()).unwrap();
    let first = count();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    for id in ids {
        assert!(ledger.get(id).await.unwrap().is_some());
    }
    assert_eq!(count(), first);
    let mut before = first;
    let mut grew = |what: &str| {
        let now = count();
        assert!(now > std::mem::replace(&mut before, now), "{what} is acknowledged and not counted");
    };
    let row = row("t", "a", now());
    ledger.reserve(row.clone(), vec![]).await.unwrap();
    grew("reserve");
    ledger.settle(ended(&row, State::Succeeded), vec![]).await.unwrap();
    grew("settle");
    ledger.reset("t", None).await.unwrap();
    grew("reset");
    ledger.purge(None).await.unwrap();
    grew("purge");
    ledger.switch(Switch { tool: "t".into(), enabled: false }).await.unwrap();
    grew("switch");
    let tool = Registered { name: "t".into(), definition: "{}".into(), by: "a".into(), at: now() };
    ledger.register(tool).await.unwrap();
    grew("register");
    assert!(ledger.unregister("t").await.unwrap());
    grew("unregister");
    ledger.prune(now(), now(), 10).await.unwrap();
    grew("prune");
    // Another process continues to count. The head file may lag behind, and the ledger still opens.
    let second = super::super::open(&settings, now()).await.unwrap();
    record_at(&*second, now()).await;
    record_at(&*ledger, now()).await;
    grew("another process");
    let mode = std::fs::metadata(folder.path().join("test.db.head")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn files_that_people_have_moved_are_opened() {
    let (folder, _) = killed_after(3).await;
    let file = |name: &str| folder.path().join(name);
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    // No head file: it was removed, or an older release wrote the ledger.
    std::fs::remove_file(file("test.db.head")).unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    ledger.backup(&file("copy.db")).await.unwrap();
    record_at(&*ledger, now()).await;
    ledger.close().await;
    drop(ledger);
    // A backup in the same location is another ledger, even though its count is lower.
    std::fs::rename(file("copy.db"), file("test.db")).unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    record_at(&*ledger, now()).await;
    ledger.close().await;
    drop(ledger);
    // A damaged head file.
    std::fs::write(file("test.db.head"), "noise").unwrap();
    super::super::open(&settings, now()).await.unwrap().close().await;
    // The database was removed by hand, or emptied.
    std::fs::remove_file(file("test.db")).unwrap();
    super::super::open(&settings, now()).await.unwrap().close().await;
    std::fs::write(file("test.db"), "").unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    assert!(ledger.usage(None).await.unwrap().is_empty());
    ledger.close().await;
    // A folder in the location of the head file: the ledger works without one.
    std::fs::remove_file(file("test.db.head")).unwrap();
    std::fs::create_dir(file("test.db.head")).unwrap();
    record_at(&*super::super::open(&settings, now()).await.unwrap(), now()).await;
}

#[tokio::test]
async fn the_log_is_copied_into_the_database_before_it_grows_long() {
    let (ledger, folder) = open().await;
    let long = format!("\"{}\"", "x".repeat(100_000));
    for _ in 0..200 {
        let row = Row { arguments: long.as_str().into(), ..row("t", "a", now()) };
        ledger.record(ended(&row, State::Succeeded)).await.unwrap();
    }
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    assert!(size("test.db-wal") < 8 << 20, "{} of 20 MB written", size("test.db-wal"));
    assert!(size("test.db") > 12 << 20, "{}", size("test.db"));
    ledger.close().await;
    assert!(!folder.path().join("test.db-wal").exists());
}

#[tokio::test]
async fn a_damaged_row_is_shown_to_nobody() {
    let (ledger, folder) = open().await;
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let mut other = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.unwrap();
    let key = |key: &str| Row {
        idempotency_key: Some(key.into()),
        fingerprint: Some("f".into()),
        key_until: Some(Row::FOREVER),
        parent: Some(InvocationId::new()),
        ..row("t", "a", now())
    };
    for damage in [
        "id = randomblob(16)",
        "tool = 'u'",
        "run_id = 'r2'",
        "run_id = null",
        "effect = 'read'",
        "cache = 'hit'",
        "origin = randomblob(16)",
        "idempotency_key = 'k=2'",
        "fingerprint = 'g'",
        "parent = randomblob(16)",
        "parent = null",
        "result = null",
        "count = 2",
        "result = replace(result, 'false', 'fblse')",
        "arguments = '{}'",
        "state = 'failed'",
        "state = 'lucceeded'",
        "duration_us = 1501",
        "started_at = started_at + 1",
        "tool_use_id = ''",
        "meta = null",
        "caller = 'b'",
        "attempts = 3",
        "kind = 'internal'",
        "result = cast(x'c328' as text)",
        "sum = sum + (1 << 40)",
    ] {
        let (whole, broken) = (key("whole"), key(damage));
        for row in [&whole, &broken] {
            ledger.reserve(row.clone(), vec![]).await.unwrap();
            let end = Row { key_until: Some(now() + 1.hour()), ..(*ended(row, State::Succeeded)).clone() };
            let end = if damage.starts_with("origin") { Row { origin: Some(whole.id), ..end } } else { end };
            ledger.settle(Arc::new(end), vec![]).await.unwrap();
        }
        let sql = format!(
            "pragma ignore_check_constraints = on; drop trigger if exists invocation_ends_once; \
             update invocation set {damage} where idempotency_key like '%=%'"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut other).await.unwrap();
        assert!(ledger.get(whole.id).await.unwrap().is_some());
        if damage.starts_with("id =") {
            // The row can be found only by its key.
            assert!(ledger.get(broken.id).await.unwrap().is_none());
        } else {
            let read = ledger.get(broken.id).await;
            assert!(matches!(read, Err(Error::Damaged(id)) if id == broken.id), "{damage}: {read:?}");
        }
        if !["caller", "tool =", "idempotency_key"].iter().any(|found_by| damage.starts_with(found_by)) {
            let read = ledger.claimed("a", "t", damage, now()).await;
            assert!(matches!(read, Err(Error::Damaged(_))), "{damage}: {read:?}");
        }
        sqlx::raw_sql("delete from invocation").execute(&mut other).await.unwrap();
    }
    let stored = StoredResult {
        key: [7; 32],
        tool: "t".into(),
        origin: InvocationId::new(),
        result: "{\"content\":[]}".into(),
        stored_at: now(),
        expires_at: now() + 1.hour(),
    };
    ledger.store(stored).await.unwrap();
    ledger.flush().await.unwrap();
    assert!(ledger.stored(&[7; 32], now()).await.unwrap().is_some());
    sqlx::raw_sql("update stored_result set result = '{\"content\":{}}'").execute(&mut other).await.unwrap();
    assert!(ledger.stored(&[7; 32], now()).await.unwrap().is_none(), "a miss, no wrong answer");
}

/// A ledger with a bound of 16 MiB.
async fn open_bounded() -> (Arc<dyn Ledger>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { base: folder.path().to_owned(), max_bytes: Some(SMALLEST), ..settings() };
    (super::super::open(&settings, now()).await.unwrap(), folder)
}

fn long(row: Row) -> Row {
    Row { arguments: format!("\"{}\"", "x".repeat(200_000)).into(), ..row }
}

#[tokio::test]
async fn a_ledger_stays_below_its_bound() {
    let (ledger, folder) = open_bounded().await;
    let tool = Registered { name: "r".into(), definition: "{}".into(), by: "a".into(), at: now() };
    ledger.register(tool.clone()).await.unwrap();
    let mut promised = Vec::new();
    for _ in 0..10 {
        let row = long(row("w", "a", now()));
        ledger.reserve(row.clone(), vec![charge(99, Per::Lifetime)]).await.unwrap();
        ledger.settle(ended(&row, State::Succeeded), vec![]).await.unwrap();
        promised.push(row.id);
    }
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    let (mut first, mut last) = (None, None);
    for call in 0..400 {
        let state = if call % 4 == 0 { State::Refused } else { State::Succeeded };
        let row = long(Row { effect: Effect::Read, ..row("t", "a", now() + i64::from(call).seconds()) });
        ledger.record(ended(&row, state)).await.unwrap();
        first = first.or(Some(row.id));
        last = Some(row.id);
        assert!(size("test.db") <= SMALLEST, "{} after {call}", size("test.db"));
        assert!(size("test.db-wal") <= 12 << 20, "{} after {call}", size("test.db-wal"));
    }
    assert!(ledger.health().is_ok());
    assert!(ledger.get(first.unwrap()).await.unwrap().is_none(), "the oldest went");
    assert!(ledger.get(last.unwrap()).await.unwrap().is_some(), "the newest is there");
    for id in promised {
        assert!(ledger.get(id).await.unwrap().is_some(), "what was promised stays");
    }
    let rows = ledger.list(&Query { tool: Some("t".into()), limit: 500, ..Query::default() }).await.unwrap();
    assert!(rows.len() > 20, "{} rows: most of the room is used", rows.len());
    let usage = ledger.usage(None).await.unwrap();
    let totals: Vec<_> = usage.iter().map(|of| (of.calls, of.succeeded, of.refused)).collect();
    assert_eq!(totals, [(400, 300, 100), (10, 10, 0)]);
    assert_eq!(ledger.registered().await.unwrap(), [tool]);
    assert_eq!(ledger.drift().await.unwrap(), 0);
}

#[tokio::test]
async fn a_ledger_of_promises_refuses_until_there_is_room() {
    let (ledger, folder) = open_bounded().await;
    let at = |call: i64| long(row("w", "a", now() + call.seconds()));
    let running = at(0);
    ledger.reserve(running.clone(), vec![]).await.unwrap();
    let mut refused = None;
    for call in 1..200 {
        let row = at(call);
        match ledger.reserve(row.clone(), vec![]).await {
            Ok(_) => ledger.settle(ended(&row, State::Succeeded), vec![]).await.unwrap(),
            Err(error) => {
                refused = Some(error.to_string());
                break;
            }
        }
    }
    let refused = refused.expect("nothing may be deleted, and there is a bound");
    assert!(refused.contains("ledger.max_bytes") && refused.contains("ledger.retention"), "{refused}");
    assert!(ledger.health().is_err_and(|said| said.contains("ledger.max_bytes")));
    assert!(ledger.trim(now(), 100).await.unwrap() == 0);
    // Running calls still have room to end. Their ends do not make room for new calls.
    ledger.settle(ended(&running, State::Succeeded), vec![]).await.unwrap();
    assert!(ledger.reserve(at(300), vec![]).await.is_err());
    assert!(std::fs::metadata(folder.path().join("test.db")).unwrap().len() <= SMALLEST);
    // Retention makes room.
    let later = Timestamp::now() + 1.hour();
    while ledger.prune(later, later, 20).await.unwrap() > 0 {}
    for _ in 0..200 {
        if ledger.health().is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    ledger.reserve(at(301), vec![]).await.unwrap();
}

#[tokio::test]
async fn a_ledger_over_its_bound_is_opened() {
    let (ledger, folder) = open().await;
    for call in 0..150 {
        let row = long(Row { effect: Effect::Read, ..row("t", "a", now() + i64::from(call).seconds()) });
        ledger.record(ended(&row, State::Succeeded)).await.unwrap();
    }
    ledger.close().await;
    drop(ledger);
    let size = || std::fs::metadata(folder.path().join("test.db")).unwrap().len();
    let before = size();
    assert!(before > SMALLEST);
    let settings = Settings { base: folder.path().to_owned(), max_bytes: Some(SMALLEST), ..settings() };
    let ledger = super::super::open(&settings, now()).await.unwrap();
    for call in 0..300 {
        let row = long(Row { effect: Effect::Read, ..row("t", "a", now() + i64::from(call).seconds()) });
        ledger.record(ended(&row, State::Succeeded)).await.unwrap();
        assert!(size() <= before, "{} grew to {}", before, size());
    }
    assert!(ledger.health().is_ok());
    assert_eq!(ledger.usage(None).await.unwrap()[0].calls, 450);
}

#[tokio::test]
async fn a_killed_backup_is_tidied_up_by_the_next() {
    let (ledger, folder) = open().await;
    let file = |name: &str| folder.path().join(name);
    let id = |digit: char| digit.to_string().repeat(32);
    let (dead, alive) = (format!("copy.{}.partial", id('1')), format!("copy.{}.partial", id('2')));
    let others =
        [format!("copy.x{}.partial", id('1')), format!("other.{}.partial", id('3')), "copy.partial".to_owned()];
    for name in others.iter().chain([&dead, &alive, &format!("{dead}-journal")]) {
        std::fs::write(file(name), "half").unwrap();
    }
    // Another backup holds the lock on its file as long as it runs.
    let held = std::fs::File::open(file(&alive)).unwrap();
    held.lock().unwrap();
    ledger.backup(&file("copy")).await.unwrap();
    assert!(!file(&dead).exists() && !file(&format!("{dead}-journal")).exists());
    assert!(others.iter().chain([&alive]).all(|name| file(name).exists()));
    let copy = super::super::open(&at(&file("copy")), now()).await.unwrap();
    copy.close().await;
}

#[tokio::test]
async fn backups_at_once_leave_each_other_alone() {
    let (ledger, folder) = open().await;
    for _ in 0..5 {
        ledger.record(ended(&long(row("t", "a", now())), State::Succeeded)).await.unwrap();
    }
    let to = folder.path().join("copy");
    let made = futures_util::future::join_all((0..4).map(|_| ledger.backup(&to))).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "one has the name: {made:?}");
    let named = |name: std::ffi::OsString| name.to_string_lossy().starts_with("copy");
    let left = std::fs::read_dir(folder.path()).unwrap().filter(|file| named(file.as_ref().unwrap().file_name()));
    assert_eq!(left.count(), 1);
    super::super::open(&at(&to), now()).await.unwrap().close().await;
}
