//! What the replicas that share a ledger know of each other.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::call::InvocationId;

/// A process that has opened the ledger and has not ended.
#[derive(Debug, Clone)]
pub struct ReplicaRow {
    /// The id of the process, new at each start.
    pub replica: Arc<str>,
    /// The version of the program.
    pub version: String,
    /// When the process opened the ledger.
    pub started_at: Timestamp,
    /// When the ledger last heard of the process.
    pub seen_at: Timestamp,
    /// Number of calls under way at that time.
    pub running: u32,
}

/// A change that concerns all replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedChange {
    /// Switches or registered tools have changed.
    Tools,
    /// The stored results of this tool were deleted; without a name, those of all tools.
    Purged(Option<String>),
    /// The replica that runs this call should cancel it.
    Cancel {
        /// The call.
        call: InvocationId,
        /// The caller that asks; `None`: an admin.
        caller: Option<String>,
    },
}

/// The last answered call of a run, as a replica tells it to the others. The ledger keeps no such
/// entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredCall {
    /// Identifies the caller and its run.
    pub run: [u8; 32],
    /// Identifies equal calls.
    pub call: [u8; 32],
    /// The call.
    pub invocation: InvocationId,
    /// Time since its answer. The clocks of replicas differ, so it is not a moment.
    pub age: Duration,
}
