//! Reads bodies, path parts and query strings. The problems state what would be right.

use std::error::Error;
use std::iter::successors;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Frame;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::form_urlencoded;

use super::limits::{BODY_IDLE_TIME, BODY_TIME};
use super::memory::{MemoryBudget, Reservation};
use crate::call::JsonObject;
use crate::call::json::{parse_foreign, parse_strict};
use crate::call::media_type::{is_json_essence, media_type_essence};
use crate::http::api::calls::request::MessageBody;
use crate::http::problem::ApiError;
use crate::http::state::AppState;

/// A JSON body without duplicate keys, and the reservation for its memory. It has at most `MOST`
/// bytes, and no more than the service accepts.
pub(crate) struct StrictJson<const MOST: usize = { usize::MAX }>(
    pub(crate) Value,
    pub(crate) Reservation,
);

impl<const MOST: usize> FromRequest<AppState> for StrictJson<MOST> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let body = read_json_body(&parts.headers, body, state.max_body.min(MOST)).await?;
        let (value, reserved) = parse_json(body, &state.memory, parse_strict).await?;
        Ok(Self(value, reserved))
    }
}

/// A call as JSON without duplicate keys, the reservation for its memory, and warnings about what
/// was changed in it.
pub(crate) struct CallJson(
    pub(crate) Value,
    pub(crate) Reservation,
    pub(crate) Vec<String>,
);

impl FromRequest<AppState> for CallJson {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let body = read_json_body(&parts.headers, body, state.max_body).await?;
        let ((value, changes), reserved) = parse_json(body, &state.memory, parse_foreign).await?;
        Ok(Self(value, reserved, changes.warnings("the request")))
    }
}

/// The definition of a tool. Compiled, a definition takes a hundred times its length, and models see
/// all of it.
pub(crate) type DefinitionJson = StrictJson<{ 256 << 10 }>;

/// The fields of an HTML form.
pub(crate) struct FormBody<T>(pub(crate) T);

/// Longest form, in bytes.
const LONGEST_FORM: usize = 16 << 10;

impl<T: DeserializeOwned> FromRequest<AppState> for FormBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &AppState) -> Result<Self, ApiError> {
        let (Parts { headers, .. }, body) = request.into_parts();
        if read_media_type(&headers) != "application/x-www-form-urlencoded" {
            return Err(ApiError::UnsupportedMediaType);
        }
        let body = read_body(&headers, body, LONGEST_FORM).await?;
        let mut fields = JsonObject::new();
        for (name, value) in form_urlencoded::parse(&body) {
            let name = name.into_owned();
            if fields.contains_key(&name) {
                let message = format!("the form has the field `{name}` twice");
                return Err(ApiError::Malformed(message));
            }
            fields.insert(name, value.into_owned().into());
        }
        serde_json::from_value(Value::Object(fields))
            .map(Self)
            .map_err(|error| ApiError::Malformed(format!("the form cannot be read: {error}")))
    }
}

/// A model's message, as JSON without duplicate keys or as text, and the reservation for its
/// memory.
pub(crate) struct ModelMessage(pub(crate) MessageBody, pub(crate) Reservation);

impl FromRequest<AppState> for ModelMessage {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (Parts { headers, .. }, body) = request.into_parts();
        let media_type = read_media_type(&headers);
        if media_type == "text/plain" {
            let body = read_body(&headers, body, state.max_body).await?;
            let reserved = state.memory.reserve(&body, 1).await?;
            let text = String::from_utf8(body.into());
            let text = text
                .map_err(|error| ApiError::Malformed(format!("the body is not UTF-8: {error}")))?;
            return Ok(Self(MessageBody::Text(text), reserved));
        }
        if !is_json_body(&media_type) {
            return Err(ApiError::UnsupportedMediaType);
        }
        let body = read_body(&headers, body, state.max_body).await?;
        let ((json, changes), reserved) = parse_json(body, &state.memory, parse_foreign).await?;
        Ok(Self(MessageBody::Json(json, changes), reserved))
    }
}

async fn parse_json<T: Send + 'static>(
    body: Bytes,
    memory: &MemoryBudget,
    parse: fn(&[u8]) -> Result<T, serde_json::Error>,
) -> Result<(T, Reservation), ApiError> {
    let reserved = memory.reserve_json(&body, 1).await?;
    let parse = move || {
        parse(&body).map_err(|error| ApiError::Malformed(format!("the body is not JSON: {error}")))
    };
    Ok((reserved.parse_with(parse).await?, reserved))
}

