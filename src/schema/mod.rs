//! Compiles schemas when a tool is registered: to check arguments, repair them, and explain violations. It also
//! rewrites schemas for other readers: as parts of an OpenAPI document, or in the basic keywords that providers
//! accept.

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
