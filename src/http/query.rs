//! The parameters of a query string.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::ApiError;
use crate::call::InvocationId;
use crate::text::suggest;

/// Default number of rows on a page.
const PAGE_SIZE: u32 = 50;
/// Most rows on a page.
const MAX_PAGE_SIZE: u32 = 500;

/// The number of rows on a page.
pub(super) fn page_size(limit: Option<u32>) -> Result<u32, ApiError> {
    match limit.unwrap_or(PAGE_SIZE) {
        limit @ 1..=MAX_PAGE_SIZE => Ok(limit),
        _ => Err(ApiError::Malformed(format!(
            "limit is 1 to {MAX_PAGE_SIZE}"
        ))),
    }
}

/// The last row of the previous page, which its `next_cursor` names.
pub(super) fn read_cursor(cursor: Option<String>) -> Result<Option<InvocationId>, ApiError> {
    let last = cursor.map(|cursor| cursor.parse()).transpose();
    last.map_err(|_| invalid_cursor())
}

/// The error for a cursor that no page has named.
pub(super) fn invalid_cursor() -> ApiError {
    ApiError::Malformed("invalid cursor: send next_cursor of the previous page unchanged".into())
}

/// The parameters of a query string. Unknown or invalid ones are refused.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let params = Query::<T>::try_from_uri(&parts.uri);
        params
            .map(|Query(params)| Self(params))
            .map_err(|error| ApiError::Malformed(explain_query(&error.body_text())))
    }
}

/// The message of the decoder of query strings, in words for people.
fn explain_query(message: &str) -> String {
    let message = message
        .strip_prefix("Failed to deserialize query string: ")
        .unwrap_or(message);
    let quoted = |text: &str| -> Vec<String> {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(ToOwned::to_owned)
            .collect()
    };
    if let Some((before, known)) = message.split_once(", expected ")
        && let (Some(name), known) = (quoted(before).pop(), quoted(known))
    {
        let subject = match before.split_once(": unknown variant") {
            Some((parameter, _)) => format!("{parameter}: `{name}` is not known here"),
            None => format!("`{name}` is not a parameter of this route"),
        };
        let near = suggest::closest_name(
            &name,
            known.iter().map(String::as_str),
            suggest::MIN_HINT_RATIO,
        );
        return match near {
            Some(near) => format!("{subject}, did you mean `{near}`?"),
            None => format!("{subject}; there are {}", known.join(", ")),
        };
    }
    match message
        .split_once(": unknown field `")
        .and_then(|(_, rest)| rest.split('`').next())
    {
        Some(name) => format!("`{name}` is not a parameter of this route, which has none"),
        None => message.replace(": duplicate field `", ": there twice: `"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_faults_are_explained() {
        for (message, expected) in [
            (
                "Failed to deserialize query string: frmat: unknown field `frmat`, expected one of `format`, `tag`",
                "`frmat` is not a parameter of this route, did you mean `format`?",
            ),
            (
                "Failed to deserialize query string: state: unknown variant `Nope`, expected one of `failed`, `running`",
                "state: `Nope` is not known here; there are failed, running",
            ),
            (
                "Failed to deserialize query string: since: unknown field `since`, there are no fields",
                "`since` is not a parameter of this route, which has none",
            ),
        ] {
            assert_eq!(explain_query(message), expected);
        }
    }
}
