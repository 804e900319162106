//! The headers of a call: `Idempotency-Key`, its answer `Idempotent-Replayed`, and
//! `toolcrib-run-id`.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

use crate::call::IdempotencyKey;
use crate::call::request_fields::MAX_ID_LEN;
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

/// The header, for the OpenAPI document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "`run_id_from_headers` reads the header, with better messages for an invalid one"
)]
pub(crate) struct RunIdHeader {
    /// Groups the calls of one agent run, as `run_id` does. A `run_id` in the body takes
    /// precedence.
    #[param(
        rename = "toolcrib-run-id",
        required = false,
        pattern = "^[!-~]{1,256}$"
    )]
    run_id: String,
}

/// The run that the header names, if there is one.
///
/// # Errors
/// 400, if the value is not visible ASCII, is too long, or if there are several.
pub(crate) fn run_id_from_headers(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = read_single_header(headers, "toolcrib-run-id")? else {
        return Ok(None);
    };
    let is_valid = |value: &&str| {
        (1..=MAX_ID_LEN).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let value = value.to_str().ok().filter(is_valid);
    let run_id = value.ok_or_else(|| {
        ApiError::Malformed(format!(
            "toolcrib-run-id is a text of 1 to {MAX_ID_LEN} visible ASCII characters"
        ))
    })?;
    Ok(Some(run_id.to_owned()))
}
