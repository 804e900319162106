//! Tests: what is checked and reported when a file is opened.

use sqlx::{Connection, SqliteConnection};

use super::*;
use crate::log::captured::capture;

async fn reopen(settings: &Settings) -> Result<(), Error> {
    super::super::super::open(settings, now()).await?.close().await;
    Ok(())
}

async fn connect(folder: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite://{}", folder.join("test.db").display())).await.unwrap()
}

/// A closed ledger with an additional table of this many bytes.
async fn with_filler(bytes: usize) -> (Settings, tempfile::TempDir) {
    let (ledger, folder) = open().await;
    record_at(&*ledger, now()).await;
    ledger.close().await;
    drop(ledger);
    let mut other = connect(folder.path()).await;
    sqlx::raw_sql("create table filler (x)").execute(&mut other).await.unwrap();
    sqlx::query("insert into filler values (zeroblob(?))").bind(bytes as i64).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    (Settings { base: folder.path().to_owned(), ..settings() }, folder)
}

/// Overwrites the first page of the index that finds calls by their id.
async fn damage_a_page(folder: &Path) {
    let mut other = connect(folder).await;
    let root =
        "select rootpage from sqlite_schema where type = 'index' and tbl_name = 'invocation' order by name limit 1";
    let page: i64 = sqlx::query_scalar(root).fetch_one(&mut other).await.unwrap();
    let size: i64 = sqlx::query_scalar("pragma page_size").fetch_one(&mut other).await.unwrap();
    other.close().await.unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(folder.join("test.db")).unwrap();
    let at = (page - 1).unsigned_abs() * size.unsigned_abs();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 512], at).unwrap();
}

#[tokio::test]
async fn damaged_pages_are_found_at_the_start() {
    for bytes in [1, 17 << 20] {
        let (settings, folder) = with_filler(bytes).await;
        reopen(&settings).await.unwrap();
        damage_a_page(folder.path()).await;
        let said = reopen(&settings).await.unwrap_err().to_string();
        assert!(said.contains("damaged"), "{bytes}: {said}");
    }
}

#[tokio::test]
async fn an_index_that_lost_a_row_is_found() {
    let (settings, folder) = with_filler(1).await;
    let mut other = connect(folder.path()).await;
    sqlx::raw_sql("create index filled on filler (length(x))").execute(&mut other).await.unwrap();
    // The damaged index has as many entries as the table has rows, but its new definition no longer matches them.
    let damage = "pragma writable_schema = on; \
                  update sqlite_schema set sql = replace(sql, 'length', 'typeof') where name = 'filled'; pragma schema_version = 99";
    sqlx::raw_sql(damage).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let said = reopen(&settings).await.unwrap_err().to_string();
    assert!(said.contains("missing from index filled"), "{said}");
}

#[tokio::test]
async fn a_damaged_copy_is_refused() {
    let (_settings, folder) = with_filler(1).await;
    let check = async || {
        let mut copy = connect(folder.path()).await;
        super::super::open::check_copy(&mut copy).await
    };
    assert_eq!(check().await, Ok(()));
    damage_a_page(folder.path()).await;
    assert!(check().await.is_err_and(|said| said.contains("damaged")));
    let mut foreign = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let said = super::super::open::check_copy(&mut foreign).await;
    assert!(said.as_ref().is_err_and(|said| said.contains("no ledger")), "{said:?}");
}

#[tokio::test]
async fn databases_of_other_programs_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
    let mut theirs = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("create table theirs (x)").execute(&mut theirs).await.unwrap();
    theirs.close().await.unwrap();
    let before = std::fs::read(folder.path().join("test.db")).unwrap();
    let said = reopen(&settings).await.unwrap_err().to_string();
    assert!(said.contains("another program's database"), "{said}");
    assert!(open_to_read(&settings).await.is_err());
    assert_eq!(std::fs::read(folder.path().join("test.db")).unwrap(), before);
}

#[tokio::test]
async fn an_empty_log_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("test.db-wal"), "").unwrap();
    reopen(&Settings { base: folder.path().to_owned(), ..settings() }).await.unwrap();
}

#[tokio::test]
async fn a_ledger_that_is_gone_is_told_from_another() {
    let (settings, folder) = with_filler(1).await;
    let log = capture();
    reopen(&settings).await.unwrap();
    assert!(!log.has("WARN"), "nothing is strange");
    std::fs::remove_file(folder.path().join("test.db")).unwrap();
    reopen(&settings).await.unwrap();
    assert_eq!((log.count("a new one is begun"), log.count("put in its place")), (1, 0));

    let (_other, beside) = with_filler(1).await;
    std::fs::copy(beside.path().join("test.db"), folder.path().join("test.db")).unwrap();
    reopen(&settings).await.unwrap();
    assert_eq!((log.count("a new one is begun"), log.count("put in its place")), (1, 1));
}

#[tokio::test]
async fn interrupted_calls_are_told_of_once() {
    let (ledger, folder) = open().await;
    ledger.reserve(row("t", "a", now()), vec![]).await.unwrap();
    ledger.close().await;
    drop(ledger);
    let settings = Settings { base: folder.path().to_owned(), ..settings() };
    let log = capture();
    for _ in 0..2 {
        reopen(&settings).await.unwrap();
    }
    assert_eq!(log.count("calls that were interrupted are now"), 1);
}

#[tokio::test]
async fn backups_take_no_name_of_the_ledgers_own_files() {
    let (ledger, folder) = open().await;
    std::fs::create_dir(folder.path().join("below")).unwrap();
    for name in ["test.db-journal", "below/../test.db-journal"] {
        let said = ledger.backup(&folder.path().join(name)).await.unwrap_err().to_string();
        assert!(said.contains("a part of the ledger itself"), "{name}: {said}");
    }
    ledger.backup(&folder.path().join("below/test.db-journal")).await.unwrap();
}

#[tokio::test]
async fn ledgers_say_what_they_are() {
    let (ledger, folder) = open().await;
    assert_eq!(ledger.describe(), format!("sqlite {}", folder.path().join("test.db").display()));
    assert!(!ledger.is_strict());
    ledger.close().await;
    drop(ledger);
    let strict = Settings { base: folder.path().to_owned(), durability: Durability::Strict, ..settings() };
    assert!(super::super::super::open(&strict, now()).await.unwrap().is_strict());
}
