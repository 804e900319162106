//! The `toolcrib-run-id` header of a request.

use axum::http::HeaderMap;

use super::problem::ApiError;
use crate::call::request_fields::MAX_ID_LEN;

/// The header, for the OpenAPI document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "`run_id_from_headers` reads the header, with better messages for an invalid one"
)]
pub(super) struct RunIdHeader {
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
pub(super) fn run_id_from_headers(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut all = headers.get_all("toolcrib-run-id").iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return match headers.contains_key("toolcrib-run-id") {
            true => Err(ApiError::Malformed(
                "there is more than one toolcrib-run-id: send one".into(),
            )),
            false => Ok(None),
        };
    };
    let value = value
        .to_str()
        .ok()
        .map(str::trim)
        .filter(|value| (1..=MAX_ID_LEN).contains(&value.len()));
    let run_id = value.ok_or_else(|| {
        ApiError::Malformed(format!(
            "toolcrib-run-id is a text of 1 to {MAX_ID_LEN} visible ASCII characters"
        ))
    })?;
    Ok(Some(run_id.to_owned()))
}
