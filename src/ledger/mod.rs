//! The durable record: invocations, failed attempts, counted usage, stored results, switches.
//!
//! One trait, its engines beside it. Every engine passes `contract.rs`.

#[cfg(test)]
mod contract;
#[cfg(test)]
pub(crate) mod memory;
mod record;
mod sqlite;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

pub use record::{AttemptRow, Found, Query, Reservation, ReserveError, Row, State, StoredResult, Switch, UsageRow};

use crate::call::{Charge, Charged, InvocationId};

/// What the service asks of a ledger.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Commits a `reserved` row together with its charges, or neither. Committed when it returns.
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError>;

    /// Writes the end of a call: settles its reserved row, or writes the whole row if there was none. `refunds` gives
    /// units back. Committed when it returns; who need not wait does not await it before answering.
    async fn finish(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error>;

    /// Whether every answer waits for its commit.
    fn is_strict(&self) -> bool;

    /// Returns when everything handed over before is committed.
    async fn flush(&self) -> Result<(), Error>;

    /// Writes a failed try, behind.
    async fn attempt(&self, row: AttemptRow) -> Result<(), Error>;

    /// One call with its failed tries.
    async fn get(&self, id: InvocationId) -> Result<Option<Found>, Error>;

    /// Calls that match, newest first.
    async fn list(&self, query: &Query) -> Result<Vec<Row>, Error>;

    /// Totals per tool and caller; of one caller only, if named.
    async fn usage(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error>;

    /// How far the charges' keys are used in the window of `now`.
    async fn used(&self, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>, Error>;

    /// Forgets what was counted for a tool; of one caller only, if named.
    async fn reset(&self, tool: &str, caller: Option<&str>) -> Result<(), Error>;

    /// A stored result that has not expired at `now`.
    async fn stored(&self, key: &[u8; 32], now: Timestamp) -> Result<Option<StoredResult>, Error>;

    /// Stores a result, behind.
    async fn store(&self, result: StoredResult) -> Result<(), Error>;

    /// Deletes stored results, of one tool or of all; says how many.
    async fn purge(&self, tool: Option<&str>) -> Result<u64, Error>;

    /// Switches that an admin set.
    async fn switches(&self) -> Result<Vec<Switch>, Error>;

    /// Sets a switch; committed when it returns.
    async fn switch(&self, switch: Switch) -> Result<(), Error>;

    /// Whether it can write now; if not, why.
    fn health(&self) -> Result<(), String>;

    /// Writes everything that waits and closes the files.
    async fn close(&self);

    /// What it is, for people: engine and place.
    fn describe(&self) -> String;
}

/// When an answer may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Charged and effectful calls after their commit, all others at once.
    #[default]
    Tiered,
    /// Every call after its commit.
    Strict,
}

/// Where the ledger is and how it writes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `sqlite://FILE`.
    pub url: String,
    /// Relative files start here.
    pub base: PathBuf,
    /// When answers may leave.
    pub durability: Durability,
}

/// Why the ledger failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Not a URL that we can open.
    #[error("ledger {0}: write sqlite://FILE")]
    Url(String),
    /// An engine of a later release.
    #[error("ledger {0}: postgres is not built yet; write sqlite://FILE")]
    NotBuilt(String),
    /// Written by a newer Toolcrib.
    #[error(
        "ledger {place}: written by a newer Toolcrib (schema {found}, this one knows up to {known}); upgrade, or name another file"
    )]
    Newer {
        /// Which.
        place: String,
        /// Its schema version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The file cannot be used.
    #[error("ledger {place}: {reason}")]
    Open {
        /// Which.
        place: String,
        /// Why, and what would help.
        reason: String,
    },
    /// SQLite itself is too old to be trusted.
    #[error("SQLite {0} has the WAL-reset bug; 3.51.3 or newer is needed")]
    OldSqlite(String),
    /// A statement failed.
    #[error("{0}")]
    Failed(String),
    /// The ledger was closed.
    #[error("closed")]
    Closed,
}

/// Opens the ledger that the settings name.
///
/// # Errors
/// When it cannot be opened, is damaged, or belongs to a newer version: a sentence that names the place.
pub async fn open(settings: &Settings, now: Timestamp) -> Result<Arc<dyn Ledger>, Error> {
    let ledger = sqlite::Sqlite::open(&sqlite_file(settings)?, settings.durability, now).await?;
    Ok(Arc::new(ledger))
}

/// Opens a ledger that is there, to read only: whatever is asked of it, the file stays as it is.
///
/// # Errors
/// As [`open`], and when there is no such ledger.
pub async fn open_to_read(settings: &Settings) -> Result<Arc<dyn Ledger>, Error> {
    Ok(Arc::new(sqlite::Sqlite::open_to_read(&sqlite_file(settings)?).await?))
}

fn sqlite_file(settings: &Settings) -> Result<PathBuf, Error> {
    if settings.url.starts_with("postgres://") || settings.url.starts_with("postgresql://") {
        // Not shown in full: it may hold a password.
        return Err(Error::NotBuilt("postgres://…".into()));
    }
    match settings.url.strip_prefix("sqlite://").filter(|file| !file.is_empty()) {
        Some(file) => Ok(settings.base.join(file)),
        None => Err(Error::Url(settings.url.clone())),
    }
}
