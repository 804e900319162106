//! Starts child processes for the kinds of tools that need them, ends them, and reads their output.
//!
//! - `tree`: a running program; when it ends, everything that it started ends too.
//! - `sweep`: finds and kills the processes that left the program's process group.
//! - `lines`: splits output into lines, and bounds their number.
//! - `prints`: hands the standard error of a long-lived program to the log.
//! - `program`: finds the file of a program.

mod lines;
mod prints;
mod program;
mod sweep;
mod tree;

pub(super) use lines::{Line, Lines};
pub(super) use prints::{Prints, clean};
pub(super) use program::{along, is_program};
pub(super) use sweep::{Mark, Sweeps};
pub(super) use tree::ProcessTree;

#[cfg(test)]
pub(super) mod tests;
