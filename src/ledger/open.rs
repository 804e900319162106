//! Selects and opens the ledger that the settings name.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::transfer::End;
use super::{Error, Ledger, LedgerObserver, Settings, postgres, sqlite};

/// What a URL looks like.
const FORM: &str =
    "write a file, such as toolcrib.db or sqlite://toolcrib.db, or postgres://USER@HOST/DATABASE";

/// Opens the ledger that the settings name.
///
/// # Errors
/// When the file or the database cannot be opened, is damaged, or belongs to a newer version. The
/// error is a sentence with the location.
pub async fn open(settings: &Settings, now: Timestamp) -> Result<Arc<dyn Ledger>, Error> {
    open_with_observer(settings, now, Arc::new(())).await
}

/// Opens the ledger like [`open`]. `observer` gets events of the writer.
///
/// # Errors
/// As [`open`].
pub async fn open_with_observer(
    settings: &Settings,
    now: Timestamp,
    observer: Arc<dyn LedgerObserver>,
) -> Result<Arc<dyn Ledger>, Error> {
    if is_shared_url(&settings.url) {
        let ledger = postgres::PostgresLedger::open(settings, observer).await?;
        return Ok(Arc::new(ledger));
    }
    let ledger =
        sqlite::SqliteLedger::open(&sqlite_path(settings)?, settings, now, observer).await?;
    Ok(Arc::new(ledger))
}

/// Opens a new ledger in a temporary folder of its own. The folder is deleted with the ledger.
///
/// # Errors
/// As [`open`], and when no temporary folder can be made.
pub async fn open_temporary(
    settings: &Settings,
    now: Timestamp,
    observer: Arc<dyn LedgerObserver>,
) -> Result<Arc<dyn Ledger>, Error> {
    let explain = |error: std::io::Error| Error::unusable("in a temporary folder", error);
    // The folder's mode excludes all other users.
    let folder = tempfile::Builder::new()
        .prefix("toolcrib-")
        .tempdir()
        .map_err(explain)?;
    let ledger =
        sqlite::SqliteLedger::open(&folder.path().join("toolcrib.db"), settings, now, observer)
            .await?;
    Ok(Arc::new(ledger.with_temporary_folder(folder)))
}

/// Opens an existing ledger for reading only. No operation changes the file.
///
/// # Errors
/// As [`open`], and when there is no such file.
pub async fn open_read_only(settings: &Settings) -> Result<Arc<dyn Ledger>, Error> {
    if is_shared_url(&settings.url) {
        let ledger = postgres::PostgresLedger::open_read_only(settings).await?;
        return Ok(Arc::new(ledger));
    }
    let path = existing_path(
        settings,
        "; the first call in its folder makes it, and --ledger names another",
    )?;
    Ok(Arc::new(sqlite::SqliteLedger::open_read_only(&path).await?))
}

/// The path of a file that exists. `advice` completes the message about one that does not.
fn existing_path(settings: &Settings, advice: &str) -> Result<PathBuf, Error> {
    let path = sqlite_path(settings)?;
    if std::fs::metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Err(Error::unusable(
            path.display(),
            format!("there is no such file{advice}"),
        ));
    }
    Ok(path)
}

/// Opens an existing ledger as the source of a move.
pub(super) async fn open_source(
    settings: &Settings,
    now: Timestamp,
) -> Result<Box<dyn End>, Error> {
    if !is_shared_url(&settings.url) {
        existing_path(settings, "")?;
    }
    open_end(settings, now).await
}

/// Opens a ledger as one side of a move. Calls that a crash has interrupted become `unknown`.
pub(super) async fn open_end(settings: &Settings, now: Timestamp) -> Result<Box<dyn End>, Error> {
    if is_shared_url(&settings.url) {
        return Ok(Box::new(postgres::Exclusive::open(settings, now).await?));
    }
    let path = sqlite_path(settings)?;
    Ok(Box::new(sqlite::open_alone(&path, now, settings).await?))
}

/// Checks the form of a URL, and opens nothing.
///
/// # Errors
/// When the URL can name no ledger.
pub fn check_url(url: &str) -> Result<(), Error> {
    if is_shared_url(url) {
        return postgres::check_url(url);
    }
    sqlite_file(url).map(drop)
}

