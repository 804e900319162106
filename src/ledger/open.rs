//! Selects and opens the ledger that the settings name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Ledger, Watch, sqlite};
use crate::call::InvocationId;

/// When an answer may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Answers of charged calls and of calls with an effect wait for their commit; other answers leave at once.
    #[default]
    Tiered,
    /// Every answer waits for its commit.
    Strict,
}

/// Minimum for the bound on the file, in bytes: several commits must fit into it.
pub const SMALLEST: u64 = 16 << 20;

/// Location and behavior of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The URL of the ledger: `sqlite://FILE`.
    pub url: String,
    /// The folder from which relative file names start.
    pub base: PathBuf,
    /// When an answer may leave.
    pub durability: Durability,
    /// How long calls are kept after their start; `None`: forever.
    pub retention: Option<Duration>,
    /// Bound on the file, in bytes, at least [`SMALLEST`]; `None`: no bound.
    pub max_bytes: Option<u64>,
    /// Whether to use a ledger that has lost acknowledged commits ([`Error::Missing`]).
    pub accept_loss: bool,
}

/// Why the ledger failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The URL has no known form.
    #[error("ledger {0}: write sqlite://FILE")]
    Url(String),
    /// The URL names a database in memory.
    #[error(
        "ledger {0}: there is no ledger in memory; name a file, sqlite://FILE, such as one in a temporary folder, or leave the URL out"
    )]
    InMemory(String),
    /// The URL names an engine of a later release.
    #[error("ledger {0}: postgres is not built yet; write sqlite://FILE")]
    NotBuilt(String),
    /// A newer Toolcrib has written the file.
    #[error(
        "ledger {place}: written by a newer Toolcrib (schema {found}, this one knows up to {known}); upgrade, or name another file"
    )]
    Newer {
        /// The ledger's file.
        place: String,
        /// Schema version of the file.
        found: i64,
        /// Newest schema version that this program knows.
        known: i64,
    },
    /// Acknowledged commits are missing in the file.
    #[error(
        "ledger {place}: {commits} acknowledged commits are missing. The file or its write-ahead log is damaged, or an \
         older copy was put in its place; all files were left as they are. Restore a backup, or start once with \
         --accept-loss to go on without them"
    )]
    Missing {
        /// The ledger's file.
        place: String,
        /// Number of missing commits.
        commits: u64,
    },
    /// The file cannot be used.
    #[error("ledger {place}: {reason}")]
    Open {
        /// The ledger's file.
        place: String,
        /// The reason, and what would help.
        reason: String,
    },
    /// No backup was made.
    #[error("backup {place}: {reason}")]
    Backup {
        /// The file that the backup should have had.
        place: String,
        /// The reason, and what would help.
        reason: String,
    },
    /// This version of SQLite can corrupt the file.
    #[error("SQLite {0} has the WAL-reset bug; 3.51.3 or newer is needed")]
    OldSqlite(String),
    /// The row's content does not match its checksum, so what was written is unknown.
    #[error("the row of call {0} is damaged")]
    Damaged(InvocationId),
    /// A statement failed.
    #[error("{0}")]
    Failed(String),
    /// A write failed in a way that leaves the content of the file uncertain. Nothing is written from now on.
    #[error("the ledger has stopped: {0}")]
    Stopped(String),
    /// The ledger was closed.
    #[error("closed")]
    Closed,
}

/// Opens the ledger that the settings name.
///
/// # Errors
/// When the file cannot be opened, is damaged, or belongs to a newer version. The error is a sentence with the
/// location.
pub async fn open(settings: &Settings, now: Timestamp) -> Result<Arc<dyn Ledger>, Error> {
    open_watched(settings, now, Arc::new(())).await
}

/// Opens the ledger like [`open`]. `watch` gets events of the writer.
///
/// # Errors
/// As [`open`].
pub async fn open_watched(
    settings: &Settings,
    now: Timestamp,
    watch: Arc<dyn Watch>,
) -> Result<Arc<dyn Ledger>, Error> {
    let ledger = sqlite::Sqlite::open(&sqlite_file(settings)?, settings, now, watch).await?;
    Ok(Arc::new(ledger))
}

