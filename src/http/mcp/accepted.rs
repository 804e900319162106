//! What a client of `POST /mcp` accepts. The protocol demands that it lists JSON and event streams,
//! but many list one of them, or anything. A client that accepts JSON gets each answer that one JSON
//! body can hold.

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use rmcp::model::ErrorData;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use sse_stream::SseByteStream;

use super::message::error_response;

pub(super) const JSON: &str = "application/json";
pub(super) const EVENTS: &str = "text/event-stream";
/// What rmcp requires of a client.
pub(super) const BOTH_TYPES: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");

/// Whether the client accepts this media type. Without the header it accepts any.
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let is_wanted = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default().to_ascii_lowercase();
        let group = range.strip_suffix('*').filter(|group| group.ends_with('/'));
        let fits = range == wanted
            || group.is_some_and(|group| group == "*/" || wanted.starts_with(group));
        let is_refused = |weight: &str| weight.parse() == Ok(0.0);
        fits && !parts.any(|part| part.strip_prefix("q=").is_some_and(is_refused))
    };
    let values = headers.get_all(ACCEPT).iter();
    let mut texts = values.map(|value| value.to_str().unwrap_or_default());
    !headers.contains_key(ACCEPT) || texts.any(|text| text.split(',').any(is_wanted))
}

pub(super) fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind == EVENTS)
}

/// The answer in a stream as one JSON body. Progress and questions before it are left out.
pub(super) async fn to_one_body(response: Response) -> Response {
    #[derive(Deserialize)]
    struct AnyMessage {
        method: Option<IgnoredAny>,
    }
    if !is_stream(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let mut events = SseByteStream::new(body.into_data_stream());
    while let Some(Ok(event)) = events.next().await {
        let data = event.data.unwrap_or_default();
        if serde_json::from_str(&data).is_ok_and(|AnyMessage { method }| method.is_none()) {
            parts
                .headers
                .insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            return Response::from_parts(parts, Body::from(data));
        }
    }
    let error = ErrorData::internal_error("the session ended before the answer", None);
    error_response(StatusCode::SERVICE_UNAVAILABLE, &Value::Null, &error)
}
