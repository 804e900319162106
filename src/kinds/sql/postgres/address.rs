//! Parses a PostgreSQL URL. Error messages never quote it, because it may hold a password.

use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::call::words;
use crate::text::suggest::{MIN_HINT_RATIO, closest_name};

/// The options that are permitted after the `?`, as in libpq.
const URL_OPTIONS: [&str; 12] = words(
    "sslmode sslrootcert sslcert sslkey host hostaddr port dbname user password
     application_name options",
);
pub(super) const SSL_MODES: [&str; 6] = words("disable allow prefer require verify-ca verify-full");

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

/// Each variable with the URL option of the same meaning. An earlier one takes precedence.
const VARIABLES: [(&str, &str); 10] = [
    ("PGHOSTADDR", "hostaddr"),
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGUSER", "user"),
    ("PGDATABASE", "dbname"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGAPPNAME", "application_name"),
];

/// URL options with the values of their variables.
#[derive(Default)]
pub(in crate::kinds::sql) struct Defaults(Vec<(&'static str, String)>);

impl Defaults {
    /// Reads the variables. An invalid value is ignored.
    pub(in crate::kinds::sql) fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let option = |(name, option)| {
            Some((
                option,
                variable(name).filter(|value| is_valid_value(option, value))?,
            ))
        };
        Self(VARIABLES.into_iter().filter_map(option).collect())
    }

    /// The URL, completed with the variables' values for options that it omits.
    pub(super) fn complete_url(&self, url: &Url) -> Url {
        let mut complete = url.clone();
        for (option, value) in &self.0 {
            if !has_option(&complete, option) {
                complete.query_pairs_mut().append_pair(option, value);
            }
        }
        complete
    }
}

fn is_valid_value(option: &str, value: &str) -> bool {
    match option {
        "hostaddr" => value.parse::<IpAddr>().is_ok(),
        "port" => value.parse::<u16>().is_ok(),
        "sslmode" => SSL_MODES.contains(&value),
        _ => true,
    }
}

/// Whether the URL has this option, or another part with the same meaning.
fn has_option(url: &Url, option: &str) -> bool {
    let is_host = |option: &str| ["host", "hostaddr"].contains(&option);
    let in_front = match option {
        "host" | "hostaddr" => url.host_str().is_some_and(|host| !host.is_empty()),
        "port" => url.port().is_some(),
        "user" => !url.username().is_empty(),
        "dbname" => !url.path().trim_start_matches('/').is_empty(),
        _ => false,
    };
    in_front
        || url
            .query_pairs()
            .any(|(key, _)| key == option || is_host(&key) && is_host(option))
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

    fn complete(url: &str, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).into())
        };
        Defaults::new(variable)
            .complete_url(&Url::parse(url).unwrap())
            .into()
    }

    #[test]
    fn variables_complete_urls() {
        let host = ("PGHOST", "/run/pg");
        for (url, variables, expected) in [
            (
                "postgres://u@db:1/shop?sslmode=require",
                &[][..],
                "postgres://u@db:1/shop?sslmode=require",
            ),
            (
                "postgres:///shop",
                &[host],
                "postgres:///shop?host=%2Frun%2Fpg",
            ),
            (
                "postgres:///shop",
                &[host, ("PGHOSTADDR", "::1")],
                "postgres:///shop?hostaddr=%3A%3A1",
            ),
            (
                "postgres:///shop",
                &[host, ("PGHOSTADDR", "db")],
                "postgres:///shop?host=%2Frun%2Fpg",
            ),
            (
                "postgres:///shop?hostaddr=::1",
                &[host],
                "postgres:///shop?hostaddr=::1",
            ),
            (
                "postgres://db",
                &[("PGPORT", "6000"), ("PGUSER", "a b")],
                "postgres://db?port=6000&user=a+b",
            ),
            (
                "postgres://u@db:1/shop",
                &[host, ("PGPORT", "2"), ("PGUSER", "v"), ("PGDATABASE", "d")],
                "postgres://u@db:1/shop",
            ),
            (
                "postgres://db/",
                &[("PGDATABASE", "shop")],
                "postgres://db/?dbname=shop",
            ),
            (
                "postgres://db/d",
                &[("PGPORT", "x"), ("PGSSLMODE", "yes")],
                "postgres://db/d",
            ),
            (
                "postgres://db/d",
                &[("PGPASSWORD", "hunter2"), ("PGOPTIONS", "-c a=b")],
                "postgres://db/d",
            ),
        ] {
            assert_eq!(complete(url, variables), expected, "{variables:?}");
        }
    }
}
