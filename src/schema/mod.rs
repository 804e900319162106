//! Compiles schemas when a tool is registered: to check arguments, repair them, and explain
//! violations. It also rewrites schemas for other readers: as parts of an OpenAPI document, or in
//! the basic keywords that providers accept.

mod answers;
mod bounded_pattern;
mod bounds;
mod coerce;
mod compiled;
mod components;
mod definition_faults;
mod explain;
mod fault;
mod graph;
#[cfg(test)]
mod hostile_tests;
mod keywords;
mod meter;
mod metered;
mod owner;
#[cfg(test)]
mod owner_tests;
mod page_fields;
mod patterns;
mod relax;
mod sample;
#[cfg(test)]
mod tests;
mod whole_numbers;
mod write_only;

pub use answers::check_answer;
pub use compiled::{FitError, Schema};
pub use components::{split_components, to_identifier, to_standalone};
pub use explain::too_costly;
pub use fault::SchemaFault;
pub(crate) use keywords::local_target;
pub use keywords::{KeywordKind, keyword_kind};
pub use meter::{INLINE_STEPS, MAX_STEPS, Meter, StopReason};
pub use metered::value_weight;
pub use owner::SchemaOwner;
pub use page_fields::PageFields;
pub(crate) use patterns::{PatternUse, pattern_use};
pub use relax::{describe_unjudged_patterns, relax};
pub use sample::sample_value;
pub use write_only::has_write_only;
