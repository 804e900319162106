//! What each connection and request passes before its route.
//!
//! - `server/`: accepts and serves connections, and stops
//! - `limits.rs`: how many connections and how large heads may be
//! - `guard.rs` and `cors.rs`: which hosts and origins may ask
//! - `request_id.rs`: the id of a request
//! - `auth.rs`: the caller
//! - `body.rs`: the body as strict JSON; `memory.rs`: the memory for its values
//! - `request_error.rs`: why a request could not be read

pub(super) mod auth;
pub(super) mod body;
pub(super) mod cors;
pub(super) mod guard;
pub(super) mod limits;
pub(super) mod memory;
pub(super) mod request_error;
pub(super) mod request_id;
pub(super) mod server;
