//! Reads messages of a server: leniently, and only up to a bound. Passes the questions of its tools on
//! to the caller of the call: as a result of the call (2026-07-28), or as requests of the server
//! (before).

use std::borrow::Cow;

use rmcp::model::{
    CallToolResult, ClientJsonRpcMessage, ClientRequest, CustomResult, DiscoverResult,
    ElicitRequestParams, ErrorData, InitializeResult, InputRequest, InputRequiredResult,
    InputResponses, JsonRpcMessage, ProtocolVersion, RequestId, ServerCapabilities,
    ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::partial_list;
use crate::call::json::{Changes, Mended};
use crate::call::{QuestionAnswer, ToolContext};
use crate::sources::mcp::json_rpc::IdScanner;

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

/// A response with the result of a tool, which is nearly every message. It is read without the
/// copies that the SDK makes of a message to find its kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallResponse {
    #[serde(rename = "jsonrpc")]
    _version: IgnoredAny,
    id: RequestId,
    result: CallToolResult,
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
    if let Ok(CallResponse { id, result, .. }) = serde_json::from_slice(bytes) {
        let result = ServerResult::CallToolResult(result);
        return Some(JsonRpcMessage::response(result, id));
    }
    let raw_result = || serde_json::from_slice::<ResultMember>(bytes).ok();
    let Ok(mut message) = serde_json::from_slice::<ServerJsonRpcMessage>(bytes) else {
        let (id, mut result) = partial_list::read_tool_list(bytes)?;
        mark_task_tools(&mut result);
        return Some(JsonRpcMessage::response(
            ServerResult::CustomResult(CustomResult(result)),
            id,
        ));
    };
    if let JsonRpcMessage::Response(response) = &mut message {
        match &mut response.result {
            ServerResult::CallToolResult(_)
            | ServerResult::DiscoverResult(_)
            | ServerResult::InitializeResult(_) => {}
            ServerResult::TaskAckResult(_) | ServerResult::EmptyResult(_) => {
                if let Some(ResultMember { result }) = raw_result() {
                    response.result = keep_as_json(result);
                }
            }
            ServerResult::CustomResult(CustomResult(result)) => {
                response.result = keep_as_json(result.take());
            }
            // A tool's result with a further member, such as `tools`, fits another method's type.
            _ => {
                if let Some(ResultMember { mut result }) = raw_result()
                    && (mark_task_tools(&mut result) || has_content_blocks(&result))
                {
                    response.result = ServerResult::CustomResult(CustomResult(result));
                }
            }
        }
    }
    Some(message)
}

fn has_content_blocks(result: &Value) -> bool {
    result.get("content").is_some_and(Value::is_array)
}

/// A result that fits none of the SDK's types: an incomplete answer of a handshake, a list with
/// broken tools, or a result with unknown content.
fn keep_as_json(mut result: Value) -> ServerResult {
    if let Some(answer) = read_handshake(&result) {
        return answer;
    }
    mark_task_tools(&mut result);
    ServerResult::CustomResult(CustomResult(result))
}

/// Reads the answer to `server/discover` or `initialize` leniently: only versions and capabilities
/// are used here. `ttlMs` and `cacheScope` are not read, because the answer is never kept.
fn read_handshake(result: &Value) -> Option<ServerResult> {
    let read = |name: &str| result.get(name).cloned();
    let capabilities: ServerCapabilities = read("capabilities")
        .and_then(|capabilities| serde_json::from_value(capabilities).ok())
        .unwrap_or_default();
    if let Some(Value::Array(versions)) = result.get("supportedVersions") {
        let versions = read_versions(versions);
        return Some(ServerResult::DiscoverResult(DiscoverResult::new(
            versions,
            capabilities,
        )));
    }
    let version = serde_json::from_value(read("protocolVersion")?).ok()?;
    let initialized = InitializeResult::new(capabilities).with_protocol_version(version);
    Some(ServerResult::InitializeResult(initialized))
}

/// The versions of a list that a server sent. Entries that are not texts are skipped.
fn read_versions(versions: &[Value]) -> Vec<ProtocolVersion> {
    let versions = versions
        .iter()
        .map(|version| serde_json::from_value(version.clone()));
    versions.filter_map(Result::ok).collect()
}

