//! The `toolcrib-run-id` header of a request.

use axum::http::HeaderMap;

use super::single_header::read_single_header;
use crate::call::request_fields::MAX_ID_LEN;
use crate::http::problem::ApiError;

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
