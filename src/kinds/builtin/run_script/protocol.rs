//! What the service and the process of a script say to each other: one line of JSON for each message.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::JsonObject;

/// The argument by which this program runs a script. It is no command for people.
pub(crate) const WORKER_ARGUMENT: &str = "run-script-worker";

/// The first line: the script, and its bounds.
#[derive(Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) code: String,
    /// Calls of tools.
    pub(super) calls: u32,
    /// Milliseconds of computing.
    pub(super) time: u64,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// Bytes of the result, of the arguments of one call, and of all that is printed.
    pub(super) output: usize,
}

/// What the script does.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    /// It uses a name that may be a tool's. The script waits for [`Reply::Function`].
    Lookup(String),
    Call {
        /// The position of the call in the script: the same in each run that makes the same calls.
        id: u32,
        name: String,
        arguments: JsonObject,
    },
    Print(String),
    Done {
        value: Value,
        /// Calls whose results the script never used.
        unused: Vec<u32>,
    },
    /// What went wrong, with its line and column.
    Failed(String),
}

/// What the service answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// The names of the function's parameters; `None`: there is no such function.
    Function(Option<Vec<String>>),
    Result(u32, Value),
    Error(u32, String),
}