/// The versions that an error response offers instead (`data.supported`).
pub(super) fn offered_versions(error: &ErrorData) -> Vec<ProtocolVersion> {
    let supported = error.data.as_ref().and_then(|data| data.get("supported"));
    supported
        .and_then(Value::as_array)
        .map(|versions| read_versions(versions))
        .unwrap_or_default()
}

/// Marks the tools of a list that run only as tasks, because the SDK's type has no field for that.
/// Returns whether there are any.
fn mark_task_tools(result: &mut Value) -> bool {
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

/// The id of the request that these bytes answer, though they are not a valid message. An example
/// is a log text in front of or inside a response.
pub(super) fn id_of_broken_response(bytes: &[u8]) -> Option<RequestId> {
    let mut scan = IdScanner::default();
    scan.feed(bytes);
    let id = scan
        .has_json_rpc_member()
        .then(|| scan.answered_id())
        .flatten()?;
    serde_json::from_value(id).ok()
}

/// The request that a response must answer.
#[derive(Clone, Default)]
pub(super) struct SentRequest {
    /// `None`: the message was not a request.
    pub id: Option<RequestId>,
    pub is_discover: bool,
    pub is_initialize: bool,
    /// Its events are read here (`direct.rs`), and not by the SDK.
    pub is_direct: bool,
}

impl SentRequest {
    /// A request with this id that bypasses the SDK.
    pub(super) fn direct(id: &RequestId) -> Self {
        Self {
            id: Some(id.clone()),
            is_direct: true,
            ..Self::default()
        }
    }

    /// What is remembered of this message of the client.
    pub(super) fn from_message(message: &ClientJsonRpcMessage) -> Self {
        let JsonRpcMessage::Request(request) = message else {
            return Self::default();
        };
        Self {
            id: Some(request.id.clone()),
            is_discover: matches!(request.request, ClientRequest::DiscoverRequest(_)),
            is_initialize: matches!(request.request, ClientRequest::InitializeRequest(_)),
            is_direct: false,
        }
    }
}

/// Whether a tool asks only for forms. A caller is not asked for a model's answer, for folders, or
/// to open a URL.
pub(super) fn are_forms(asked: &InputRequiredResult) -> bool {
    let is_form = |request: &InputRequest| {
        matches!(request, InputRequest::Elicitation(request)
            if matches!(request.params, ElicitRequestParams::FormElicitationParams { .. }))
    };
    let requests = asked.input_requests.as_ref();
    requests.is_none_or(|requests| requests.values().all(is_form))
        && (requests.is_some() || asked.request_state.is_some())
}

/// Asks the caller each question.
pub(super) async fn ask(asked: &InputRequiredResult, context: &ToolContext) -> InputResponses {
    let mut answers = InputResponses::new();
    for (name, request) in asked.input_requests.iter().flatten() {
        let InputRequest::Elicitation(request) = request else {
            continue;
        };
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = &request.params
        else {
            continue;
        };
        let schema = serde_json::to_value(requested_schema).ok();
        let answer = ask_form(message, schema, name, context).await;
        answers.insert(name.clone(), json!(answer));
    }
    answers
}

/// Asks the caller one question. A question that cannot be asked is cancelled.
pub(super) async fn ask_form(
    message: &str,
    schema: Option<Value>,
    name: &str,
    context: &ToolContext,
) -> QuestionAnswer {
    let answer = context.ask(message, schema, Some(name)).await;
    answer.unwrap_or_else(|error| {
        tracing::debug!(tool = %context.tool, %error, "a question of an MCP server was cancelled");
        QuestionAnswer::Cancel
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_a_tool_may_have_members_of_other_results() {
        for member in [
            json!({"tools": []}),
            json!({"resources": []}),
            json!({"prompts": []}),
            json!({"messages": []}),
            json!({"contents": []}),
            json!({"completion": {"values": []}}),
        ] {
            let mut result = json!({"content": [{"type": "text", "text": "done"}]});
            result
                .as_object_mut()
                .unwrap()
                .extend(member.as_object().unwrap().clone());
            let line = json!({"jsonrpc": "2.0", "id": 2, "result": result}).to_string();
            let Some(JsonRpcMessage::Response(response)) = parse_message(line.as_bytes()) else {
                panic!("{line}")
            };
            let context = crate::kinds::http::tests::test_context().0;
            let read = super::super::result::read_response("s", response.result, &context);
            assert_eq!(read.unwrap().as_text(), "done", "{line}");
        }
    }
}
