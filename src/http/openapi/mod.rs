//! The OpenAPI document.
//!
//! - `document.rs`: the routes of the tools beside the fixed ones; `examples.rs`: their examples
//! - `responses.rs`: the problems of each route
//! - `documented.rs`: types of requests and answers that serde does not describe

pub(super) mod document;
pub(super) mod documented;
mod examples;
pub(super) mod responses;
