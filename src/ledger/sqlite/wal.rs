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