/// The folder of the ledger's file, in which the service must be able to write; `None` if the URL
/// names no file.
pub fn ledger_folder(settings: &Settings) -> Option<PathBuf> {
    ledger_file(settings)?.parent().map(PathBuf::from)
}

/// The file of a ledger on SQLite.
pub fn ledger_file(settings: &Settings) -> Option<PathBuf> {
    std::path::absolute(sqlite_path(settings).ok()?).ok()
}

fn sqlite_path(settings: &Settings) -> Result<PathBuf, Error> {
    sqlite_file(&settings.url).map(|file| settings.base.join(file))
}

/// The file of a URL of SQLite.
fn sqlite_file(url: &str) -> Result<&str, Error> {
    // The URL of a database is not shown in full, because it may hold a password.
    let invalid = |place: &str| Error::InvalidUrl {
        place: place.into(),
        reason: FORM.into(),
    };
    if is_shared_url(url) {
        return Err(invalid("postgres://…"));
    }
    if is_in_memory_url(url) {
        return Err(Error::InMemory(url.into()));
    }
    let file = match url.strip_prefix("sqlite://") {
        Some(file) => Some(file),
        None => (!has_scheme(url)).then_some(url),
    };
    file.filter(|file| !file.is_empty())
        .ok_or_else(|| invalid(url))
}

/// Whether a URL names a PostgreSQL database, which replicas may share.
pub fn is_shared_url(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Whether a text begins like a URL (RFC 3986, section 3.1), not like the path of a file.
fn has_scheme(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    text.split_once(':')
        .is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Whether a URL means SQLite's database in memory, in any form that SQLite and its clients use
/// (<https://www.sqlite.org/inmemorydb.html>). Taken as the name of a file, it would only surprise.
pub fn is_in_memory_url(url: &str) -> bool {
    let name = url
        .strip_prefix("sqlite:")
        .unwrap_or(url)
        .trim_start_matches('/');
    let name = name.strip_prefix("file:").unwrap_or(name);
    let (file, query) = name.split_once('?').unwrap_or((name, ""));
    file == ":memory:"
        || query
            .split('&')
            .any(|part| part == "mode=memory" || part == "vfs=memdb")
}

#[cfg(test)]
mod tests {
    use super::super::contract::sqlite::settings;
    use super::*;

    #[test]
    fn folder_is_the_parent_of_the_file() {
        let folder_of = |url: &str, base: &str| {
            ledger_folder(&Settings {
                url: url.into(),
                base: base.into(),
                ..settings()
            })
        };
        assert_eq!(
            folder_of("sqlite://x/test.db", "/data"),
            Some("/data/x".into())
        );
        assert_eq!(
            folder_of("sqlite:///var/test.db", "/data"),
            Some("/var".into())
        );
        assert_eq!(
            folder_of("sqlite://test.db", ""),
            std::env::current_dir().ok()
        );
        assert_eq!(folder_of("mysql://test.db", "/data"), None);
        assert_eq!(folder_of("/var/x/test.db", "/data"), Some("/var/x".into()));
        assert_eq!(folder_of("test.db", "/data"), Some("/data".into()));
        assert_eq!(
            folder_of("./a:b/test.db", "/data"),
            Some("/data/./a:b".into())
        );
    }

    #[test]
    fn other_urls_are_refused() {
        for url in [
            "mysql://x.db",
            "sqlite:x.db",
            "sqlite://",
            "",
            "file:x.db",
            "C:x.db",
        ] {
            let found = sqlite_path(&Settings {
                url: url.into(),
                ..settings()
            });
            assert!(
                matches!(found, Err(Error::InvalidUrl { .. })),
                "{url}: {found:?}"
            );
        }
    }

    #[test]
    fn in_memory_urls_are_refused() {
        for url in [
            "sqlite://:memory:",
            "sqlite::memory:",
            "sqlite:///:memory:",
            "sqlite://file::memory:?cache=shared",
            "sqlite://x?mode=memory",
        ] {
            let found = sqlite_path(&Settings {
                url: url.into(),
                ..settings()
            });
            assert!(matches!(found, Err(Error::InMemory(_))), "{url}: {found:?}");
        }
        for url in [
            "sqlite://memory.db",
            "sqlite://x/memory?",
            "sqlite://:memory:x",
        ] {
            assert!(!is_in_memory_url(url), "{url}");
        }
    }
}
