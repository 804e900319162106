//! The settings of the ledger.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When an answer may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Answers of charged calls and of calls with an effect wait for their commit; other answers
    /// are sent at once.
    #[default]
    Tiered,
    /// Every answer waits for its commit.
    Strict,
}

/// What is served while the ledger cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenDown {
    /// No call is served.
    #[default]
    Refuse,
    /// Cached answers are served, and reads without a limit and without a key.
    ServeReads,
}

/// Minimum for the bound on the file, in bytes: several commits must fit into it.
pub const MIN_SIZE_BOUND: u64 = 16 << 20;

/// Location and behavior of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The URL of the ledger: `postgres://…`, `sqlite://FILE`, or only the file.
    pub url: String,
    /// The folder from which relative file names start.
    pub base: PathBuf,
    /// When an answer may be sent.
    pub durability: Durability,
    /// What is served while the ledger cannot write.
    pub when_down: WhenDown,
    /// How long calls are kept after their start; `None`: forever.
    pub retention: Option<Duration>,
    /// Bound on the file, in bytes, at least [`MIN_SIZE_BOUND`]; `None`: no bound.
    pub max_bytes: Option<u64>,
    /// Whether to use a ledger that has lost acknowledged commits ([`MissingCommits`](super::Error::MissingCommits)).
    pub accept_loss: bool,
}
