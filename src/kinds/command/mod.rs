//! Runs tools that are programs (`kind: command`), each call as a child process.
//!
//! There is no shell, and the environment holds only declared variables. A value stays within one
//! argument or goes to standard input. So it needs no quoting and cannot break out. When an attempt
//! ends, everything that it started ends too.
//!
//! `config` checks the manifest keys. `argv` has the items of the command line in the manifest;
//! `argv`, `item_text` and `variables` encode values, and `SizeLimit` bounds their size. `run`
//! feeds the program and reads its output. `output` and `output_file` build the result. `runner` makes
//! one attempt.

mod argv;
mod config;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod item_text;
mod output;
mod output_file;
mod run;
mod runner;
mod variables;

pub use self::argv::{CommandItem, EachItem, WhenItem};
pub use self::config::{Config, build};
pub use self::output::Output;

#[cfg(test)]
mod tests;
