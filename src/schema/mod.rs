//! Schemas, compiled once when a tool is registered: checking arguments, mending them, and explaining what is wrong. And
//! schemas as others read them: as parts of an OpenAPI document, or in the plain words that providers take.

mod coerce;
mod compiled;
mod components;
mod explain;
mod references;
#[cfg(test)]
mod tests;
mod write_only;

pub use compiled::{Fitting, Schema, SchemaFault};
pub use components::{components, identifier, standalone};
