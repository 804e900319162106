//! What the service remembers about calls while it runs.
//!
//! - `events/`: events of calls for the subscribers of `GET /events`
//! - `in_flight.rs`: the table of running calls
//! - `questions.rs`: questions of running tools
//! - `run_news.rs`: what other replicas are told of runs
//! - `runs.rs`: recent calls of each run

pub mod events;
pub mod in_flight;
pub mod questions;
pub mod run_news;
pub mod runs;
