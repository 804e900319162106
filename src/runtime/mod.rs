//! Functions around the process: start, file handles, blocking work, waits.
//!
//! - `init.rs` and `file_handles.rs` are for a program's `main`.
//! - `blocking.rs` runs blocking work; `backoff.rs` computes waits between attempts.

pub(crate) mod backoff;
pub(crate) mod blocking;
pub mod file_handles;
pub mod init;

/// Restricts the programs that tools start. Call it after [`init::run_as_init`].
pub use toolcrib_process::confine_process;
