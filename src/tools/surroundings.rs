//! What all sources share of the service around them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use crate::secrets::Redactor;

/// See the module.
#[derive(Clone)]
pub struct Surroundings {
    /// Takes secrets out of what goes to the log and of what is said when a module does not load.
    pub redactor: Arc<Redactor>,
    /// For finding programs and building virtual environments; no worker of a Python module sees it.
    pub variables: BTreeMap<OsString, OsString>,
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

impl Surroundings {
    /// Those of this process: its path, home, caches, proxies and certificates, and the settings of package managers.
    pub fn of_this_process(redactor: Arc<Redactor>) -> Self {
        let passed_on = |name: &OsString| {
            let is_known =
                |name: &str| PASSED_ON.contains(&name) || PACKAGES.iter().any(|start| name.starts_with(start));
            name.to_str().is_some_and(is_known)
        };
        Self { redactor, variables: std::env::vars_os().filter(|(name, _)| passed_on(name)).collect() }
    }
}
