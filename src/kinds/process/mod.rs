//! Child processes, for the kinds of tools that need them, and their output.
//!
//! The crate `toolcrib-process` starts and ends them.
//!
//! - `line_throttle`: splits output into lines, and bounds their number.
//! - `stderr_log`: hands the standard error of a long-lived program to the log.

mod line_throttle;
mod stderr_log;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

pub(crate) use line_throttle::{LineThrottle, OutputLine};
pub(crate) use stderr_log::{StderrLog, redact_line};
pub(crate) use toolcrib_process::sandbox::Launch;
pub(crate) use toolcrib_process::{
    OrphanReaper, ProcessMarker, ProcessTree, is_executable_file, which,
};

use crate::call::ToolContext;

/// Names the call to a program, and to all that it starts. The orphan reaper also finds escaped processes
/// by it.
pub(crate) const INVOCATION_VARIABLE: &str = "TOOLCRIB_INVOCATION";
/// The number of the attempt, from 1.
pub(crate) const ATTEMPT_VARIABLE: &str = "TOOLCRIB_ATTEMPT";

/// The marker of the programs of a call.
pub(crate) fn call_marker(context: &ToolContext) -> ProcessMarker {
    ProcessMarker::new([
        (INVOCATION_VARIABLE, context.invocation_id.to_string()),
        (ATTEMPT_VARIABLE, context.attempt.to_string()),
    ])
}

/// How a process has ended. `subject` names the process.
pub(crate) fn describe_exit(subject: &str, status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("{subject} ended with exit status {code}"),
        (None, Some(9)) => {
            format!("{subject} was killed (SIGKILL), perhaps because memory ran out")
        }
        (None, _) => format!("{subject} ended by {status}"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
