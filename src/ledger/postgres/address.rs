//! Parses the URL of a shared ledger. Messages never quote the URL, because it may hold a password.

use std::path::Path;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use super::super::Error;
use crate::call::words;

const FORM: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…, with %XX for characters that have a meaning in a URL";
const SSL_MODES: [&str; 6] = words("disable allow prefer require verify-ca verify-full");
/// The parameter of libpq that says which server of several is wanted.
const SESSION_ATTRS: &str = "target_session_attrs";

/// The addresses of the database and the credentials for it.
pub(super) struct Address {
    /// In the order of the URL, at least one.
    pub(super) servers: Vec<ServerAddress>,
    /// Whether only a server that accepts writes is of use.
    pub(super) requires_primary: bool,
    /// All hosts and ports, and the database.
    pub(super) place: String,
}

/// The address of one server.
pub(super) struct ServerAddress {
    pub(super) options: PgConnectOptions,
    /// Host and port.
    pub(super) place: String,
}

impl Address {
    /// Parses a URL. Relative names of certificate files start at `base`.
    pub(super) fn parse(url: &str, base: &Path) -> Result<Self, Error> {
        let invalid = |reason: String| Error::InvalidUrl {
            place: "postgres://…".into(),
            reason: format!("{reason}: {FORM}"),
        };
        let urls = split_hosts(url);
        let mut requires_primary = urls.len() > 1;
        let mut servers = Vec::with_capacity(urls.len());
        for url in &urls {
            let mut parsed =
                Url::parse(url).map_err(|error| invalid(format!("invalid URL ({error})")))?;
            if urls.len() > 1 && parsed.host_str().is_none_or(str::is_empty) {
                return Err(invalid("a host of the list is missing".into()));
            }
            if let Some(attributes) = take_parameter(&mut parsed, SESSION_ATTRS) {
                requires_primary |= wants_primary(&attributes).map_err(invalid)?;
            }
            check_tls_parameters(&parsed).map_err(invalid)?;
            if has_host_list(&parsed) {
                return Err(invalid("several hosts belong before the database".into()));
            }
            let options = parse_options(&parsed, base)
                .map_err(|_| invalid("not an address of a database".into()))?;
            let place = match options.get_socket() {
                Some(folder) => folder.display().to_string(),
                None => format!("{}:{}", options.get_host(), options.get_port()),
            };
            servers.push(ServerAddress { options, place });
        }
        let hosts: Vec<&str> = servers.iter().map(|server| &*server.place).collect();
        let database = servers
            .first()
            .and_then(|server| server.options.get_database());
        let place = format!("{}/{}", hosts.join(","), database.unwrap_or_default());
        Ok(Self {
            servers,
            requires_primary,
            place,
        })
    }
}

/// Checks the form of a URL.
pub(in super::super) fn check_url(url: &str) -> Result<(), Error> {
    Address::parse(url, Path::new("")).map(drop)
}

/// Makes one URL for each host of a URL that lists several, as libpq has them:
/// `postgres://USER@HOST:PORT,HOST:PORT/DATABASE`.
pub(crate) fn split_hosts(url: &str) -> Vec<String> {
    let start = url.find("://").map_or(0, |at| at + "://".len());
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    let first = url[start..end]
        .rfind('@')
        .map_or(start, |at| start + at + 1);
    let one = |host: &str| format!("{}{host}{}", &url[..first], &url[end..]);
    url[first..end].split(',').map(one).collect()
}

/// Removes a parameter of the URL. Returns its value.
fn take_parameter(url: &mut Url, name: &str) -> Option<String> {
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let value = pairs.iter().rfind(|(key, _)| key == name)?.1.clone();
    let others = pairs.iter().filter(|(key, _)| key != name);
    url.query_pairs_mut().clear().extend_pairs(others);
    Some(value)
}

/// Whether this value of `target_session_attrs` excludes a server that only reads.
fn wants_primary(attributes: &str) -> Result<bool, String> {
    match attributes {
        "any" => Ok(false),
        "read-write" | "primary" => Ok(true),
        _ => Err(format!(
            "{SESSION_ATTRS} must be read-write, because the ledger writes"
        )),
    }
}

/// Whether a parameter names several hosts, which the driver would take for one name.
fn has_host_list(url: &Url) -> bool {
    url.query_pairs()
        .any(|(key, value)| matches!(&*key, "host" | "hostaddr" | "port") && value.contains(','))
}

