//! Holds the current catalog and replaces it.
//!
//! - `tool_registry.rs` holds the catalog, and starts calls in it.
//! - `name_allocation.rs` decides which tools get the names that they want, and checks the names of
//!   registered tools.
//! - `tool_invoker.rs` starts the calls that tools make.
//! - `recorded_calls.rs` and `cached_results.rs` read results that are stored.

mod cached_results;
mod name_allocation;
pub(crate) mod recorded_calls;
mod tool_invoker;
mod tool_registry;

pub use self::name_allocation::NameTaken;
pub(crate) use self::name_allocation::conflict_advice;
pub use self::name_allocation::{Allocation, Placement, RejectedTool, SkippedTool, SourceTools};
pub use self::tool_registry::{ChangeError, DesiredState, MAX_REGISTERED, Registry};
pub use crate::catalog::{Catalog, Entry, NameMatch, NewCall, ResolveError, UnlistedSource};