/// Opens a new ledger in a temporary folder of its own. The folder is deleted with the ledger.
///
/// # Errors
/// As [`open`], and when no temporary folder can be made.
pub async fn open_temporary(
    settings: &Settings,
    now: Timestamp,
    watch: Arc<dyn Watch>,
) -> Result<Arc<dyn Ledger>, Error> {
    let failed =
        |error: std::io::Error| Error::Open { place: "in a temporary folder".into(), reason: error.to_string() };
    // The folder's mode excludes all other users.
    let folder = tempfile::Builder::new().prefix("toolcrib-").tempdir().map_err(failed)?;
    let ledger = sqlite::Sqlite::open(&folder.path().join("toolcrib.db"), settings, now, watch).await?;
    Ok(Arc::new(ledger.in_folder(folder)))
}

/// Opens an existing ledger for reading only. No operation changes the file.
///
/// # Errors
/// As [`open`], and when there is no such file.
pub async fn open_to_read(settings: &Settings) -> Result<Arc<dyn Ledger>, Error> {
    Ok(Arc::new(sqlite::Sqlite::open_to_read(&sqlite_file(settings)?).await?))
}

/// The folder of the ledger's file, in which the service must be able to write; `None` if the URL names no file.
pub fn folder(settings: &Settings) -> Option<PathBuf> {
    let file = std::path::absolute(sqlite_file(settings).ok()?).ok()?;
    file.parent().map(PathBuf::from)
}

fn sqlite_file(settings: &Settings) -> Result<PathBuf, Error> {
    if settings.url.starts_with("postgres://") || settings.url.starts_with("postgresql://") {
        // The URL is not shown in full, because it may hold a password.
        return Err(Error::NotBuilt("postgres://…".into()));
    }
    if is_in_memory(&settings.url) {
        return Err(Error::InMemory(settings.url.clone()));
    }
    match settings.url.strip_prefix("sqlite://").filter(|file| !file.is_empty()) {
        Some(file) => Ok(settings.base.join(file)),
        None => Err(Error::Url(settings.url.clone())),
    }
}

/// Whether a URL means SQLite's database in memory, in any form that SQLite and its clients use
/// (<https://www.sqlite.org/inmemorydb.html>). Taken as the name of a file, it would only surprise.
pub fn is_in_memory(url: &str) -> bool {
    let name = url.strip_prefix("sqlite:").unwrap_or(url).trim_start_matches('/');
    let name = name.strip_prefix("file:").unwrap_or(name);
    let (file, query) = name.split_once('?').unwrap_or((name, ""));
    file == ":memory:" || query.split('&').any(|part| part == "mode=memory" || part == "vfs=memdb")
}

#[cfg(test)]
mod tests {
    use super::super::contract::sqlite::settings;
    use super::*;

    #[test]
    fn a_ledger_writes_into_its_folder() {
        let of = |url: &str, base: &str| folder(&Settings { url: url.into(), base: base.into(), ..settings() });
        assert_eq!(of("sqlite://x/test.db", "/data"), Some("/data/x".into()));
        assert_eq!(of("sqlite:///var/test.db", "/data"), Some("/var".into()));
        assert_eq!(of("sqlite://test.db", ""), std::env::current_dir().ok());
        assert_eq!(of("mysql://test.db", "/data"), None);
    }

    #[test]
    fn a_ledger_in_memory_is_refused() {
        for url in [
            "sqlite://:memory:",
            "sqlite::memory:",
            "sqlite:///:memory:",
            "sqlite://file::memory:?cache=shared",
            "sqlite://x?mode=memory",
        ] {
            let found = sqlite_file(&Settings { url: url.into(), ..settings() });
            assert!(matches!(found, Err(Error::InMemory(_))), "{url}: {found:?}");
        }
        for url in ["sqlite://memory.db", "sqlite://x/memory?", "sqlite://:memory:x"] {
            assert!(!is_in_memory(url), "{url}");
        }
    }
}
