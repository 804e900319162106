//! Child processes, for the kinds that start some: a program that ends with all that it started (`tree`, `sweep`), and
//! what it writes, told line by line (`lines`; `prints` tells the log). `program` says where one is.

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
