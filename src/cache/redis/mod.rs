//! Results in Redis, which services share also without a common ledger.
//!
//! A slow or dead Redis fails no call. Each request has a short time limit. After a failure no call
//! sends one until a task in the background has a new connection, and the task waits longer after each
//! failure.
//!
//! A purge writes a number for its tool to one hash, whose numbers only rise. A result carries the
//! number of the time when its call started, and counts only while that number is the newest. Each
//! service reads the hash every second, so that it also deletes its own results.

mod address;
mod client;
mod entry;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod purges;

pub use address::RedisAddress;
pub(super) use client::RedisResults;
