//! Parses a PostgreSQL URL. Error messages never quote it, because it may hold a password.

use std::path::Path;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use super::defaults::Defaults;
use crate::text::suggest::{MIN_HINT_RATIO, closest_name};

/// The options that are permitted after the `?`, as in libpq.
const URL_OPTIONS: [&str; 12] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
pub(super) const SSL_MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// The address of a database and the credentials for it.
#[derive(Clone)]
pub(in crate::kinds::sql) struct ServerAddress {
    pub(super) options: PgConnectOptions,
    /// Host, port and database. Messages show no other part of the address.
    pub(super) display_name: String,
}

impl ServerAddress {
    /// Parses a URL. Relative files in it start at `base`. `defaults` supplies what the URL omits.
    pub(in crate::kinds::sql) fn parse(
        url: &str,
        base: &Path,
        defaults: &Defaults,
    ) -> Result<Self, String> {
        const SHAPE: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for characters that have a meaning \
                             in a URL";
        let read = Url::parse(url).map_err(|error| format!("invalid URL ({error}): {SHAPE}"))?;
        for (key, value) in read.query_pairs() {
            if !URL_OPTIONS.contains(&&*key) {
                let suggestion = closest_name(&key, URL_OPTIONS, MIN_HINT_RATIO)
                    .map(|suggestion| format!(", did you mean {suggestion}?"));
                return Err(format!(
                    "unknown option `{key}`{}",
                    suggestion.unwrap_or_default()
                ));
            }
            if key == "sslmode" && !SSL_MODES.contains(&&*value) {
                return Err(format!("sslmode must be one of {}", SSL_MODES.join(", ")));
            }
        }
        let complete = defaults.complete_url(&read);
        let mut options = PgConnectOptions::from_str(complete.as_str())
            .map_err(|_| format!("not an address of a database: {SHAPE}"))?;
        for (key, value) in read.query_pairs() {
            options = match &*key {
                "sslrootcert" => options.ssl_root_cert(base.join(&*value)),
                "sslcert" => options.ssl_client_cert(base.join(&*value)),
                "sslkey" => options.ssl_client_key(base.join(&*value)),
                _ => options,
            };
        }
        // Settings from the start of the connection survive `reset all`. With the first one, only a
        // transaction that declares `read write` can change data. Without the second one, notices
        // would get into the log, and they may hold values.
        options = options.options([
            ("default_transaction_read_only", "on"),
            ("client_min_messages", "error"),
        ]);
        if options.get_application_name().is_none() {
            options = options.application_name("toolcrib");
        }
        let host = match options.get_socket() {
            Some(folder) => folder.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let place = format!("{host}/{}", options.get_database().unwrap_or_default());
        // sqlx would log statements, and slow ones as warnings.
        Ok(Self {
            options: options.disable_statement_logging(),
            display_name: place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<String, String> {
        ServerAddress::parse(url, Path::new("/etc"), &Defaults::default())
            .map(|server| server.display_name)
    }

    #[test]
    fn url_errors_never_quote_the_url() {
        assert_eq!(
            parse("postgres://u:pa%40ss@db.example:5433/shop?sslmode=verify-full").unwrap(),
            "db.example:5433/shop"
        );
        assert_eq!(
            parse("postgresql://u@db.example/shop").unwrap(),
            "db.example:5432/shop"
        );
        assert_eq!(
            parse("postgres:///shop?host=/run/pg&user=u").unwrap(),
            "/run/pg/shop"
        );
        for (url, expected) in [
            (
                "postgres://u:hunter2@db:port/shop",
                "invalid URL (invalid port number)",
            ),
            (
                "postgres://u:hunter2@db/shop?sslmod=require",
                "unknown option `sslmod`, did you mean sslmode?",
            ),
            (
                "postgres://u:hunter2@db/shop?sslmode=yes",
                "sslmode must be one of disable, allow",
            ),
            (
                "postgres://u:hunter2@db/shop?port=hunter2",
                "not an address of a database",
            ),
        ] {
            let error = parse(url).unwrap_err();
            assert!(
                error.starts_with(expected) && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
