//! Schemas, compiled once when a tool is registered: checking arguments, mending them, and explaining what is wrong.

mod coerce;
mod compiled;
mod explain;
mod references;
#[cfg(test)]
mod tests;
mod write_only;

pub use compiled::{Fitting, Schema, SchemaFault};
