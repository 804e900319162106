//! Copies the write-ahead log into the database ("checkpoint").
//!
//! SQLite's automatic checkpoint at the end of a commit hides its failures: if an fsync of the
//! database fails there, no error is returned, and the log restarts all the same. So it is off, and
//! the writer makes the checkpoints after its replies.

use sqlx::SqliteConnection;

/// Number of pages in the log from which on it is copied: SQLite's own default, about 4 MiB.
pub(super) const CHECKPOINT_PAGES: i64 = 1000;
/// Commits between two checks of the log's length. A check costs a switch to SQLite's thread.
pub(super) const CHECK_INTERVAL_COMMITS: u32 = 8;

/// Number of pages in the log. Changes nothing.
pub(super) async fn log_pages(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    run_checkpoint("pragma wal_checkpoint = noop", connection).await
}

/// Copies as much as readers allow, without waiting. If no reader needs older pages, it copies all,
/// and the log restarts with the next commit.
pub(super) async fn checkpoint(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    run_checkpoint("pragma wal_checkpoint = passive", connection)
        .await
        .map(drop)
}

/// Copies the whole log and empties it.
pub(super) async fn truncate_log(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    run_checkpoint("pragma wal_checkpoint = truncate", connection)
        .await
        .map(drop)
}

/// Runs a checkpoint. SQLite returns three numbers: whether another connection blocked it (not an
/// error, the next one may succeed), the pages in the log, and the copied pages.
async fn run_checkpoint(
    sql: &'static str,
    connection: &mut SqliteConnection,
) -> Result<i64, sqlx::Error> {
    let (_, pages, _): (i64, i64, i64) = sqlx::query_as(sql).fetch_one(connection).await?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, query};

    use super::*;

    #[tokio::test]
    async fn checkpoint_copies_and_empties_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let (file, log) = (folder.path().join("x.db"), folder.path().join("x.db-wal"));
        let url = format!("sqlite://{}?mode=rwc", file.display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        for sql in [
            "pragma journal_mode = wal",
            "create table t (x)",
            "insert into t values (zeroblob(100000))",
        ] {
            query(sql).execute(&mut connection).await.unwrap();
        }
        let size = |file: &std::path::Path| std::fs::metadata(file).unwrap().len();
        let before = size(&file);
        assert!(log_pages(&mut connection).await.unwrap() > 20);
        assert_eq!(size(&file), before, "looking copies nothing");
        checkpoint(&mut connection).await.unwrap();
        assert!(size(&file) > before + 100_000 && size(&log) > 0);
        truncate_log(&mut connection).await.unwrap();
        assert_eq!(
            (size(&log), log_pages(&mut connection).await.unwrap()),
            (0, 0)
        );
    }
}
