//! Which databases there are: tools with the same one, read in the same way, share its connections.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::statement::Dialect;
use super::{postgres, sqlite};

/// What `database:` says.
pub(super) enum Address {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<postgres::Server>),
}

/// The databases of the tools that are built together.
#[derive(Default)]
pub struct Databases {
    sqlite: Mutex<HashMap<(PathBuf, bool), Arc<sqlite::Database>>>,
    /// By their URLs.
    postgres: Mutex<HashMap<String, Arc<postgres::Database>>>,
    /// What URLs of PostgreSQL leave out.
    defaults: postgres::Defaults,
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
    /// None yet. The service's variables say what URLs of PostgreSQL leave out (`PGHOST` and the like).
    pub fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self { defaults: postgres::Defaults::new(variable), ..Self::default() }
    }

    /// Reads a URL. Never quotes it: it may hold a password.
    pub(super) fn address(&self, url: &str, base: &Path) -> Result<Address, String> {
        if let Some(file) = url.strip_prefix("sqlite://") {
            return match file {
                "" => {
                    Err("no file is named: write sqlite://FILE; a relative one starts at the manifest's folder".into())
                }
                ":memory:" => Err("a database in memory would be empty: write sqlite://FILE".into()),
                file if file.contains('?') => {
                    Err("sqlite://FILE takes no options: whether the tool may write is said by its effect".into())
                }
                file => {
                    let file = base.join(file);
                    Ok(Address::Sqlite(std::path::absolute(&file).unwrap_or(file)))
                }
            };
        }
        if ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return postgres::Server::parse(url, base, &self.defaults)
                .map(|server| Address::Postgres(Box::new(server)));
        }
        Err("write sqlite://FILE or postgres://USER@HOST/DATABASE".into())
    }

    /// The file's connections.
    pub(super) fn sqlite(&self, file: PathBuf, writes: bool) -> Arc<sqlite::Database> {
        let mut known = self.sqlite.lock().unwrap_or_else(PoisonError::into_inner);
        let database = || Arc::new(sqlite::Database::new(file.clone(), writes));
        known.entry((file.clone(), writes)).or_insert_with(database).clone()
    }

    /// The server's connections. Whether a tool may write is said anew for each of its transactions.
    pub(super) fn postgres(&self, url: &str, server: postgres::Server) -> Arc<postgres::Database> {
        let mut known = self.postgres.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(url.to_owned()).or_insert_with(|| Arc::new(postgres::Database::new(server))).clone()
    }
}
