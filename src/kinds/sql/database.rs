//! The databases of the service. Tools with the same database and the same access share its
//! connections.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::statement::Dialect;
use super::{postgres, sqlite};

/// The address in `database:`.
pub(super) enum Address {
    /// The file of a SQLite database.
    Sqlite(PathBuf),
    /// A PostgreSQL server.
    Postgres(Box<postgres::ServerAddress>),
}

/// The databases of the tools that are built together.
#[derive(Default)]
pub struct Databases {
    sqlite: Mutex<HashMap<(PathBuf, bool), Arc<sqlite::Database>>>,
    /// By URL.
    postgres: Mutex<HashMap<String, Arc<postgres::Database>>>,
    /// The values for what a PostgreSQL URL omits.
    defaults: postgres::Defaults,
    /// Whether statements are not checked on servers.
    skips_servers: bool,
}

impl Address {
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }
}

impl Databases {
    /// An empty collection. `variable` reads the service's environment variables (`PGHOST` and so
    /// on), which complete PostgreSQL URLs. With `skips_servers`, statements are only checked on files.
    pub fn new(variable: impl Fn(&str) -> Option<String>, skips_servers: bool) -> Self {
        Self {
            defaults: postgres::Defaults::new(variable),
            skips_servers,
            ..Self::default()
        }
    }

    /// Whether a statement can be checked on this database now.
    pub(super) fn is_probed(&self, address: &Address) -> bool {
        !self.skips_servers || matches!(address, Address::Sqlite(_))
    }

    /// Parses a URL. The error never quotes it, because it may hold a password.
    pub(super) fn parse_address(&self, url: &str, base: &Path) -> Result<Address, String> {
        if let Some(file) = url.strip_prefix("sqlite://") {
            return match file {
                "" => {
                    Err("the URL names no file: write sqlite://FILE; a relative path starts at the manifest's folder"
                        .into())
                }
                ":memory:" => Err("a database in memory would be empty: write sqlite://FILE".into()),
                file if file.contains('?') => {
                    Err("sqlite://FILE takes no options: the effect of the tool decides whether it may write".into())
                }
                file => {
                    let file = base.join(file);
                    Ok(Address::Sqlite(std::path::absolute(&file).unwrap_or(file)))
                }
            };
        }
        if ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return postgres::ServerAddress::parse(url, base, &self.defaults)
                .map(|server| Address::Postgres(Box::new(server)));
        }
        Err("write sqlite://FILE or postgres://USER@HOST/DATABASE".into())
    }

    /// The connections to a SQLite file, for reading or for writing.
    pub(super) fn sqlite_database(&self, file: PathBuf, writes: bool) -> Arc<sqlite::Database> {
        let mut known = self.sqlite.lock();
        let database = || Arc::new(sqlite::Database::new(file.clone(), writes));
        known
            .entry((file.clone(), writes))
            .or_insert_with(database)
            .clone()
    }

    /// The connections to a PostgreSQL server. Tools that read and tools that write share them:
    /// each transaction declares its access.
    pub(super) fn postgres_database(
        &self,
        url: &str,
        server: postgres::ServerAddress,
    ) -> Arc<postgres::Database> {
        let mut known = self.postgres.lock();
        known
            .entry(url.to_owned())
            .or_insert_with(|| Arc::new(postgres::Database::new(server)))
            .clone()
    }
}
