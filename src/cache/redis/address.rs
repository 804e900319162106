//! Reads `cache.redis`. Messages never quote the URL, because it may hold a password.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use url::Url;

/// The address of a Redis server, with the user and the password.
#[derive(Clone, PartialEq, Eq, derive_more::Debug, derive_more::Display)]
#[display("{shown}")]
#[debug("RedisAddress({self})")]
pub struct RedisAddress {
    url: Url,
    /// The address for log lines, without the user and the password.
    shown: String,
}

impl RedisAddress {
    /// Reads a URL: `redis://`, `rediss://` for TLS, or `unix://` for a socket.
    ///
    /// # Errors
    /// A sentence on what is expected.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text)
            .map_err(|_| "a URL is expected, e.g. redis://:PASSWORD@HOST:6379/0; a password must be percent-encoded")?;
        if !["redis", "rediss", "unix"].contains(&url.scheme()) {
            return Err(
                "the URL must begin with redis://, with rediss:// for TLS, or with unix://",
            );
        }
        if url.fragment().is_some() {
            return Err("a URL of Redis has no part after `#`: certificates are always checked");
        }
        let is_socket = url.scheme() == "unix";
        if !is_socket && url.host_str().is_none_or(str::is_empty) {
            return Err("the URL names no host, e.g. redis://HOST:6379");
        }
        if !is_socket && url.query().is_some() {
            return Err(
                "a URL of Redis has no part after `?`: write redis://:PASSWORD@HOST:6379/0",
            );
        }
        let info = connection_info(&url).ok_or(
            "after the host, only the number of a database is expected, e.g. redis://HOST:6379/0",
        )?;
        let number = info.redis_settings().db();
        let shown = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}/{number}")
            }
            other => format!("{other}/{number}"),
        };
        Ok(Self { url, shown })
    }

    /// The password, which must not stand in any output.
    pub fn password(&self) -> Option<String> {
        let info = connection_info(&self.url)?;
        info.redis_settings().password().map(str::to_owned)
    }

    pub(super) fn connection_info(&self) -> Option<ConnectionInfo> {
        connection_info(&self.url)
    }
}

fn connection_info(url: &Url) -> Option<ConnectionInfo> {
    url.clone().into_connection_info().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (url, shown, password) in [
            ("redis://cache.test", "cache.test:6379/0", None),
            (
                "redis://:a%2Fb@cache.test:7000/3",
                "cache.test:7000/3",
                Some("a/b"),
            ),
            (
                "rediss://user:secret@cache.test",
                "cache.test:6379/0",
                Some("secret"),
            ),
            (
                "unix:///run/redis.sock?db=2&pass=secret",
                "/run/redis.sock/2",
                Some("secret"),
            ),
        ] {
            let address = RedisAddress::parse(url).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.password().as_deref(), password);
            assert_eq!(format!("{address:?}"), format!("RedisAddress({shown})"));
        }
    }

    #[test]
    fn unusable_addresses_are_explained() {
        for (url, part) in [
            ("cache.test:6379", "begin with redis://"),
            ("/run/redis.sock", "a URL is expected"),
            ("http://cache.test", "begin with redis://"),
            ("redis://:sec/ret@cache.test", "percent-encoded"),
            ("redis://", "no host"),
            ("redis://cache.test/results", "number of a database"),
            ("rediss://cache.test#insecure", "always checked"),
            ("redis://cache.test?password=secret", "part after `?`"),
        ] {
            let message = RedisAddress::parse(url).unwrap_err();
            assert!(message.contains(part), "{url}: {message}");
            assert!(!message.contains("secret") && !message.contains("sec/ret"));
        }
    }
}
