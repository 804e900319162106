//! Child processes, for the kinds that start some: a program that ends with all that it started (`tree`, `sweep`), and
//! what it writes, told line by line (`lines`).

mod lines;
mod sweep;
mod tree;

pub(super) use lines::Lines;
pub(super) use sweep::{Mark, Sweeps};
pub(super) use tree::ProcessTree;
