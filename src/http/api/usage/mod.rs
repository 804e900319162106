//! `GET /usage`: counts of calls, by tool (`route.rs`) and by time (`buckets.rs`).

pub(in crate::http) mod buckets;
pub(in crate::http) mod route;
