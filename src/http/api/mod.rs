//! The routes, one file or folder for each noun. They have no rules: a route reads a request, asks
//! the registry, the ledger or the sources, and writes the answer. `wire.rs` has the forms that
//! several routes answer with.

pub(super) mod audit;
pub(super) mod calls;
pub(super) mod event_feed;
pub(super) mod health;
pub(super) mod invocations;
pub(super) mod metrics;
pub(super) mod replicas;
pub(super) mod sources;
pub(super) mod toolbox;
pub(super) mod tools;
pub(super) mod usage;
pub(super) mod wire;
