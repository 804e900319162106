//! What the fuzz targets need of this folder.

use futures_util::{TryStreamExt, stream};
use hyper::body::Bytes;
use rmcp::model::{JsonRpcMessage, RequestId};
use serde_json::{Value, json};

use super::events::events_of;
use super::message::{SentRequest, parse_message};
use super::result::read_response;
use crate::call::{ToolContext, ToolResult};

/// The data of the events in the chunks of a response to the request 1; `None` if a line cannot be
/// read.
pub async fn read_events(chunks: Vec<Vec<u8>>) -> Option<Vec<Option<String>>> {
    let request = SentRequest {
        id: Some(RequestId::Number(1)),
        ..SentRequest::default()
    };
    let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk)));
    let events = events_of(stream::iter(chunks), request);
    events.map_ok(|event| event.data).try_collect().await.ok()
}

/// A message of a server as the SDK gets it, and the result of a tool if it is one.
pub fn read_message(bytes: &[u8], context: &ToolContext) -> Option<(Value, Option<ToolResult>)> {
    let message = parse_message(bytes)?;
    let value = json!(message);
    let result = match message {
        JsonRpcMessage::Response(response) => {
            read_response("server", response.result, context).ok()
        }
        _ => None,
    };
    Some((value, result))
}
