//! The reasons why a service cannot be built or started.

use std::net::SocketAddr;

use crate::kinds::BuildError;
use crate::manifest::Finding;
use crate::sources::live;
use crate::{ledger, metrics};

/// Why a service could not be built or started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest has errors. The findings give positions and messages.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifest(Vec<Finding>),
    /// A tool cannot be registered.
    #[error(transparent)]
    Tool(#[from] BuildError),
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// The service cannot listen on the address.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address as it was given.
        listen: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Other machines could reach the service, and it has no keys.
    #[error(
        "{0} can be reached from other machines and there are no callers, so any client could run these tools: declare \
         callers with keys in the manifest, listen on 127.0.0.1, or use --allow-open (server.allow_open: true)"
    )]
    Unprotected(SocketAddr),
    /// `server.sandbox` demands what this machine cannot hold.
    #[error(
        "server.sandbox is `required`, but the sandbox of `{tool}` cannot be enforced: {reason}"
    )]
    Sandbox {
        /// The tool.
        tool: String,
        /// What cannot be enforced, and why.
        reason: String,
    },
    /// The metrics cannot be set up.
    #[error("the metrics cannot be set up: {0}")]
    Metrics(#[from] metrics::Error),
    /// Telemetry cannot be set up.
    #[error("{0}")]
    Telemetry(String),
    /// There is no such toolset.
    #[error("{0}")]
    Toolset(String),
    /// A reload would have removed all callers of a service that has some.
    #[error("the manifest no longer has callers; restart the service if this is intended")]
    CallersRemoved,
    /// The process cannot watch for signals.
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    /// The system gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

impl From<live::Error> for Error {
    fn from(error: live::Error) -> Self {
        match error {
            live::Error::Manifest(findings) => Self::Manifest(findings),
            live::Error::Tool(error) => Self::Tool(error),
            live::Error::Ledger(error) => Self::Ledger(error),
            live::Error::CallersRemoved => Self::CallersRemoved,
        }
    }
}
