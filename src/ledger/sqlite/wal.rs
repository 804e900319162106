//! Copying the write-ahead log into the database ("checkpoint").
//!
//! SQLite's own, at the end of a commit, keeps its failures to itself: an fsync of the database that fails there is
//! never heard of, and the log is begun anew. So it is off, and the writer does the same after it has answered.

use sqlx::SqliteConnection;

/// Pages in the log that make it worth copying: SQLite's own figure, about 4 MiB.
pub(super) const LONG: i64 = 1000;

/// How many pages the log has. Looks, and does nothing.
pub(super) async fn pages(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    run("pragma wal_checkpoint = noop", connection).await
}

/// Copies what readers allow, and waits for nobody. All of it, when nobody reads what is older: then the log begins
/// anew with the next commit.
pub(super) async fn checkpoint(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    run("pragma wal_checkpoint = passive", connection).await.map(drop)
}

/// Copies everything and empties the log.
pub(super) async fn empty(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    run("pragma wal_checkpoint = truncate", connection).await.map(drop)
}

/// The answer is whether somebody was in the way (no failure: there is a next time), pages in the log, pages copied.
async fn run(sql: &'static str, connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let (_, pages, _): (i64, i64, i64) = sqlx::query_as(sql).fetch_one(connection).await?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, query};

    use super::*;

    #[tokio::test]
    async fn a_log_is_copied_and_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let (file, log) = (folder.path().join("x.db"), folder.path().join("x.db-wal"));
        let url = format!("sqlite://{}?mode=rwc", file.display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        for sql in ["pragma journal_mode = wal", "create table t (x)", "insert into t values (zeroblob(100000))"] {
            query(sql).execute(&mut connection).await.unwrap();
        }
        let size = |file: &std::path::Path| std::fs::metadata(file).unwrap().len();
        let before = size(&file);
        assert!(pages(&mut connection).await.unwrap() > 20);
        assert_eq!(size(&file), before, "looking copies nothing");
        checkpoint(&mut connection).await.unwrap();
        assert!(size(&file) > before + 100_000 && size(&log) > 0);
        empty(&mut connection).await.unwrap();
        assert_eq!((size(&log), pages(&mut connection).await.unwrap()), (0, 0));
    }
}
