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
const PASSED_ON: [&str; 13] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

impl Surroundings {
    /// Those of this process: its path, home, proxies and certificates, and the settings of pip (`PIP_…`).
    pub fn of_this_process(redactor: Arc<Redactor>) -> Self {
        let passed_on =
            |name: &OsString| name.to_str().is_some_and(|name| PASSED_ON.contains(&name) || name.starts_with("PIP_"));
        Self { redactor, variables: std::env::vars_os().filter(|(name, _)| passed_on(name)).collect() }
    }
}
