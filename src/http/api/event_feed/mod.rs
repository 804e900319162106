//! `GET /events`: what happens in the service, for operators.
//!
//! - `route.rs`: the handler
//! - `shared.rs`: what all streams share
//! - `stream.rs`: the events of one subscriber
//! - `resume.rs`: the ended calls that a subscriber has missed, from the ledger
//! - `changes.rs`: notices changed tools and sources
//! - `replicas.rs`: calls that other replicas have ended

mod changes;
mod replicas;
mod resume;
mod route;
pub(crate) mod shared;
mod stream;

pub(in crate::http) use self::route::{__path_get_events, get_events};
