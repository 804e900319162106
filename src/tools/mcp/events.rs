//! A stream of server-sent events with a bound on the size of each event.

use std::borrow::Cow;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Response;
use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use rmcp_sse_stream::{Sse, SseStream};
use serde_json::{Value, json};

use super::fault::InvalidMessage;
use super::message::{
    MAX_MESSAGE_BYTES, SentRequest, id_of_broken_response, mark_task_tools, mend_message,
};
use super::partial_list;

/// Why a stream ended early.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the stream broke off")]
    Interrupted(#[source] reqwest::Error),
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

/// The events of a response. An event that is too long becomes an error response that says so.
pub(super) fn read_events(
    response: Response,
    request: SentRequest,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let chunks = stream::try_unfold(
        (response, EventSize::default()),
        |(mut response, mut size)| async move {
            let Some(chunk) = response.chunk().await.map_err(StreamError::Interrupted)? else {
                return Ok(None);
            };
            if size.grows_beyond(MAX_MESSAGE_BYTES, &chunk) {
                return Err(StreamError::TooLong);
            }
            Ok(Some((chunk, (response, size))))
        },
    );
    let events = SseStream::from_bytes_stream(chunks.into_stream());
    let events = events.map(move |event| match (event, &request.id) {
        (Ok(mut event), id) => {
            event.data = event.data.map(|data| match mend_message(data.as_bytes()) {
                Cow::Borrowed(kept) if kept.len() == data.len() => data,
                mended => String::from_utf8_lossy(&mended).into_owned(),
            });
            if request.is_list {
                event.data = event.data.map(remove_result_type);
            }
            // The SDK skips an event that it cannot read, and would wait forever. So replace a
            // broken response by an error.
            let is_broken = |data: &String| {
                id.is_some() && id_of_broken_response(data.as_bytes()).as_ref() == id.as_ref()
            };
            if event.data.as_ref().is_some_and(is_broken) {
                event.data = id
                    .as_ref()
                    .map(|id| replacement_event(InvalidMessage::Unreadable, id));
            }
            Ok(event)
        }
        (Err(SseError::Body(error)), Some(id))
            if matches!(error.downcast_ref(), Some(StreamError::TooLong)) =>
        {
            Ok(Sse::default().data(replacement_event(InvalidMessage::TooLong, id)))
        }
        (Err(error), _) => Err(error),
    });
    events.boxed()
}

fn replacement_event(reason: InvalidMessage, id: &RequestId) -> String {
    let response: ServerJsonRpcMessage =
        JsonRpcMessage::error(ErrorData::from(reason), Some(id.clone()));
    serde_json::to_string(&response).unwrap_or_default()
}

/// Rewrites a list of tools so that the SDK reads it. The SDK would take a list with one broken
/// tool for a bare `complete` result, and lose the tools.
fn remove_result_type(data: String) -> String {
    let Ok(mut message) = serde_json::from_str::<Value>(&data) else {
        let Some((id, mut result)) = partial_list::read_tool_list(data.as_bytes()) else {
            return data;
        };
        mark_task_tools(&mut result);
        return json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    };
    let Some(result) = message
        .get_mut("result")
        .filter(|result| result.is_object())
    else {
        return data;
    };
    let has_marks = mark_task_tools(result);
    let kind = result
        .as_object_mut()
        .and_then(|result| result.shift_remove("resultType"));
    match kind {
        Some(kind) if kind == "complete" => message.to_string(),
        None if has_marks => message.to_string(),
        _ => data,
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
