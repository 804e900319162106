//! What all sources share of the service around them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use percent_encoding::percent_decode_str;
use url::Url;

use super::http::OwnPorts;
use super::process::Sweeps;
use crate::environment::Environment;
use crate::secrets::Redactor;

/// See the module.
#[derive(Clone)]
pub struct Surroundings {
    /// Takes secrets out of what goes to the log and of what is said when a module does not load.
    pub redactor: Arc<Redactor>,
    /// For finding programs and building virtual environments; no worker of a Python module sees it.
    pub variables: BTreeMap<OsString, OsString>,
    /// Where the service listens, which no source is reached at.
    pub own: OwnPorts,
    sweeps: Arc<Mutex<Weak<Sweeps>>>,
}

/// Whoever holds this last waits until all MCP servers have ended.
pub struct Ends {
    _sweeps: Arc<Sweeps>,
}

/// Variables of the service that are told to what finds an interpreter, to pip, and to MCP servers.
const PASSED_ON: [&str; 16] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// How the settings of pip, uv and npm begin, which say where packages are from and where they are kept.
const PACKAGES: [&str; 4] = ["PIP_", "UV_", "npm_config_", "NPM_CONFIG_"];

/// How the names of those end that are secrets themselves, in upper case.
const SECRET: [&str; 4] = ["PASSWORD", "TOKEN", "AUTH", "SECRET"];

impl Surroundings {
    /// What of the program's variables concerns others: its path, home, caches, proxies and certificates, and the
    /// settings of package managers. What is secret in them the redactor learns.
    pub fn new(redactor: Arc<Redactor>, environment: &Environment) -> Self {
        let passed_on = |name: &OsStr| {
            let is_known =
                |name: &str| PASSED_ON.contains(&name) || PACKAGES.iter().any(|start| name.starts_with(start));
            name.to_str().is_some_and(is_known)
        };
        let variables = environment.iter().filter(|(name, _)| passed_on(name));
        let variables: BTreeMap<_, _> = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let texts = variables.iter().filter_map(|(name, value)| name.to_str().zip(value.to_str()));
        let secrets: Vec<String> = texts.flat_map(|(name, value)| secrets(name, value)).collect();
        redactor.learn(secrets.iter().map(String::as_str));
        Self { redactor, variables, own: OwnPorts::default(), sweeps: Arc::default() }
    }

    /// The same around a service that listens, or will listen, at these ports.
    #[must_use]
    pub fn of_service_at(self, own: OwnPorts) -> Self {
        Self { own, ..self }
    }

    /// To be held as long as the service runs: the end of a server that was taken out of it is waited for with the others,
    /// at the end of all, and not by the last call on it.
    pub fn ends(&self) -> Ends {
        Ends { _sweeps: self.sweeps() }
    }

    /// One for all MCP servers that are there together: the last of them to go waits, when all were asked to end.
    pub(in crate::tools) fn sweeps(&self) -> Arc<Sweeps> {
        let mut shared = self.sweeps.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let sweeps = Arc::new(Sweeps::new());
            *shared = Arc::downgrade(&sweeps);
            sweeps
        })
    }
}

/// What is secret in a variable that is passed on: all of it, going by its name, and who URLs in it say that we are.
fn secrets(name: &str, value: &str) -> Vec<String> {
    let name = name.to_ascii_uppercase();
    let is_secret = PACKAGES.iter().any(|start| name.starts_with(&start.to_ascii_uppercase()))
        && SECRET.iter().any(|end| name.ends_with(end));
    let mut found: Vec<String> = is_secret.then(|| value.to_owned()).into_iter().collect();
    // Lists of indexes are set apart by spaces, and may have names: `name=https://…`.
    for part in value.split_whitespace() {
        let Some((before, _)) = part.split_once("://") else { continue };
        let scheme =
            before.rsplit(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).next().unwrap_or_default();
        let Ok(url) = Url::parse(&part[before.len() - scheme.len()..]) else { continue };
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        match (decoded(url.username()), url.password()) {
            // A token may stand alone.
            (user, None) => found.extend(Some(user).filter(|user| !user.is_empty())),
            (user, Some(password)) => {
                let both = format!("{}:{password}", url.username());
                found.extend([decoded(password), format!("{user}:{}", decoded(password)), both]);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_package_managers_and_proxies_are_secrets() {
        for (name, value, expected) in [
            ("NPM_CONFIG__AUTH", "dXNlcjpwdw==", &["dXNlcjpwdw=="][..]),
            ("npm_config_//registry.example/:_authToken", "npm_abc", &["npm_abc"]),
            ("UV_INDEX_OURS_PASSWORD", "p w", &["p w"]),
            ("UV_KEYRING_PROVIDER", "subprocess", &[]),
            ("PIP_INDEX_URL", "https://index.example/simple", &[]),
            ("PIP_INDEX_URL", "https://me:p%40ss@index.example/simple", &["p@ss", "me:p@ss", "me:p%40ss"]),
            ("UV_INDEX", "a=https://x.example é=https://u:pw@y.example", &["pw", "u:pw", "u:pw"]),
            ("PIP_EXTRA_INDEX_URL", "https://tok%2Den@x.example/ -", &["tok-en"]),
            ("HTTPS_PROXY", "http://u:pw@proxy.example:3128", &["pw", "u:pw", "u:pw"]),
            ("PATH", "/bin:/usr/bin", &[]),
        ] {
            assert_eq!(secrets(name, value), expected, "{name}={value}");
        }
    }
}
