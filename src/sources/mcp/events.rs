//! A stream of server-sent events with a bound on the size of each event.

use std::borrow::Cow;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt, TryStreamExt};
use hyper::body::Bytes;
use rmcp::model::{
    CustomResult, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_client::SseError;
use rmcp_sse_stream::{Sse, SseStream};
use serde_json::Value;

use super::fault::InvalidMessage;
use super::message::{
    MAX_MESSAGE_BYTES, SentRequest, id_of_broken_response, mend_message, parse_message,
};
use crate::kinds::http::client::Response;

/// The events of one or more responses.
pub(super) type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// Shortest pause in milliseconds before a stream is continued, whatever the server wishes (`retry`).
/// With 0, a server that ends each stream at once would keep both sides busy until the timeout.
const MIN_RETRY_MS: u64 = 100;

/// Why a stream ended early.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the stream broke off")]
    Interrupted(#[source] hyper::Error),
    #[error("an event is too long")]
    TooLong,
}

/// The size of the current event. Lines end with LF, CR or both (HTML, 9.2.5).
#[derive(Default)]
struct EventSize {
    event: usize,
    line: usize,
    after_cr: bool,
}

impl EventSize {
    fn grows_beyond(&mut self, max_bytes: usize, chunk: &[u8]) -> bool {
        for byte in chunk {
            let is_rest_of_end = self.after_cr && *byte == b'\n';
            self.after_cr = *byte == b'\r';
            match byte {
                _ if is_rest_of_end => {}
                b'\n' | b'\r' if self.line == 0 => self.event = 0,
                b'\n' | b'\r' => self.line = 0,
                _ => (self.line, self.event) = (self.line + 1, self.event + 1),
            }
            if self.event > max_bytes {
                return true;
            }
        }
        false
    }
}

/// The events of a response. For the SDK, an event that is too long becomes an error response that
/// says so.
pub(super) fn read_events(response: Response, request: SentRequest) -> EventStream {
    events_of(response.into_chunks(), request)
}

/// The events in the chunks of a response.
pub(super) fn events_of(
    chunks: impl Stream<Item = Result<Bytes, hyper::Error>> + Send + 'static,
    request: SentRequest,
) -> EventStream {
    let chunks = stream::try_unfold(
        (chunks.boxed(), EventSize::default()),
        |(mut chunks, mut size)| async move {
            let next = chunks.try_next().await;
            let Some(chunk) = next.map_err(StreamError::Interrupted)? else {
                return Ok(None);
            };
            if size.grows_beyond(MAX_MESSAGE_BYTES, &chunk) {
                return Err(StreamError::TooLong);
            }
            Ok(Some((chunk, (chunks, size))))
        },
    );
    let events = SseStream::from_bytes_stream(chunks.into_stream()).map_ok(|mut event| {
        event.retry = event.retry.map(|pause| pause.max(MIN_RETRY_MS));
        event
    });
    if request.is_direct {
        return events.boxed();
    }
    // A stream that ends without the answer to a discovery counts as an unusable answer.
    let end = request.id.as_ref().filter(|_| request.is_discover);
    let end = end.map(|id| Sse::default().data(replacement_event(InvalidMessage::Unreadable, id)));
    let events = events.map(move |event| match (event, &request.id) {
        (Ok(mut event), id) => {
            event.data = event.data.and_then(|data| {
                let data = match mend_message(data.as_bytes()) {
                    Cow::Borrowed(kept) if kept.len() == data.len() => data,
                    mended => String::from_utf8_lossy(&mended).into_owned(),
                };
                readable_data(data, id.as_ref())
            });
            Ok(event)
        }
        (Err(error), Some(id)) if is_too_long(&error) => {
            Ok(Sse::default().data(replacement_event(InvalidMessage::TooLong, id)))
        }
        (Err(error), _) => Err(error),
    });
    events.chain(stream::iter(end.map(Ok))).boxed()
}

/// Whether the stream ended because an event was too long.
pub(super) fn is_too_long(error: &SseError) -> bool {
    matches!(error, SseError::Body(error)
        if matches!(error.downcast_ref(), Some(StreamError::TooLong)))
}

fn replacement_event(reason: InvalidMessage, id: &RequestId) -> String {
    let response: ServerJsonRpcMessage =
        JsonRpcMessage::error(ErrorData::from(reason), Some(id.clone()));
    serde_json::to_string(&response).unwrap_or_default()
}

/// The data of an event, so that the SDK can read it. `None`: the event is not a message, such as a
/// heartbeat, and only its id counts. The SDK would take it for a broken handshake. In a call it
/// would skip a broken response and wait forever, so an error replaces that.
fn readable_data(data: String, id: Option<&RequestId>) -> Option<String> {
    let bytes = data.as_bytes();
    match parse_message(bytes) {
        Some(JsonRpcMessage::Response(mut response)) => {
            match &mut response.result {
                // The SDK would take any unusual result with this member for a bare `complete`.
                ServerResult::CustomResult(CustomResult(Value::Object(result))) => {
                    if result
                        .get("resultType")
                        .is_some_and(|kind| kind == "complete")
                    {
                        result.shift_remove("resultType");
                    }
                }
                ServerResult::DiscoverResult(_) | ServerResult::InitializeResult(_) => {}
                _ => return Some(data),
            }
            let message: ServerJsonRpcMessage = JsonRpcMessage::Response(response);
            serde_json::to_string(&message).ok()
        }
        Some(_) => Some(data),
        None => {
            let id = id.filter(|id| id_of_broken_response(bytes).as_ref() == Some(*id));
            id.map(|id| replacement_event(InvalidMessage::Unreadable, id))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_counts_one_event_at_a_time() {
        let mut size = EventSize::default();
        assert!(!size.grows_beyond(9, b"data: abc\n\n: hi\n\ndata: abc\r\n\r\ndata:"));
        assert!(!size.grows_beyond(9, b" ab"));
        assert!(size.grows_beyond(9, b"c\ndata: d\n\n"));
        let mut size = EventSize::default();
        assert!(!size.grows_beyond(9, b"data: abc\r\rdata: def\r\n\r\ndata: g\r"));
        assert!(!size.grows_beyond(9, b"\n"), "one line end in two chunks");
        assert!(size.grows_beyond(9, b"data\r\r"));
    }
}