/// Reads the whole body, if its `Content-Type` is JSON.
pub(crate) async fn read_json_body(
    headers: &HeaderMap,
    body: Body,
    max_bytes: usize,
) -> Result<Bytes, ApiError> {
    if !is_json_body(&read_media_type(headers)) {
        return Err(ApiError::UnsupportedMediaType);
    }
    read_body(headers, body, max_bytes).await
}

/// Reads the whole body. A body with a declared length over `max_bytes` is refused at once.
async fn read_body(headers: &HeaderMap, body: Body, max_bytes: usize) -> Result<Bytes, ApiError> {
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > max_bytes as u64) {
        return Err(ApiError::BodyTooLarge(max_bytes));
    }
    collect_frames(body, max_bytes).await
}

/// Reads the whole body, unless it becomes too large or takes too long.
async fn collect_frames(body: Body, max_bytes: usize) -> Result<Bytes, ApiError> {
    let mut body = Limited::new(body, max_bytes);
    let end = Instant::now() + BODY_TIME;
    // Most bodies are one piece, which is not copied.
    let (mut piece, mut pieces) = (Bytes::new(), Vec::new());
    loop {
        // The next piece must arrive within `BODY_IDLE_TIME`, and the last one before `end`. The
        // earlier of the two times counts, and the problem names its limit.
        let idle = (Instant::now() + BODY_IDLE_TIME, BODY_IDLE_TIME);
        let (by, limit) = idle.min((end, BODY_TIME));
        let frame = timeout_at(by, body.frame())
            .await
            .map_err(|_| ApiError::BodyTimeout(limit))?;
        match frame.map(|frame| frame.map(Frame::into_data)) {
            None if pieces.is_empty() => return Ok(piece),
            None => return Ok(pieces.into()),
            Some(Ok(Ok(first))) if piece.is_empty() && pieces.is_empty() => piece = first,
            Some(Ok(Ok(next))) => {
                if pieces.is_empty() {
                    // Reserve the exact length. A vector that grows by doubling could take twice as
                    // much.
                    let rest = body
                        .size_hint()
                        .upper()
                        .and_then(|rest| usize::try_from(rest).ok())
                        .unwrap_or_default();
                    pieces.reserve_exact(piece.len() + next.len() + rest.min(max_bytes));
                }
                pieces.extend_from_slice(&std::mem::take(&mut piece));
                pieces.extend_from_slice(&next);
            }
            // Trailers are ignored.
            Some(Ok(Err(_))) => {}
            Some(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(ApiError::BodyTooLarge(max_bytes));
            }
            Some(Err(error)) if RequestError::is_evicted(&*error) => {
                return Err(ApiError::AtCapacity);
            }
            Some(Err(error)) => {
                return Err(ApiError::Malformed(format!(
                    "the body ended early: {error}"
                )));
            }
        }
    }
}

/// The media type of `Content-Type`, without parameters and in lower case. It is empty if there is
/// no such header, or more than one.
fn read_media_type(headers: &HeaderMap) -> String {
    let mut all = headers.get_all(CONTENT_TYPE).iter();
    let value = all
        .next()
        .filter(|_| all.next().is_none())
        .and_then(|value| value.to_str().ok());
    media_type_essence(value.unwrap_or_default()).to_ascii_lowercase()
}

/// Whether a request's body is JSON. `text/json` is not a registered type, so it is refused.
fn is_json_body(essence: &str) -> bool {
    essence.starts_with("application/") && is_json_essence(essence)
}

/// The one variable part of a route's path.
pub(crate) struct PathPart(pub(crate) String);

impl FromRequestParts<AppState> for PathPart {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let part = Path::<String>::from_request_parts(parts, state).await;
        part.map(|Path(part)| Self(part))
            .map_err(|error| ApiError::Malformed(error.body_text()))
    }
}

/// Why a request did not arrive completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Hyper(#[from] hyper::Error),
    /// The connection was chosen to make room just before its request was complete.
    #[error("closed to make room for another connection")]
    Evicted,
}

impl RequestError {
    /// Whether an error of a body has [`RequestError::Evicted`] as its cause.
    pub(crate) fn is_evicted(error: &(dyn Error + 'static)) -> bool {
        successors(Some(error), |&error| error.source())
            .any(|error| matches!(error.downcast_ref(), Some(Self::Evicted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_is_found_below_other_errors() {
        let error = axum::Error::new(RequestError::Evicted);
        assert!(RequestError::is_evicted(&error));
        assert!(RequestError::is_evicted(&axum::Error::new(error)));
        assert!(!RequestError::is_evicted(&axum::Error::new(
            std::fmt::Error
        )));
    }
}
