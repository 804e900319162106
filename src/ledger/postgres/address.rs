//! Parses the URL of a shared ledger. Messages never quote the URL, because it may hold a password.

use std::path::Path;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use super::super::Error;

const FORM: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…, with %XX for characters that have a meaning in a URL";

/// The address of the database and the credentials for it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) options: PgConnectOptions,
    /// Host, port and database.
    pub(super) place: String,
}

impl Address {
    /// Parses a URL. Relative names of certificate files start at `base`.
    pub(super) fn parse(url: &str, base: &Path) -> Result<Self, Error> {
        let invalid = |reason: String| Error::Unusable {
            place: "postgres://…".into(),
            reason: format!("{reason}: {FORM}"),
        };
        let parsed = Url::parse(url).map_err(|error| invalid(format!("invalid URL ({error})")))?;
        let mut options = PgConnectOptions::from_str(url)
            .map_err(|_| invalid("not an address of a database".into()))?;
        for (key, value) in parsed.query_pairs() {
            options = match &*key {
                "sslrootcert" => options.ssl_root_cert(base.join(&*value)),
                "sslcert" => options.ssl_client_cert(base.join(&*value)),
                "sslkey" => options.ssl_client_key(base.join(&*value)),
                _ => options,
            };
        }
        if options.get_application_name().is_none() {
            options = options.application_name("toolcrib");
        }
        let host = match options.get_socket() {
            Some(folder) => folder.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let place = format!("{host}/{}", options.get_database().unwrap_or_default());
        Ok(Self {
            // PgBouncer refuses this parameter, unless its settings name it.
            options: options.extra_float_digits(None).disable_statement_logging(),
            place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_only_the_place() {
        let place = |url: &str| Address::parse(url, Path::new("/etc")).map(|found| found.place);
        assert_eq!(
            place("postgres://u:pa%40ss@db.example:5433/crib?sslmode=verify-full").unwrap(),
            "db.example:5433/crib"
        );
        for url in [
            "postgres://u:hunter2@db:port/crib",
            "postgres://u:hunter2@db/crib?sslmode=hunter2",
        ] {
            let error = place(url).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("write postgres://USER"), "{error}");
        }
    }
}
