//! The tools and callers at one moment: names lead to stacks, keys lead to callers.
//!
//! A catalog in use never changes; `catalog/registry/` replaces it as a whole. So a task that holds a
//! catalog sees one consistent state. An entry lives as long as a call runs in its stack.
//!
//! - `tool_catalog.rs` is the catalog, `entry.rs` one tool of it.
//! - `build.rs` builds entries, and keeps the stack of an unchanged tool.
//! - `new_call.rs` makes the invocation of a call, for all entry points.
//! - `resolve.rs` finds the tool that a name means.
//! - `tool_index.rs` finds tools by words; `discovery.rs` shortens lists.
//! - `registry/` holds the current catalog, replaces it, and starts calls in it.

mod build;
mod discovery;
mod entry;
mod new_call;
pub mod registry;
mod resolve;
mod tool_catalog;
mod tool_index;

pub(crate) use self::build::BuildEnv;
pub use self::entry::{Entry, definition_hash};
pub use self::new_call::NewCall;
pub use self::resolve::{NameMatch, ResolveError};
pub use self::tool_catalog::{Catalog, UnlistedSource};
