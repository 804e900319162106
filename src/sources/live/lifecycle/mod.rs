//! Sources of tools while the service runs. Start with `states.rs`.
//!
//! - `states.rs`: the state of a source, and the table of its transitions
//! - `live_source.rs`: one source with its state, and what readers see of it
//! - `entry.rs`: all sources, each with its declaration and its tasks
//! - `tasks.rs`: starts a source until it is served; lists it again when it reports changed tools
//! - `change.rs`: builds the next catalog, and tells each source what is served of it
//! - `plan.rs`: what a source could serve in the next catalog
//! - `active_listing.rs` selects the tools that are
//!   served, `tools.rs` makes each of them, with its effect
//! - `control.rs`: reads the status of sources, restarts and stops them
//! - `load.rs`: lists sources without serving them
//!
//! Each change holds the lock of the state in [`LiveTools`](super::LiveTools), and rebuilds the
//! catalog from that state.

mod active_listing;
mod change;
mod control;
pub(super) mod entry;
pub(super) mod live_source;
mod load;
mod plan;
mod states;
mod tasks;
mod tools;

pub use control::Restart;
pub(super) use entry::{Sources, snapshot_files};
pub use live_source::{SourceState, SourceView};
pub(crate) use load::{SourceFindings, list_once};
pub use tools::QuarantinedTool;
