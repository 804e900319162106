//! Holds the current catalog and replaces it.
//!
//! - `tool_registry.rs` holds the catalog, and starts calls in it.
//! - `name_allocation.rs` decides which sources get their names.
//! - `tool_invoker.rs` starts the calls that tools make.
//! - `recorded_calls.rs` and `cached_results.rs` read results that are stored.

mod cached_results;
mod name_allocation;
pub(crate) mod recorded_calls;
mod tool_invoker;
mod tool_registry;

pub(crate) use self::name_allocation::conflict_advice;
pub use self::name_allocation::{Placement, RejectedTool, SourceTools};
pub use self::tool_registry::{
    ChangeError, DesiredState, MAX_REGISTERED, Registry, Replaced, SkippedTool,
};
pub use crate::catalog::{Catalog, Entry, NameMatch, NewCall, ResolveError, UnlistedSource};
