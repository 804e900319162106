//! `GET /events`: what happens in the service, for operators.
//!
//! - `route.rs`: the handler
//! - `stream.rs`: the events of one subscriber; it also notices changed tools and sources
//! - `resume.rs`: the ended calls that a subscriber has missed, from the ledger
//! - `replicas.rs`: calls that other replicas have ended

pub(in crate::http) mod replicas;
mod resume;
mod route;
mod stream;

pub(in crate::http) use self::route::{__path_get_events, get_events};
