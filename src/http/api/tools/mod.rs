//! `/tools`: lists, registers and calls tools.
//!
//! - `list.rs`: the lists; `route.rs`: the other handlers; `registration.rs`: those that add and remove tools
//! - `invoke_request.rs`: the body of a call
//! - `respond.rs`: the answer of a call, at once, later or as a stream

pub(in crate::http) mod invoke_request;
pub(in crate::http) mod list;
pub(in crate::http) mod registration;
pub(in crate::http) mod respond;
pub(in crate::http) mod route;
