//! Tests of this engine's guarantees beyond the contract: its file, restarts, and other processes
//! on the same file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{Timestamp, ToSpan};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::super::contract::sqlite::{open, settings};
use super::super::contract::{charge, ended_row, limited_read, now, record_call_at, row};
use super::super::*;
use super::processes;
use crate::call::{Charge, Effect, InvocationId, Per};

#[path = "backups_tests.rs"]
mod backups;
#[path = "bounded_tests.rs"]
mod bounded;
#[path = "commit_tests.rs"]
mod commits;
#[path = "damage_tests.rs"]
mod damage;
#[path = "start_tests.rs"]
mod starting;

/// Connects to the file behind the back of the ledger in `folder`.
pub(super) async fn connect(folder: &Path) -> sqlx::SqliteConnection {
    sqlx::SqliteConnection::connect(&format!("sqlite://{}", folder.join("test.db").display()))
        .await
        .unwrap()
}

#[tokio::test]
async fn interrupted_calls_become_unknown_and_stay_charged() {
    let (ledger, folder) = open().await;
    let interrupted = row("t", "a", now());
    ledger
        .reserve(interrupted.clone(), vec![charge(3, Per::Lifetime)])
        .await
        .unwrap();
    ledger.close().await;
    drop(ledger);
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let ledger = super::super::open(&settings, now()).await.unwrap();
    assert_eq!(
        ledger.get(interrupted.id).await.unwrap().unwrap().row.state,
        State::Unknown
    );
    assert_eq!(
        ledger
            .units_used(&[charge(3, Per::Lifetime)], now())
            .await
            .unwrap()[0]
            .used,
        1
    );
    let usage = ledger.usage_totals(None).await.unwrap();
    assert_eq!(
        (usage[0].calls, usage[0].failed, usage[0].succeeded),
        (1, 1, 0),
        "totals count them as failed"
    );
}

#[tokio::test]
async fn units_set_aside_stay_used_after_a_crash() {
    let (ledger, folder) = open().await;
    let day = || vec![charge(40, Per::Day)];
    for _ in 0..5 {
        limited_read(&*ledger, now(), day()).await.unwrap();
    }
    // Four calls run, and the service is killed: nothing is closed.
    let running: Vec<_> = (0..4).map(|_| row("t", "a", now())).collect();
    for read in &running {
        ledger.take_units(read.id, now(), day()).await.unwrap();
    }
    let killed = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), killed.path().join(file.file_name())).unwrap();
    }
    let settings = Settings {
        base: killed.path().to_owned(),
        ..settings()
    };
    let restarted = super::super::open(&settings, now()).await.unwrap();
    let used = restarted.units_used(&day(), now()).await.unwrap()[0].used;
    assert!((9..=20).contains(&used), "{used} units used");
    assert_eq!(restarted.counter_drift().await.unwrap(), 0);
    let mut more = 0;
    while limited_read(&*restarted, now(), day()).await.is_ok() {
        more += 1;
    }
    assert_eq!(used + more, 40);
    assert_eq!(restarted.counter_drift().await.unwrap(), 0);
    restarted.close().await;
    let mut reader = connect(killed.path()).await;
    let (lost, rows): (i64, i64) =
        sqlx::query_as("select lost_units, (select count(*) from invocation) from quota")
            .fetch_one(&mut reader)
            .await
            .unwrap();
    assert_eq!(lost + rows, 40, "each unit has a row or is lost");
}

