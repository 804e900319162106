//! Schemas, compiled once when a tool is registered: checking arguments, mending them, and explaining what is wrong. And
//! schemas as others read them: as parts of an OpenAPI document, or in the plain words that providers take.

mod bounds;
mod coerce;
mod compiled;
mod components;
mod explain;
mod graph;
#[cfg(test)]
mod hostile_tests;
mod meter;
mod metered;
mod page_fields;
mod patterns;
mod references;
#[cfg(test)]
mod tests;
mod write_only;

pub use compiled::{Schema, SchemaFault, Unfit};
pub use components::{components, identifier, standalone};
pub use explain::too_much;
pub use meter::{INLINE_STEPS, MAX_STEPS, Meter, Stop};
pub use metered::weight;
pub use page_fields::PageFields;
