//! Supplies what a PostgreSQL URL omits, from the same variables as libpq. They come from the
//! service's copy of its environment. sqlx would read the environment of the process, which is
//! empty by then.

use std::net::IpAddr;

use url::Url;

use super::address::SSL_MODES;

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
