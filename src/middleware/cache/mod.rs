//! Stored results: moka in front, the ledger behind, one flight for equal calls.
//!
//! Above limits and bulkhead, so that a cached answer is free and never waits. Only results that said yes are stored.
//! Equal calls in flight join the first: its result, or its tool's failure, is theirs too; its caller's refusal,
//! deadline or cancellation is not, and then the next in line runs.

mod layer;
mod pages;
mod shelf;
mod store;

pub use layer::Cached;
pub use pages::PageShelf;
pub use shelf::Shelf;
pub use store::ResultCache;
