//! Reads a header field that a request has once at most.

use axum::http::{HeaderMap, HeaderValue};

use crate::http::problem::ApiError;

/// The value of the field `name`, if the request has it.
///
/// # Errors
/// 400, if there are several.
pub(crate) fn read_single_header<'h>(
    headers: &'h HeaderMap,
    name: &str,
) -> Result<Option<&'h HeaderValue>, ApiError> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (_, Some(_)) => Err(ApiError::Malformed(format!(
            "there is more than one {name}: send one"
        ))),
        (value, None) => Ok(value),
    }
}
