//! Reads messages of a server: leniently, and only up to a bound.

use std::borrow::Cow;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::partial_list;
use crate::call::json::{Changes, Mended};
use crate::tools::mcp::json_rpc::IdScanner;

/// Longest message, in bytes. It bounds results of any kind.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Key in `_meta` of a tool that runs only as a task.
pub(super) const TASK_ONLY_KEY: &str = "toolcrib/asTask";

/// Key in `_meta` of a tool's result. Its value says what was changed in the message.
pub(super) const CHANGES_KEY: &str = "toolcrib/changes";

/// The message in a form that the SDK reads without a change. In the result of a tool, numbers that
/// would be changed become texts. In other messages they stay, because the bounds of a schema are
/// numbers.
pub(super) fn mend_message(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mended = Mended::of_result(bytes);
    if mended.changes == Changes::default() {
        return mended.text;
    }
    let noted = serde_json::from_slice(&mended.text)
        .ok()
        .and_then(|mut message: Value| {
            let result = message.get_mut("result")?.as_object_mut()?;
            if !result.contains_key("content") && !result.contains_key("structuredContent") {
                return None;
            }
            let meta = result.entry("_meta").or_insert_with(|| json!({}));
            meta.as_object_mut()?
                .insert(CHANGES_KEY.into(), json!(mended.changes));
            Some(message.to_string().into_bytes())
        });
    noted.map_or_else(|| Mended::of_document(bytes).text, Cow::Owned)
}

/// Parses a message; `None` if it is not one. The SDK tests the result types of all methods in
/// turn. If no type fits, it would keep only the fact that there was a result. Then the result is
/// kept here as JSON.
pub(super) fn parse_message(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    #[derive(Deserialize)]
    struct ResultMember {
        result: Value,
    }
    let bytes = &*mend_message(bytes);
    let Ok(mut message) = serde_json::from_slice::<ServerJsonRpcMessage>(bytes) else {
        let (id, mut result) = partial_list::read_tool_list(bytes)?;
        mark_task_tools(&mut result);
        return Some(JsonRpcMessage::response(
            ServerResult::CustomResult(CustomResult(result)),
            id,
        ));
    };
    if let JsonRpcMessage::Response(response) = &mut message
        && matches!(response.result, ServerResult::ListToolsResult(_))
        && let Ok(ResultMember { mut result }) = serde_json::from_slice::<ResultMember>(bytes)
        && mark_task_tools(&mut result)
    {
        response.result = ServerResult::CustomResult(CustomResult(result));
    }
    if let JsonRpcMessage::Response(response) = &mut message
        && matches!(
            response.result,
            ServerResult::TaskAckResult(_) | ServerResult::EmptyResult(_)
        )
        && let Ok(ResultMember { mut result }) = serde_json::from_slice::<ResultMember>(bytes)
    {
        mark_task_tools(&mut result);
        response.result = ServerResult::CustomResult(CustomResult(result));
    }
    Some(message)
}

/// Marks the tools of a list that run only as tasks, because the SDK's type has no field for that.
/// Returns whether there are any.
pub(super) fn mark_task_tools(result: &mut Value) -> bool {
    let mut any = false;
    for tool in result
        .get_mut("tools")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if tool
            .pointer("/execution/taskSupport")
            .is_some_and(|support| support == "required")
            && let Some(tool) = tool.as_object_mut()
        {
            tool.insert("_meta".into(), json!({TASK_ONLY_KEY: true}));
            any = true;
        }
    }
    any
}

/// The id of the request that these bytes answer, if they are not a valid message. An example is a
/// log text in front of or inside a response.
pub(super) fn id_of_broken_response(bytes: &[u8]) -> Option<RequestId> {
    if parse_message(bytes).is_some() {
        return None;
    }
    let mut scan = IdScanner::default();
    scan.feed(bytes);
    let id = scan
        .has_json_rpc_member()
        .then(|| scan.answered_id())
        .flatten()?;
    serde_json::from_value(id).ok()
}

/// The request that a response must answer.
#[derive(Clone)]
pub(super) struct SentRequest {
    /// `None`: the message was not a request.
    pub id: Option<RequestId>,
    pub is_discover: bool,
    pub is_list: bool,
}

impl SentRequest {
    pub(super) fn from_message(message: &ClientJsonRpcMessage) -> Self {
        let JsonRpcMessage::Request(request) = message else {
            return Self::none();
        };
        Self {
            id: Some(request.id.clone()),
            is_discover: matches!(request.request, ClientRequest::DiscoverRequest(_)),
            is_list: matches!(request.request, ClientRequest::ListToolsRequest(_)),
        }
    }

    pub(super) fn none() -> Self {
        Self {
            id: None,
            is_discover: false,
            is_list: false,
        }
    }
}
