//! Stores results of tools: in memory (moka) first, then in Redis if there is one, then in the ledger. Equal calls in flight run
//! once.
//!
//! This layer is above the limits and the bulkhead, so a stored result costs no unit and never
//! waits. Error results are not stored. Equal calls in flight join the first one and share its
//! result or the failure of its tool. They do not share a refusal, deadline or cancellation of the
//! first caller: in that case the next of them runs.

mod layer;
pub mod page_guard;
mod pages;
mod redis;
mod shared_results;
mod store;
mod tool_cache;

pub use layer::Cached;
pub use pages::PageCache;
pub use redis::RedisAddress;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use redis::fuzzing;
pub use shared_results::Purge;
pub use store::ResultCache;
pub use tool_cache::ToolCache;
