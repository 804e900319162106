//! Callers and the tools that they may use.
//!
//! - `callers.rs`: callers and their keys
//! - `tool_pattern.rs`: patterns that select tools; `deny_list.rs`: the tools that a request denies

pub mod callers;
pub(crate) mod deny_list;
pub(crate) mod tool_pattern;