#[tokio::test]
async fn two_processes_with_limited_reads_do_not_disturb_each_other() {
    let (first, folder) = open().await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let second = super::super::open(&settings, now()).await.unwrap();
    let day = || vec![charge(40, Per::Day)];
    let running = row("t", "a", now());
    first.take_units(running.id, now(), day()).await.unwrap();
    for _ in 0..5 {
        limited_read(&*first, now(), day()).await.unwrap();
        limited_read(&*second, now(), day()).await.unwrap();
        // Gives free units back. The other process has changed the counter meanwhile.
        first.flush().await.unwrap();
        first.flush().await.unwrap();
    }
    assert_eq!(first.check_health(), Ok(()));
    let (end, refunds) = (ended_row(&running, State::Succeeded), vec![]);
    first.settle(end, refunds).await.unwrap();
    for _ in 0..40 {
        let _ = limited_read(&*second, now(), day()).await;
        second.flush().await.unwrap();
    }
    second.flush().await.unwrap();
    first.flush().await.unwrap();
    first.flush().await.unwrap();
    while limited_read(&*second, now(), day()).await.is_ok() {}
    assert_eq!(first.counter_drift().await.unwrap(), 0);
    let rows = first
        .list_calls(&Query {
            limit: 500,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!(rows.len(), 40, "exactly the limit");
}

#[tokio::test]
async fn reset_by_another_process_keeps_counters_right() {
    let (first, folder) = open().await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let second = super::super::open(&settings, now()).await.unwrap();
    let lifetime = || vec![charge(100, Per::Lifetime)];
    let running: Vec<_> = (0..8).map(|_| row("t", "a", now())).collect();
    for read in &running {
        first.take_units(read.id, now(), lifetime()).await.unwrap();
    }
    second.reset_counters("t", None, None).await.unwrap();
    let writes: Vec<_> = (0..5).map(|_| row("t", "a", now())).collect();
    let mut charged = Vec::new();
    for write in &writes {
        let reserved = second.reserve(write.clone(), lifetime()).await.unwrap();
        charged.push(reserved.charged);
    }
    first.flush().await.unwrap();
    first.flush().await.unwrap();
    for read in &running {
        let end = ended_row(read, State::Succeeded);
        first.settle(end, vec![]).await.unwrap();
    }
    for (write, charged) in writes.iter().zip(charged) {
        let end = ended_row(write, State::Cancelled);
        second.settle(end, charged).await.unwrap();
    }
    first.flush().await.unwrap();
    assert_eq!(first.counter_drift().await.unwrap(), 0);
    let used = first.units_used(&lifetime(), now()).await.unwrap()[0].used;
    assert_eq!(used, 0, "all units of the new counter were refunded");
    limited_read(&*first, now(), lifetime()).await.unwrap();
    assert_eq!(second.counter_drift().await.unwrap(), 0);
}

#[tokio::test]
async fn idle_writer_gives_free_units_back() {
    let (ledger, folder) = open().await;
    for _ in 0..9 {
        limited_read(&*ledger, now(), vec![charge(99, Per::Day)])
            .await
            .unwrap();
    }
    let mut reader = connect(folder.path()).await;
    let mut set_aside = async || {
        sqlx::query_scalar::<_, i64>("select set_aside from quota")
            .fetch_one(&mut reader)
            .await
            .unwrap()
    };
    // The clock moves whenever the writer waits.
    tokio::time::pause();
    while set_aside().await > 0 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    tokio::time::resume();
    let used = ledger.units_used(&[charge(99, Per::Day)], now()).await;
    assert_eq!(used.unwrap()[0].used, 9);
}

#[tokio::test]
async fn only_the_named_units_of_a_call_are_given_back() {
    let (ledger, _folder) = open().await;
    let of_caller = || Charge {
        caller: "a".into(),
        ..charge(9, Per::Lifetime)
    };
    let charges = || vec![charge(9, Per::Lifetime), of_caller()];
    let read = row("t", "a", now());
    ledger.take_units(read.id, now(), charges()).await.unwrap();
    let refunds = ledger.units_used(&[of_caller()], now()).await.unwrap();
    let end = ended_row(&read, State::Failed);
    ledger.settle(end, refunds).await.unwrap();
    let used = ledger.units_used(&charges(), now()).await.unwrap();
    let used: Vec<u64> = used.iter().map(|charged| charged.used).collect();
    assert_eq!(used, [1, 0]);
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
}

#[tokio::test]
async fn closed_ledger_has_nothing_set_aside() {
    let (ledger, folder) = open().await;
    for _ in 0..9 {
        limited_read(&*ledger, now(), vec![charge(99, Per::Day)])
            .await
            .unwrap();
    }
    ledger.close().await;
    let mut reader = connect(folder.path()).await;
    let counter: (i64, i64, i64) = sqlx::query_as("select used, set_aside, lost_units from quota")
        .fetch_one(&mut reader)
        .await
        .unwrap();
    assert_eq!(counter, (9, 0, 0));
}

#[tokio::test]
async fn calls_of_an_ended_process_are_settled_by_another_one() {
    let (first, folder) = open().await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let second = super::super::open(&settings, now()).await.unwrap();
    let third = super::super::open(&settings, now()).await.unwrap();
    let write = |key: &str| Row {
        idempotency_key: Some(key.into()),
        fingerprint: Some("f".into()),
        key_until: Some(Row::FOREVER),
        ..row("t", "a", now())
    };
    let (ended, running, stopped) = (write("ended"), write("running"), write("stopped"));
    first.reserve(ended.clone(), vec![]).await.unwrap();
    second.reserve(running.clone(), vec![]).await.unwrap();
    third.reserve(stopped.clone(), vec![]).await.unwrap();
    let state = async |row: &Row| second.get(row.id).await.unwrap().unwrap().row.state;
    let path = folder.path().join("test.db");
    assert_eq!(processes::find_ended(&path).len(), 0, "all are alive");

    // One process stops before its call has ended, and one ends as after a crash.
    third.close().await;
    drop((first, third));
    assert_eq!(processes::find_ended(&path).len(), 2);
    for row in [&ended, &stopped] {
        while state(row).await == State::Reserved {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(state(row).await, State::Unknown);
    }
    let holder = second.find_key_holder("a", "t", "ended", now()).await;
    assert_eq!(holder.unwrap().unwrap().id, ended.id, "it may have written");
    assert_eq!(state(&running).await, State::Reserved);
    second
        .settle(ended_row(&running, State::Succeeded), vec![])
        .await
        .unwrap();
    let usage = second.usage_totals(None).await.unwrap();
    let totals = (usage[0].calls, usage[0].failed, usage[0].succeeded);
    assert_eq!(totals, (3, 2, 1));
    assert_eq!(processes::find_ended(&path).len(), 0);
    second.close().await;
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let left = files.filter(|file| file.file_name().to_string_lossy().contains(".lock-"));
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn processes_with_the_same_file_know_each_other() {
    let (first, folder) = open().await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let second = super::super::open(&settings, now()).await.unwrap();
    let names = |ledgers: &[&Arc<dyn Ledger>]| {
        let mut names: Vec<_> = ledgers.iter().filter_map(|one| one.process()).collect();
        names.sort();
        names
    };
    let living = async |ledger: &Arc<dyn Ledger>| {
        let mut living = ledger.living_processes().await.unwrap();
        living.sort();
        living
    };
    let both = names(&[&first, &second]);
    assert_eq!(both.len(), 2);
    assert_eq!(living(&first).await, both);
    assert_eq!(living(&second).await, both);
    second.close().await;
    drop(second);
    assert_eq!(living(&first).await, names(&[&first]));
}

#[tokio::test]
async fn second_process_keeps_running_calls() {
    let (first, folder) = open().await;
    let running = row("t", "a", now());
    first.reserve(running.clone(), vec![]).await.unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let second = super::super::open(&settings, now()).await.unwrap();
    assert_eq!(
        second.get(running.id).await.unwrap().unwrap().row.state,
        State::Reserved
    );
    first
        .settle(ended_row(&running, State::Succeeded), vec![])
        .await
        .unwrap();
}

#[tokio::test]
async fn two_processes_share_one_limit() {
    let (first, folder) = open().await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let second = super::super::open(&settings, now()).await.unwrap();
    let mut admitted = 0;
    for turn in 0..30 {
        let ledger = if turn % 3 == 0 { &first } else { &second };
        let reservation = ledger
            .reserve(row("t", "a", now()), vec![charge(20, Per::Day)])
            .await;
        if let Ok(reservation) = reservation {
            admitted += 1;
            assert_eq!(reservation.charged[0].used, admitted);
        }
    }
    assert_eq!(admitted, 20);
}

#[tokio::test]
async fn counters_always_match_the_rows() {
    let (ledger, folder) = open().await;
    let limits = || {
        vec![
            charge(100, Per::Minute),
            charge(1000, Per::Lifetime),
            charge(50, Per::Run),
        ]
    };
    let mut reserved = Vec::new();
    for call in 0..40 {
        // The calls cross the boundary of a minute, with changing limits.
        let at = now() + call.seconds();
        let charges = if call % 7 == 0 {
            vec![]
        } else {
            limits()[..1 + call as usize % 3].to_vec()
        };
        let row = row("t", "a", at);
        reserved.push((
            row.clone(),
            ledger.reserve(row, charges).await.unwrap().charged,
        ));
    }
    for (at, (row, charged)) in reserved.into_iter().enumerate() {
        match at % 4 {
            0 => ledger
                .settle(ended_row(&row, State::Cancelled), charged)
                .await
                .unwrap(),
            1 => {}
            _ => ledger
                .settle(ended_row(&row, State::Succeeded), vec![])
                .await
                .unwrap(),
        }
    }
    record_call_at(&*ledger, now()).await;
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    ledger.reset_counters("t", None, None).await.unwrap();
    ledger
        .reserve(row("t", "a", now()), limits())
        .await
        .unwrap();
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    for _ in 0..30 {
        let row = row("t", "a", now());
        ledger.reserve(row.clone(), limits()).await.unwrap();
        ledger
            .settle(ended_row(&row, State::Succeeded), vec![])
            .await
            .unwrap();
    }
    while ledger
        .prune(Timestamp::now() + 1.hour(), now(), 7)
        .await
        .unwrap()
        > 0
    {}
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    ledger
        .reserve(row("t", "a", now()), limits())
        .await
        .unwrap();
    ledger.close().await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let ledger = super::super::open(&settings, now()).await.unwrap();
    ledger
        .reserve(row("t", "a", now()), limits())
        .await
        .unwrap();
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);

    let mut other = connect(folder.path()).await;
    sqlx::query("update quota set used = used + 2 where per = 'lifetime'")
        .execute(&mut other)
        .await
        .unwrap();
    assert_eq!(
        ledger.counter_drift().await.unwrap(),
        2,
        "another program changed the file"
    );
}

/// Adds rows that are charged to the counter of `charge(…, Per::Lifetime)`, behind the back of the ledger.
async fn add_charged_rows(folder: &Path, rows: i64) {
    let mut other = connect(folder).await;
    for sql in [
        "insert into invocation (id, tool, caller, state, effect, cache, attempts, started_at, duration_us, arguments, charged, reserved) \
         with recursive n (n) as (select 1 union all select n + 1 from n where n < ?1) \
         select unhex('0000000000000000' || hex(randomblob(8))), 't', 'a', 'succeeded', 'read', 'off', 1, 0, 1, '{}', \
         (select ',' || id || ',' from quota where per = 'lifetime'), 0 from n",
        "update quota set used = used + ?1 where per = 'lifetime'",
    ] {
        let change = sqlx::query(sql).bind(rows);
        change.execute(&mut other).await.unwrap();
    }
}

/// What the lifetime counter carries, and the first row that it does not carry.
async fn carried_rows(folder: &Path) -> (i64, i64) {
    let carried = "select carried, from_seq from quota where per = 'lifetime'";
    let carried = sqlx::query_as(carried);
    carried.fetch_one(&mut connect(folder).await).await.unwrap()
}

#[tokio::test]
async fn compared_rows_are_not_read_again() {
    let (ledger, folder) = open().await;
    let limit = || vec![charge(1 << 40, Per::Lifetime)];
    let first = row("t", "a", now());
    let charged = ledger
        .reserve(first.clone(), limit())
        .await
        .unwrap()
        .charged;
    add_charged_rows(folder.path(), 99_000).await;
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    assert_eq!(carried_rows(folder.path()).await.0, 0, "there are few");

    add_charged_rows(folder.path(), 1_000).await;
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    let carried = carried_rows(folder.path()).await;
    assert_eq!(carried, (0, 1), "the first call has not ended");

    ledger
        .settle(ended_row(&first, State::Cancelled), charged)
        .await
        .unwrap();
    let second = row("t", "a", now());
    ledger.reserve(second.clone(), limit()).await.unwrap();
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    assert_eq!(carried_rows(folder.path()).await, (100_000, 100_002));
    ledger
        .settle(ended_row(&second, State::Succeeded), vec![])
        .await
        .unwrap();
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);

    while ledger
        .prune(Timestamp::now() + 1.hour(), now(), 50_000)
        .await
        .unwrap()
        > 0
    {}
    assert_eq!(ledger.counter_drift().await.unwrap(), 0);
    let used = ledger.units_used(&limit(), now()).await.unwrap()[0].used;
    assert_eq!(used, 100_001);
}

#[tokio::test]
async fn large_ledger_is_compared_in_parts() {
    let (ledger, folder) = open().await;
    let limit = || vec![charge(1 << 40, Per::Lifetime)];
    let reserved = row("t", "a", now());
    ledger.reserve(reserved.clone(), limit()).await.unwrap();
    ledger
        .settle(ended_row(&reserved, State::Succeeded), vec![])
        .await
        .unwrap();
    let mut other = connect(folder.path()).await;
    for (far, used) in [(3_000_000, 0), (6_000_000, 5_i64)] {
        add_charged_rows(folder.path(), 3).await;
        let move_newest =
            "update invocation set seq = ?1 where seq = (select max(seq) from invocation)";
        let move_newest = sqlx::query(move_newest).bind(far);
        move_newest.execute(&mut other).await.unwrap();
        let change = "update quota set used = used + ?1 where per = 'lifetime'";
        let change = sqlx::query(change).bind(used);
        change.execute(&mut other).await.unwrap();
        assert_eq!(ledger.counter_drift().await.unwrap(), used.unsigned_abs());
    }
    assert!(carried_rows(folder.path()).await.1 > 5_000_000);
    assert_eq!(ledger.counter_drift().await.unwrap(), 5, "it stays");
}

#[tokio::test]
async fn removed_file_refuses_reservations() {
    let (ledger, folder) = open().await;
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    std::fs::remove_file(folder.path().join("test.db")).unwrap();
    let Err(ReserveError::Ledger(error)) = ledger.reserve(row("t", "a", now()), vec![]).await
    else {
        panic!("reserved in a removed file")
    };
    assert!(error.to_string().contains("removed"), "{error}");
    assert!(
        ledger
            .set_switch(
                Switch {
                    tool: "t".into(),
                    enabled: false
                },
                None
            )
            .await
            .is_err()
    );
    assert!(ledger.check_health().is_err());
}

fn settings_for(file: &std::path::Path) -> Settings {
    let url = format!("sqlite://{}", file.display());
    Settings { url, ..settings() }
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let (ledger, folder) = open().await;
    ledger.close().await;
    let mut connection = connect(folder.path()).await;
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (99, 'later', true, x'00', 0)";
    sqlx::query(newer).execute(&mut connection).await.unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    for error in [
        super::super::open(&settings, now())
            .await
            .err()
            .unwrap()
            .to_string(),
        open_read_only(&settings).await.err().unwrap().to_string(),
    ] {
        assert!(error.contains("newer Toolcrib (schema 99"), "{error}");
    }
}

#[tokio::test]
async fn rows_from_before_parents_keep_their_checksum() {
    let (ledger, folder) = open().await;
    let old = ended_row(&row("t", "a", now()), State::Succeeded);
    ledger.record(old.clone()).await.unwrap();
    ledger.close().await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let mut connection = connect(folder.path()).await;
    let undo = "drop index invocation_parent; alter table invocation drop column parent; \
                delete from _sqlx_migrations where version = 6";
    sqlx::raw_sql(undo).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    let found = ledger.get(old.id).await.unwrap().unwrap().row;
    assert_eq!((found.state, found.parent), (State::Succeeded, None));
    ledger.close().await;
}

/// SQLite copies the list of a check `in (...)` into a temporary table for each row.
#[tokio::test]
async fn checks_of_a_row_need_no_temporary_table() {
    let (ledger, folder) = open().await;
    ledger.close().await;
    let mut connection = connect(folder.path()).await;
    let insert = |state: &str| {
        format!(
            "insert into invocation (id, tool, caller, state, effect, cache, attempts, started_at, duration_us, arguments) \
             values (randomblob(16), 't', 'a', '{state}', 'read', 'off', 1, 0, 1, '{{}}')"
        )
    };
    let explain = AssertSqlSafe(format!("explain {}", insert("succeeded")));
    let steps = sqlx::query(explain).fetch_all(&mut connection).await;
    let steps: Vec<String> = steps.unwrap().iter().map(|row| row.get("opcode")).collect();
    assert!(steps.contains(&"MakeRecord".to_owned()), "{steps:?}");
    assert!(!steps.contains(&"OpenEphemeral".to_owned()), "{steps:?}");
    for (state, is_allowed) in [("succeeded", true), ("unknown", true), ("lost", false)] {
        let insert = sqlx::query(AssertSqlSafe(insert(state)));
        let inserted = insert.execute(&mut connection).await;
        assert_eq!(inserted.is_ok(), is_allowed, "{state}: {inserted:?}");
    }
}

#[tokio::test]
async fn unusable_files_are_named_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.db");
    let noise: Vec<u8> = (0..8192u32)
        .map(|i| (i.wrapping_mul(2654435761) >> 13) as u8)
        .collect();
    std::fs::write(&file, &noise).unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let error = super::super::open(&settings, now())
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("test.db") && error.contains("not a SQLite database"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), noise);
    for (url, expected) in [
        ("mysql://x", "sqlite://toolcrib.db"),
        ("postgres://u:secret@h:port/d", "invalid port"),
    ] {
        let settings = Settings {
            url: url.into(),
            ..settings.clone()
        };
        let error = super::super::open(&settings, now())
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains(expected) && !error.contains("secret"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn writer_stops_after_an_uncertain_failure() {
    let (ledger, folder) = open().await;
    let running = row("t", "a", now());
    ledger
        .reserve(running.clone(), vec![charge(9, Per::Lifetime)])
        .await
        .unwrap();
    assert!(futures_util::poll!(ledger.wait_for_failure()).is_pending());

    let file = folder.path().join("test.db");
    let mut other = <sqlx::SqliteConnection as sqlx::Connection>::connect(&format!(
        "sqlite://{}",
        file.display()
    ))
    .await
    .unwrap();
    let damage = "pragma writable_schema = on; update sqlite_schema set sql = 'no sql' where name = 'quota'; \
                  pragma schema_version = 99";
    sqlx::raw_sql(damage).execute(&mut other).await.unwrap();

    let reservation = ledger.reserve(row("t", "a", now()), vec![]);
    assert!(matches!(
        reservation.await,
        Err(ReserveError::Ledger(Error::Stopped(_)))
    ));
    let Error::Stopped(reason) = ledger.wait_for_failure().await else {
        panic!("it has stopped")
    };
    assert!(reason.contains("damaged"), "{reason}");
    assert!(
        ledger
            .check_health()
            .is_err_and(|reason| reason.contains("stopped"))
    );
    sqlx::raw_sql("pragma writable_schema = reset")
        .execute(&mut other)
        .await
        .unwrap();
    // The writer makes no further attempt, whatever operation is sent.
    let settled = ledger
        .settle(ended_row(&running, State::Succeeded), vec![])
        .await;
    assert!(matches!(settled, Err(Error::Stopped(_))), "{settled:?}");
    let switched = ledger
        .set_switch(
            Switch {
                tool: "t".into(),
                enabled: false,
            },
            None,
        )
        .await;
    assert!(matches!(switched, Err(Error::Stopped(_))), "{switched:?}");
    ledger.close().await;
    assert!(
        std::fs::metadata(folder.path().join("test.db-wal"))
            .unwrap()
            .len()
            > 0,
        "left to the next start"
    );
}

/// The files of a ledger whose process was killed. It recorded `calls` calls, each in a commit of
/// its own, and its log was not copied into the database.
async fn killed_ledger(calls: usize) -> (tempfile::TempDir, Vec<InvocationId>) {
    let (ledger, folder) = open().await;
    let copy = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for _ in 0..calls {
        let row = row("t", "a", now());
        ledger
            .record(ended_row(&row, State::Succeeded))
            .await
            .unwrap();
        ids.push(row.id);
    }
    for name in ["test.db", "test.db-wal", "test.db.head"] {
        std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    (copy, ids)
}

fn read_all_files(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let made = |name: &std::ffi::OsStr| {
        name.to_string_lossy().ends_with("-shm") || name.to_string_lossy().ends_with(".lock")
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let mut files: Vec<_> = files
        .filter(|file| !made(&file.file_name()))
        .map(|file| (file.file_name(), std::fs::read(file.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_acknowledged_commit_is_counted() {
    let (folder, ids) = killed_ledger(3).await;
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let head = || std::fs::read_to_string(folder.path().join("test.db.head")).unwrap();
    let count = || {
        head()
            .lines()
            .find_map(|line| line.strip_prefix("commits ")?.parse::<u64>().ok())
            .unwrap()
    };
    let first = count();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    for id in ids {
        assert!(ledger.get(id).await.unwrap().is_some());
    }
    assert_eq!(count(), first);
    let mut before = first;
    let mut assert_grew = |what: &str| {
        let now = count();
        assert!(
            now > std::mem::replace(&mut before, now),
            "{what} is acknowledged and not counted"
        );
    };
    let row = row("t", "a", now());
    ledger.reserve(row.clone(), vec![]).await.unwrap();
    assert_grew("reserve");
    ledger
        .settle(ended_row(&row, State::Succeeded), vec![])
        .await
        .unwrap();
    assert_grew("settle");
    ledger.reset_counters("t", None, None).await.unwrap();
    assert_grew("reset");
    ledger.purge_results(None, None).await.unwrap();
    assert_grew("purge");
    ledger
        .set_switch(
            Switch {
                tool: "t".into(),
                enabled: false,
            },
            None,
        )
        .await
        .unwrap();
    assert_grew("switch");
    let tool = RegisteredTool {
        name: "t".into(),
        definition: "{}".into(),
        registered_by: "a".into(),
        registered_at: now(),
    };
    ledger.register_tool(tool).await.unwrap();
    assert_grew("register");
    assert!(ledger.unregister_tool("t", None).await.unwrap());
    assert_grew("unregister");
    ledger.prune(now(), now(), 10).await.unwrap();
    assert_grew("prune");
    // Another process continues to count. The head file may lag behind, and the ledger still opens.
    let second = super::super::open(&settings, now()).await.unwrap();
    record_call_at(&*second, now()).await;
    record_call_at(&*ledger, now()).await;
    assert_grew("another process");
    let mode = std::fs::metadata(folder.path().join("test.db.head"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn moved_files_are_opened() {
    let (folder, _) = killed_ledger(3).await;
    let file = |name: &str| folder.path().join(name);
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    // No head file: it was removed, or an older release wrote the ledger.
    std::fs::remove_file(file("test.db.head")).unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    ledger.backup(&file("copy.db")).await.unwrap();
    record_call_at(&*ledger, now()).await;
    ledger.close().await;
    drop(ledger);
    // A backup in the same location is another ledger, even though its count is lower.
    std::fs::rename(file("copy.db"), file("test.db")).unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    record_call_at(&*ledger, now()).await;
    ledger.close().await;
    drop(ledger);
    // A damaged head file.
    std::fs::write(file("test.db.head"), "noise").unwrap();
    super::super::open(&settings, now())
        .await
        .unwrap()
        .close()
        .await;
    // The database was removed by hand, or emptied.
    std::fs::remove_file(file("test.db")).unwrap();
    super::super::open(&settings, now())
        .await
        .unwrap()
        .close()
        .await;
    std::fs::write(file("test.db"), "").unwrap();
    let ledger = super::super::open(&settings, now()).await.unwrap();
    assert!(ledger.usage_totals(None).await.unwrap().is_empty());
    ledger.close().await;
    // A folder in the location of the head file: the ledger works without one.
    std::fs::remove_file(file("test.db.head")).unwrap();
    std::fs::create_dir(file("test.db.head")).unwrap();
    record_call_at(&*super::super::open(&settings, now()).await.unwrap(), now()).await;
}

#[tokio::test]
async fn log_is_copied_before_it_grows_long() {
    let (ledger, folder) = open().await;
    let long = format!("\"{}\"", "x".repeat(100_000));
    for _ in 0..200 {
        let row = Row {
            arguments: long.as_str().into(),
            ..row("t", "a", now())
        };
        ledger
            .record(ended_row(&row, State::Succeeded))
            .await
            .unwrap();
    }
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    assert!(
        size("test.db-wal") < 8 << 20,
        "{} of 20 MB written",
        size("test.db-wal")
    );
    assert!(size("test.db") > 12 << 20, "{}", size("test.db"));
    ledger.close().await;
    assert!(!folder.path().join("test.db-wal").exists());
}

/// A ledger with a bound of 16 MiB.
async fn open_bounded() -> (Arc<dyn Ledger>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        max_bytes: Some(MIN_SIZE_BOUND),
        ..settings()
    };
    (super::super::open(&settings, now()).await.unwrap(), folder)
}

fn with_long_arguments(row: Row) -> Row {
    Row {
        arguments: format!("\"{}\"", "x".repeat(200_000)).into(),
        ..row
    }
}