/// Refuses parameters of TLS that are misspelt. Ignored ones would make the connection less secure.
fn check_tls_parameters(url: &Url) -> Result<(), String> {
    for (key, value) in url.query_pairs() {
        match &*key {
            "sslmode" if !SSL_MODES.contains(&&*value) => {
                return Err(format!("sslmode must be one of {}", SSL_MODES.join(", ")));
            }
            "sslmode" | "sslrootcert" | "sslcert" | "sslkey" => {}
            _ if key.starts_with("ssl") => {
                return Err(format!(
                    "unknown parameter `{key}`; those of TLS are sslmode, sslrootcert, sslcert and sslkey"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn parse_options(url: &Url, base: &Path) -> Result<PgConnectOptions, sqlx::Error> {
    let mut options = PgConnectOptions::from_str(url.as_str())?;
    for (key, value) in url.query_pairs() {
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
    // PgBouncer refuses this parameter, unless its settings name it.
    Ok(options.extra_float_digits(None).disable_statement_logging())
}

#[cfg(test)]
mod tests {
    use super::super::servers::Servers;
    use super::*;

    fn parse(url: &str) -> Result<Address, Error> {
        Address::parse(url, Path::new("/etc"))
    }

    fn refusal(url: &str) -> String {
        let error = parse(url).err().unwrap().to_string();
        assert!(error.contains("write postgres://USER"), "{error}");
        error
    }

    #[test]
    fn messages_show_only_the_place() {
        let place = |url: &str| parse(url).map(|found| found.place);
        assert_eq!(
            place("postgres://u:pa%40ss@db.example:5433/crib?sslmode=verify-full").unwrap(),
            "db.example:5433/crib"
        );
        for url in [
            "postgres://u:hunter2@db:port/crib",
            "postgres://u:hunter2@db/crib?sslmode=hunter2",
            "postgres://u:hunter2@db,db2:port/crib",
            "postgres://u:hunter2@db/crib?target_session_attrs=hunter2",
        ] {
            let error = refusal(url);
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn misspelt_parameters_of_tls_are_refused() {
        for (parameter, wanted) in [
            ("sslmode=foo", "sslmode must be one of disable, allow"),
            ("sslmod=require", "unknown parameter `sslmod`"),
        ] {
            let error = refusal(&format!("postgres://u@db/crib?{parameter}"));
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn url_lists_several_servers() {
        let found = parse(
            "postgres://u:a,b@db1.example,[::1]:5433/crib?sslrootcert=ca.crt&target_session_attrs=read-write",
        )
        .unwrap();
        assert_eq!(found.place, "db1.example:5432,[::1]:5433/crib");
        assert!(found.requires_primary);
        for server in &found.servers {
            assert_eq!(server.options.get_username(), "u");
            assert_eq!(server.options.get_database(), Some("crib"));
            let options = format!("{:?}", server.options);
            assert!(options.contains("/etc/ca.crt"), "{options}");
        }
        let servers = Servers::new(found);
        assert_eq!(servers.place(), "db1.example:5432,[::1]:5433/crib");
        for url in [
            "postgres://u@db1,,db2/crib",
            "postgres://u@db1,:5433/crib",
            "postgres://u@/crib?host=db1,db2",
        ] {
            assert!(refusal(url).contains("host"), "{url}");
        }
        for parameter in ["host=db1,db2", "hostaddr=10.0.0.1,10.0.0.2"] {
            let error = refusal(&format!("postgres://u@db0/crib?{parameter}"));
            assert!(error.contains("several hosts"), "{error}");
        }
    }

    #[test]
    fn files_of_tls_start_from_the_folder_of_the_manifest() {
        let url = "postgres://u@db/crib?sslrootcert=ca.crt&sslcert=own.crt&sslkey=/run/own.key";
        let found = parse(url).unwrap();
        let options = format!("{:?}", found.servers[0].options);
        for file in ["\"/etc/ca.crt\"", "\"/etc/own.crt\"", "\"/run/own.key\""] {
            assert!(options.contains(file), "{file}: {options}");
        }
        let options = parse("postgres://u@db/crib?sslkey=own.key").unwrap();
        let options = format!("{:?}", options.servers[0].options);
        assert!(options.contains("\"/etc/own.key\""), "{options}");
    }

    #[test]
    fn standby_is_of_no_use() {
        let requires_primary = |url: &str| parse(url).unwrap().requires_primary;
        assert!(!requires_primary("postgres://u@db/crib"));
        assert!(requires_primary("postgres://u@db1,db2/crib"));
        assert!(requires_primary(
            "postgres://u@db/crib?target_session_attrs=primary"
        ));
        for value in ["standby", "prefer-standby", "read-only", "writable"] {
            let error = refusal(&format!(
                "postgres://u@db1,db2/crib?target_session_attrs={value}"
            ));
            assert!(error.contains("must be read-write"), "{error}");
        }
    }
}
