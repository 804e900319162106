//! `/invocations`: recorded calls.
//!
//! - `route.rs`: the handlers
//! - `results.rs`: the pages of a result; `questions.rs`: answers to the question of a tool
//! - `recorded_result.rs`: the result of a row
//! - `portable_call.rs`: a call as a line of an export

pub(in crate::http) mod portable_call;
pub(in crate::http) mod questions;
pub(in crate::http) mod recorded_result;
pub(in crate::http) mod results;
pub(in crate::http) mod route;
