//! The `Idempotency-Key` of a request, and `Idempotent-Replayed` of an answer.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

use super::single_header::read_single_header;
use crate::call::IdempotencyKey;
use crate::http::problem::ApiError;

/// The `Idempotency-Key` header of a request, for the OpenAPI document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "`key_from_headers` reads the header, with better messages for an invalid one"
)]
pub(crate) struct IdempotencyHeader {
    /// The caller's own name for this call: the same with every repetition, another for each new
    /// call.
    #[param(
        rename = "idempotency-key",
        required = false,
        pattern = r#"^([!#-~][!-~]{0,254}|"[!#-\[\]-~]{1,253}")$"#
    )]
    key: String,
}

/// Marks the replayed answer of an earlier call.
const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The key of a request, if it has one.
///
/// # Errors
/// 400, if the key is invalid or there are several.
pub(crate) fn key_from_headers(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(value) = read_single_header(headers, "Idempotency-Key")? else {
        return Ok(None);
    };
    let invalid = |reason| {
        ApiError::Malformed(format!(
            "Idempotency-Key {reason}; a random UUID is a good one"
        ))
    };
    IdempotencyKey::parse(value.as_bytes())
        .map(Some)
        .map_err(invalid)
}

/// Marks an answer as replayed.
pub(crate) fn mark_replayed(response: &mut Response) {
    response
        .headers_mut()
        .insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
}
