//! Reads JSON-RPC messages, and makes the error answers for invalid ones.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use rmcp::ErrorData;
use serde_json::{Value, json};

use crate::call::{JsonObject, TraceContext, json as strict};
use crate::mcp::{INITIALIZE_PARAMS, trace_from_meta};

/// Longest error text of rmcp that is passed on, in bytes.
const MAX_ERROR_TEXT: usize = 4 << 10;

/// Start of rmcp's text, under status 415, for JSON that is not a message.
const UNREADABLE_PREFIX: &str = "fail to deserialize";

/// One message: a request, a notification (without id) or an answer (without method).
pub(super) struct Message {
    pub(super) id: Option<Value>,
    pub(super) fields: JsonObject,
}

/// Why a message is invalid, and its id if that could be read.
pub(super) struct MessageError {
    id: Value,
    error: ErrorData,
}

impl Message {
    pub(super) fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let fail = |id, error| Err(MessageError { id, error });
        let fields = match strict::parse_strict(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(Value::Array(_)) => {
                let text = "a body is one JSON-RPC message: MCP has no batches since 2025-06-18; send each message by itself";
                return fail(Value::Null, ErrorData::invalid_request(text, None));
            }
            Ok(other) => {
                let text = format!(
                    "a JSON-RPC message is an object, not {}",
                    strict::type_name(&other)
                );
                return fail(Value::Null, ErrorData::invalid_request(text, None));
            }
            Err(error) => {
                let text = format!("the body is not JSON: {error}");
                return fail(Value::Null, ErrorData::parse_error(text, None));
            }
        };
        let id = fields.get("id").cloned();
        let known = id
            .clone()
            .filter(|id| id.is_string() || id.is_i64())
            .unwrap_or_default();
        let invalid = |text: &'static str| MessageError {
            id: known.clone(),
            error: ErrorData::invalid_request(text, None),
        };
        if fields.get("jsonrpc") != Some(&Value::from("2.0")) {
            return Err(invalid("a JSON-RPC message has jsonrpc: \"2.0\""));
        }
        match fields.get("method") {
            Some(Value::String(_)) if id.is_some() && known.is_null() => {
                return Err(invalid(
                    "the id of a request is a text or an integer of 64 bits",
                ));
            }
            Some(Value::String(_)) => {}
            Some(_) => return Err(invalid("method is a text")),
            None if fields.contains_key("result") || fields.contains_key("error") => {}
            None => {
                return Err(invalid(
                    "a JSON-RPC message has a method, a result or an error",
                ));
            }
        }
        let is_object =
            |value: Option<&Value>| value.is_none_or(|value| value.is_object() || value.is_null());
        let params = fields.get("params");
        if !is_object(params) || !is_object(params.and_then(|params| params.get("_meta"))) {
            return Err(invalid("params is an object, and so is its _meta"));
        }
        // rmcp treats an unreadable cursor as a missing one. A client that pages would get the
        // first page for ever.
        let cursor = params.and_then(|params| params.get("cursor"));
        if cursor.is_some_and(|cursor| !cursor.is_string() && !cursor.is_null()) {
            let error = ErrorData::invalid_params(
                "a cursor is a text: send nextCursor of the previous page unchanged",
                None,
            );
            return Err(MessageError { id: known, error });
        }
        Ok(Self { id, fields })
    }

    /// The trace that `_meta` names.
    pub(super) fn trace(&self) -> Option<Arc<TraceContext>> {
        let meta = self.fields.get("params")?.get("_meta")?.as_object()?;
        trace_from_meta(meta)
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.fields.get("method")?.as_str()
    }
}

/// The id of a message as a text.
pub(super) fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

impl IntoResponse for MessageError {
    fn into_response(self) -> Response {
        error_response(StatusCode::BAD_REQUEST, &self.id, &self.error)
    }
}

/// A JSON-RPC error under this status.
pub(super) fn error_response(status: StatusCode, id: &Value, error: &ErrorData) -> Response {
    (
        status,
        Json(json!({"jsonrpc": "2.0", "id": id, "error": error})),
    )
        .into_response()
}

fn bad_request(id: Option<Value>, error: ErrorData) -> Response {
    error_response(StatusCode::BAD_REQUEST, &id.unwrap_or_default(), &error)
}

/// The answer to a browser, which a person has sent here.
pub(super) fn not_a_page() -> Response {
    let text = "this is the address for MCP clients, not a page: enter it in the settings of a client. The console of this \
                service is at /, and its operations are at /docs";
    let error = ErrorData::invalid_request(text, None);
    error_response(StatusCode::NOT_ACCEPTABLE, &Value::Null, &error)
}

/// There is no such session, or another caller owns it. Both get the same answer, so that a caller
/// cannot find out which ids exist.
pub(super) fn session_not_found(id: Option<Value>) -> Response {
    let error = ErrorData::invalid_request(
        "there is no such session; initialize starts a new one",
        None,
    );
    error_response(StatusCode::NOT_FOUND, &id.unwrap_or_default(), &error)
}

/// Refuses a request whose id is in flight. rmcp would send the answer of one request to the other.
pub(super) fn id_in_use(id: Value) -> Response {
    let text = "a request with this id is in flight in this session; give each request its own id";
    bad_request(Some(id), ErrorData::invalid_request(text, None))
}

/// The params of `initialize` cannot be read.
pub(super) fn invalid_initialize(id: Option<Value>) -> Response {
    let error = ErrorData::invalid_params(
        format!("initialize cannot be read: {INITIALIZE_PARAMS}"),
        None,
    );
    bad_request(id, error)
}

/// Refuses a header that occurs twice. A proxy on the way may have used the other value.
pub(super) fn duplicate_header(header: &str, id: Option<Value>) -> Response {
    let error = ErrorData::header_mismatch(format!("there is more than one {header} header"), None);
    bad_request(id, error)
}

/// Turns an error that rmcp gives as plain text into a JSON-RPC error.
pub(super) async fn to_json_rpc_error(response: Response) -> Response {
    let mut status = response.status();
    if !status.is_client_error() && !status.is_server_error()
        || response.headers().contains_key(CONTENT_TYPE) && is_json(&response)
    {
        return response;
    }
    let allow = response.headers().get(axum::http::header::ALLOW).cloned();
    let text = to_bytes(response.into_body(), MAX_ERROR_TEXT)
        .await
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let error = match status.is_server_error() {
        true => {
            // The text after the colon may contain a session's id, which is a secret.
            let what = text.split(':').next().unwrap_or_default();
            tracing::error!(%status, what, "an MCP message could not be answered");
            ErrorData::internal_error("the service failed; its log has the cause", None)
        }
        // rmcp gives 415 also for JSON that is not a message. The media type was right then, so 400
        // fits better.
        false
            if status == StatusCode::UNSUPPORTED_MEDIA_TYPE
                && text.starts_with(UNREADABLE_PREFIX) =>
        {
            status = StatusCode::BAD_REQUEST;
            ErrorData::invalid_request(
                "this is not a message of MCP: its method, result or error cannot be read",
                None,
            )
        }
        false => ErrorData::invalid_request(text, None),
    };
    let mut response = error_response(status, &Value::Null, &error);
    if let Some(allow) = allow {
        response
            .headers_mut()
            .insert(axum::http::header::ALLOW, allow);
    }
    response
}

pub(super) fn is_json(response: &Response<Body>) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}
