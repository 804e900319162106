//! The settings of both connections that write.

use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

/// How long a statement waits for another process that writes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of the log's file when the log restarts, in bytes: 16 MiB.
const MAX_LOG_BYTES: &str = "16777216";

/// Maximum memory for pages, in KiB. Rows of many callers and tools go to as many places of each
/// index. With SQLite's default of 2 MB, each commit would read these pages again.
const CACHE_KIB: u32 = 32_000;

/// For the connection of sqlx.
pub(super) fn writer_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        // The writer makes the checkpoints; see `wal.rs`.
        .pragma("wal_autocheckpoint", "0")
        // A long read can make the log long. When the log restarts, its file is cut to this length.
        .pragma("journal_size_limit", MAX_LOG_BYTES)
        .disable_statement_logging()
}

/// For the connection of rusqlite, which opens a file that has its journal mode already.
pub(super) fn writer_pragmas() -> String {
    format!(
        "pragma synchronous = full; pragma foreign_keys = on; pragma wal_autocheckpoint = 0; \
         pragma journal_size_limit = {MAX_LOG_BYTES}; pragma cache_size = -{CACHE_KIB}"
    )
}

/// Sets the bound that SQLite itself enforces.
pub(super) fn bound_size(max_bytes: u64, page_size: i64) -> String {
    // SQLite counts pages in 32 bits.
    let pages = (max_bytes / page_size.unsigned_abs().max(1)).clamp(1, 0xffff_fffe);
    format!("pragma max_page_count = {pages}")
}
