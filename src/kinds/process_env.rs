//! What all sources share with the service: the redactor, environment variables, the service's
//! ports, and the shutdown.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use url::Url;

use super::http::{HttpClients, OwnPorts, TokenSources};
use super::process::OrphanReaper;
use super::sandbox::Sandboxes;
use crate::call::words;
use crate::environment::Environment;
use crate::secrets::Redactor;

/// The part of the service that every source gets.
#[derive(Clone)]
pub struct ProcessEnv {
    /// Removes secrets from the log and from the messages of modules that fail to load.
    pub redactor: Arc<Redactor>,
    /// Environment variables for finding programs, for building virtual environments and for MCP
    /// servers. Workers of Python modules do not get them.
    pub variables: BTreeMap<OsString, OsString>,
    /// The ports of the service. No source may be at one of them.
    pub own_ports: OwnPorts,
    /// The access tokens of all sources and tools.
    pub token_sources: TokenSources,
    /// What the sandboxes of all programs share.
    pub sandboxes: Sandboxes,
    orphan_reaper: Arc<Mutex<Weak<OrphanReaper>>>,
}

/// The service's variables that are passed to the search for an interpreter, to pip, and to MCP
/// servers.
const PASSED_VARIABLES: [&str; 16] = words(
    "PATH HOME LANG TMPDIR XDG_CACHE_HOME XDG_DATA_HOME SSL_CERT_FILE SSL_CERT_DIR
     REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS http_proxy https_proxy no_proxy HTTP_PROXY
     HTTPS_PROXY NO_PROXY",
);

/// The prefixes of the settings of pip, uv and npm. They set where packages come from and where
/// they are kept.
const PACKAGE_MANAGER_PREFIXES: [&str; 4] = ["PIP_", "UV_", "npm_config_", "NPM_CONFIG_"];

/// The suffixes of the settings whose values are secrets, in upper case.
const SECRET_SUFFIXES: [&str; 4] = ["PASSWORD", "TOKEN", "AUTH", "SECRET"];

impl ProcessEnv {
    /// Selects the variables that are passed on: path, home, caches, proxies, certificates, and the
    /// settings of package managers. The redactor learns the secrets in them.
    pub fn new(redactor: Arc<Redactor>, environment: &Environment) -> Self {
        let is_passed = |name: &OsStr| {
            let is_known = |name: &str| {
                PASSED_VARIABLES.contains(&name)
                    || PACKAGE_MANAGER_PREFIXES
                        .iter()
                        .any(|start| name.starts_with(start))
            };
            name.to_str().is_some_and(is_known)
        };
        let variables = environment.iter().filter(|(name, _)| is_passed(name));
        let variables: BTreeMap<_, _> = variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let texts = variables
            .iter()
            .filter_map(|(name, value)| name.to_str().zip(value.to_str()));
        let secrets: Vec<String> = texts
            .flat_map(|(name, value)| secrets_in_variable(name, value))
            .collect();
        redactor.add_secrets(secrets.iter().map(String::as_str));
        let token_sources = TokenSources::default();
        token_sources.set_redactor(&redactor);
        Self {
            redactor,
            variables,
            own_ports: OwnPorts::default(),
            token_sources,
            sandboxes: Sandboxes::default(),
            orphan_reaper: Arc::default(),
        }
    }

    /// The same for a service with these ports, token sources and sandboxes. The redactor of the token
    /// sources is the one of this value from now on.
    #[must_use]
    pub fn for_service(
        self,
        own_ports: OwnPorts,
        token_sources: TokenSources,
        sandboxes: Sandboxes,
    ) -> Self {
        token_sources.set_redactor(&self.redactor);
        Self {
            own_ports,
            token_sources,
            sandboxes,
            ..self
        }
    }

    /// New HTTP clients for a source.
    pub(crate) fn http_clients(&self) -> HttpClients {
        HttpClients::new(self.own_ports.clone(), self.token_sources.clone())
    }

    /// The reaper that all MCP servers share. So all servers are first asked to end, and then the
    /// drop of the last reference waits for all of them. The service holds one for its life: removed
    /// servers are then awaited at shutdown, instead of by their last call.
    pub(crate) fn orphan_reaper(&self) -> Arc<OrphanReaper> {
        let mut shared = self.orphan_reaper.lock();
        shared.upgrade().unwrap_or_else(|| {
            let reaper = Arc::new(OrphanReaper::default());
            *shared = Arc::downgrade(&reaper);
            reaper
        })
    }
}

/// The secrets in a variable that is passed on: the whole value if the name says so, and the
/// credentials in its URLs.
fn secrets_in_variable(name: &str, value: &str) -> Vec<String> {
    let name = name.to_ascii_uppercase();
    let is_secret = PACKAGE_MANAGER_PREFIXES
        .iter()
        .any(|start| name.starts_with(&start.to_ascii_uppercase()))
        && SECRET_SUFFIXES.iter().any(|end| name.ends_with(end));
    let mut secrets: Vec<String> = is_secret.then(|| value.to_owned()).into_iter().collect();
    // Lists of indexes are separated by spaces, and an entry may have a name: `name=https://…`.
    for part in value.split_whitespace() {
        let Some((before, _)) = part.split_once("://") else {
            continue;
        };
        let scheme = before
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
            .next()
            .unwrap_or_default();
        let Ok(url) = Url::parse(&part[before.len() - scheme.len()..]) else {
            continue;
        };
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        match (decoded(url.username()), url.password()) {
            // A user without a password may be a token.
            (user, None) => secrets.extend(Some(user).filter(|user| !user.is_empty())),
            (user, Some(password)) => {
                let both = format!("{}:{password}", url.username());
                secrets.extend([
                    decoded(password),
                    format!("{user}:{}", decoded(password)),
                    both,
                ]);
            }
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_manager_and_proxy_credentials_are_secrets() {
        for (name, value, expected) in [
            ("NPM_CONFIG__AUTH", "dXNlcjpwdw==", &["dXNlcjpwdw=="][..]),
            (
                "npm_config_//registry.example/:_authToken",
                "npm_abc",
                &["npm_abc"],
            ),
            ("UV_INDEX_OURS_PASSWORD", "p w", &["p w"]),
            ("UV_KEYRING_PROVIDER", "subprocess", &[]),
            ("PIP_INDEX_URL", "https://index.example/simple", &[]),
            (
                "PIP_INDEX_URL",
                "https://me:p%40ss@index.example/simple",
                &["p@ss", "me:p@ss", "me:p%40ss"],
            ),
            (
                "UV_INDEX",
                "a=https://x.example é=https://u:pw@y.example",
                &["pw", "u:pw", "u:pw"],
            ),
            (
                "PIP_EXTRA_INDEX_URL",
                "https://tok%2Den@x.example/ -",
                &["tok-en"],
            ),
            (
                "HTTPS_PROXY",
                "http://u:pw@proxy.example:3128",
                &["pw", "u:pw", "u:pw"],
            ),
            ("PATH", "/bin:/usr/bin", &[]),
        ] {
            assert_eq!(secrets_in_variable(name, value), expected, "{name}={value}");
        }
    }
}
