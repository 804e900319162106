//! Child processes, for the kinds of tools that need them, and their output.
//!
//! The crate `toolcrib-process` starts and ends them.
//!
//! - `line_throttle`: splits output into lines, and bounds their number.
//! - `stderr_log`: hands the standard error of a long-lived program to the log.

mod line_throttle;
mod stderr_log;

pub(super) use line_throttle::{LineThrottle, OutputLine};
pub(super) use stderr_log::{StderrLog, redact_line};
pub(super) use toolcrib_process::{
    OrphanReaper, ProcessMarker, ProcessTree, is_executable_file, which,
};

#[cfg(test)]
pub(super) mod tests;
