//! Tests: what is checked and reported when a file is opened.

use sqlx::{Connection, SqliteConnection};

use super::*;
use crate::log::captured_log::capture_log;

async fn reopen(settings: &Settings) -> Result<(), Error> {
    super::super::super::open(settings, now())
        .await?
        .close()
        .await;
    Ok(())
}

/// A closed ledger with an additional table of this many bytes.
async fn closed_ledger_with_filler(bytes: usize) -> (Settings, tempfile::TempDir) {
    let (ledger, folder) = open().await;
    record_call_at(&*ledger, now()).await;
    ledger.close().await;
    drop(ledger);
    let mut other = connect(folder.path()).await;
    sqlx::raw_sql("create table filler (x)")
        .execute(&mut other)
        .await
        .unwrap();
    sqlx::query("insert into filler values (zeroblob(?))")
        .bind(bytes as i64)
        .execute(&mut other)
        .await
        .unwrap();
    other.close().await.unwrap();
    (
        Settings {
            base: folder.path().to_owned(),
            ..settings()
        },
        folder,
    )
}

/// Overwrites the first page of the index that finds calls by their id.
async fn damage_index_page(folder: &Path) {
    let mut other = connect(folder).await;
    let root = "select rootpage from sqlite_schema where type = 'index' and tbl_name = 'invocation' order by name limit 1";
    let page: i64 = sqlx::query_scalar(root)
        .fetch_one(&mut other)
        .await
        .unwrap();
    let size: i64 = sqlx::query_scalar("pragma page_size")
        .fetch_one(&mut other)
        .await
        .unwrap();
    other.close().await.unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.join("test.db"))
        .unwrap();
    let at = (page - 1).unsigned_abs() * size.unsigned_abs();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 512], at).unwrap();
}

#[tokio::test]
async fn damaged_pages_are_found_on_open() {
    for bytes in [1, 17 << 20] {
        let (settings, folder) = closed_ledger_with_filler(bytes).await;
        reopen(&settings).await.unwrap();
        damage_index_page(folder.path()).await;
        let error = reopen(&settings).await.unwrap_err().to_string();
        assert!(error.contains("damaged"), "{bytes}: {error}");
    }
}

#[tokio::test]
async fn index_without_row_is_found_on_open() {
    let (settings, folder) = closed_ledger_with_filler(1).await;
    let mut other = connect(folder.path()).await;
    sqlx::raw_sql("create index filled on filler (length(x))")
        .execute(&mut other)
        .await
        .unwrap();
    // The damaged index has as many entries as the table has rows, but its new definition no longer
    // matches them.
    let damage = "pragma writable_schema = on; \
                  update sqlite_schema set sql = replace(sql, 'length', 'typeof') where name = 'filled'; pragma schema_version = 99";
    sqlx::raw_sql(damage).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let error = reopen(&settings).await.unwrap_err().to_string();
    assert!(error.contains("missing from index filled"), "{error}");
}

#[tokio::test]
async fn damaged_copy_is_refused() {
    let (_settings, folder) = closed_ledger_with_filler(1).await;
    let check = async || {
        let mut copy = connect(folder.path()).await;
        super::super::open::check_copy(&mut copy).await
    };
    assert_eq!(check().await, Ok(()));
    damage_index_page(folder.path()).await;
    assert!(
        check()
            .await
            .is_err_and(|reason| reason.contains("damaged"))
    );
    let mut foreign = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let result = super::super::open::check_copy(&mut foreign).await;
    assert!(
        result
            .as_ref()
            .is_err_and(|reason| reason.contains("not a ledger")),
        "{result:?}"
    );
}

#[tokio::test]
async fn foreign_databases_are_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let url = format!(
        "sqlite://{}?mode=rwc",
        folder.path().join("test.db").display()
    );
    let mut foreign = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("create table theirs (x)")
        .execute(&mut foreign)
        .await
        .unwrap();
    foreign.close().await.unwrap();
    let before = std::fs::read(folder.path().join("test.db")).unwrap();
    let error = reopen(&settings).await.unwrap_err().to_string();
    assert!(error.contains("another program's database"), "{error}");
    assert!(open_read_only(&settings).await.is_err());
    assert_eq!(
        std::fs::read(folder.path().join("test.db")).unwrap(),
        before
    );
}

#[tokio::test]
async fn empty_log_without_database_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("test.db-wal"), "").unwrap();
    reopen(&Settings {
        base: folder.path().to_owned(),
        ..settings()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn missing_ledger_differs_from_replaced() {
    let (settings, folder) = closed_ledger_with_filler(1).await;
    let log = capture_log();
    reopen(&settings).await.unwrap();
    assert!(!log.has_line("WARN"), "no warning");
    std::fs::remove_file(folder.path().join("test.db")).unwrap();
    reopen(&settings).await.unwrap();
    assert_eq!(
        (
            log.count_lines("a new ledger is created"),
            log.count_lines("restored or replaced")
        ),
        (1, 0)
    );

    let (_other, beside) = closed_ledger_with_filler(1).await;
    std::fs::copy(beside.path().join("test.db"), folder.path().join("test.db")).unwrap();
    reopen(&settings).await.unwrap();
    assert_eq!(
        (
            log.count_lines("a new ledger is created"),
            log.count_lines("restored or replaced")
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn interrupted_calls_are_logged_once() {
    let (ledger, folder) = open().await;
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    ledger.close().await;
    drop(ledger);
    let settings = Settings {
        base: folder.path().to_owned(),
        ..settings()
    };
    let log = capture_log();
    for _ in 0..2 {
        reopen(&settings).await.unwrap();
    }
    assert_eq!(log.count_lines("calls that were interrupted are now"), 1);
}

#[tokio::test]
async fn backup_refuses_names_of_ledger_files() {
    let (ledger, folder) = open().await;
    std::fs::create_dir(folder.path().join("below")).unwrap();
    for name in ["test.db-journal", "below/../test.db-journal"] {
        let error = ledger
            .backup(&folder.path().join(name))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("a part of the ledger itself"),
            "{name}: {error}"
        );
    }
    ledger
        .backup(&folder.path().join("below/test.db-journal"))
        .await
        .unwrap();
}

#[tokio::test]
async fn ledger_describes_engine_and_durability() {
    let (ledger, folder) = open().await;
    assert_eq!(
        ledger.describe(),
        format!("sqlite {}", folder.path().join("test.db").display())
    );
    assert!(!ledger.is_strict());
    ledger.close().await;
    drop(ledger);
    let strict = Settings {
        base: folder.path().to_owned(),
        durability: Durability::Strict,
        ..settings()
    };
    assert!(
        super::super::super::open(&strict, now())
            .await
            .unwrap()
            .is_strict()
    );
}
