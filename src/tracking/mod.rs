//! What the service remembers about calls while it runs.
//!
//! - `in_flight.rs`: the table of running calls
//! - `runs.rs`: recent calls of each run

pub mod in_flight;
pub mod runs;
