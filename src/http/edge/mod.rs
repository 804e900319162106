//! What each connection and request passes before its route.
//!
//! - `server/`: accepts and serves connections, and stops
//! - `limits.rs`: how many connections and how large heads may be
//! - `guard.rs` and `cors.rs`: which hosts and origins may ask
//! - `request_id.rs`: the id of a request
//! - `auth.rs`: the caller
//! - `body.rs`: the body as strict JSON, and why it could not be read; `memory.rs`: the memory for its values

pub(super) mod auth;
pub(super) mod body;
pub(super) mod cors;
pub(super) mod guard;
pub(super) mod limits;
pub(super) mod memory;
pub(super) mod request_id;
pub(super) mod server;
