//! Starts child processes for the kinds of tools that need them, ends them, and reads their output.
//!
//! - `process_tree`: a running program; when it ends, everything that it started ends too.
//! - `orphan_reaper`: finds and kills the processes that left the program's process group.
//! - `line_throttle`: splits output into lines, and bounds their number.
//! - `stderr_log`: hands the standard error of a long-lived program to the log.
//! - `program`: finds the file of a program.

mod line_throttle;
mod orphan_reaper;
mod process_tree;
mod program;
mod stderr_log;

pub(super) use line_throttle::{LineThrottle, OutputLine};
pub(super) use orphan_reaper::{OrphanReaper, ProcessMarker};
pub(super) use process_tree::ProcessTree;
pub(super) use program::{is_executable_file, which};
pub(super) use stderr_log::{StderrLog, redact_line};

#[cfg(test)]
pub(super) mod tests;
