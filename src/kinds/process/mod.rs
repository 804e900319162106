//! Child processes, for the kinds of tools that need them, and their output.
//!
//! The crate `toolcrib-process` starts and ends them.
//!
//! - `line_throttle`: splits output into lines, and bounds their number.
//! - `stderr_log`: hands the standard error of a long-lived program to the log.

mod line_throttle;
mod stderr_log;

pub(crate) use line_throttle::{LineThrottle, OutputLine};
pub(crate) use stderr_log::{StderrLog, redact_line};
pub(crate) use toolcrib_process::{
    OrphanReaper, ProcessMarker, ProcessTree, is_executable_file, which,
};

#[cfg(test)]
pub(crate) mod tests;
