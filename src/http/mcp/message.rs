//! JSON-RPC messages as they come, and what is said of those that cannot be taken.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use rmcp::ErrorData;
use serde_json::{Value, json};

use crate::call::{JsonObject, json as strict};
use crate::mcp::INITIALIZE;

/// Longest words of rmcp's that are said again.
const WORDS: usize = 4 << 10;

/// Begins what rmcp says, with 415, of JSON that is no message.
const UNREADABLE: &str = "fail to deserialize";

/// One message: a request, a notification (without id) or an answer (without method).
pub(super) struct Message {
    pub(super) id: Option<Value>,
    pub(super) fields: JsonObject,
}

/// A message that cannot be taken, with its id if that could be read.
pub(super) struct Wrong {
    id: Value,
    error: ErrorData,
}

impl Message {
    pub(super) fn read(body: &[u8]) -> Result<Self, Wrong> {
        let wrong = |id, error| Err(Wrong { id, error });
        let fields = match strict::parse_strict(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(Value::Array(_)) => {
                let words = "a body is one JSON-RPC message: batches were taken out of MCP with 2025-06-18; send each by itself";
                return wrong(Value::Null, ErrorData::invalid_request(words, None));
            }
            Ok(other) => {
                let words = format!("a JSON-RPC message is an object, not {}", strict::type_name(&other));
                return wrong(Value::Null, ErrorData::invalid_request(words, None));
            }
            Err(error) => {
                let words = format!("the body is not JSON: {error}");
                return wrong(Value::Null, ErrorData::parse_error(words, None));
            }
        };
        let id = fields.get("id").cloned();
        let known = id.clone().filter(|id| id.is_string() || id.is_i64()).unwrap_or_default();
        let invalid = |words: &'static str| Wrong { id: known.clone(), error: ErrorData::invalid_request(words, None) };
        if fields.get("jsonrpc") != Some(&Value::from("2.0")) {
            return Err(invalid("a JSON-RPC message has jsonrpc: \"2.0\""));
        }
        match fields.get("method") {
            Some(Value::String(_)) if id.is_some() && known.is_null() => {
                return Err(invalid("the id of a request is a text or an integer of 64 bits"));
            }
            Some(Value::String(_)) => {}
            Some(_) => return Err(invalid("method is a text")),
            None if fields.contains_key("result") || fields.contains_key("error") => {}
            None => return Err(invalid("a JSON-RPC message has a method, a result or an error")),
        }
        let is_object = |value: Option<&Value>| value.is_none_or(|value| value.is_object() || value.is_null());
        let params = fields.get("params");
        if !is_object(params) || !is_object(params.and_then(|params| params.get("_meta"))) {
            return Err(invalid("params is an object, and so is its _meta"));
        }
        // rmcp would take a cursor that it cannot read for none, and who pages would begin anew for ever.
        let cursor = params.and_then(|params| params.get("cursor"));
        if cursor.is_some_and(|cursor| !cursor.is_string() && !cursor.is_null()) {
            let error = ErrorData::invalid_params("a cursor is a text: nextCursor of the page before as it came", None);
            return Err(Wrong { id: known, error });
        }
        Ok(Self { id, fields })
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.fields.get("method")?.as_str()
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        refused(StatusCode::BAD_REQUEST, &self.id, &self.error)
    }
}

/// An error under a status.
pub(super) fn refused(status: StatusCode, id: &Value, error: &ErrorData) -> Response {
    (status, Json(json!({"jsonrpc": "2.0", "id": id, "error": error}))).into_response()
}

/// There is no such session, or it is another caller's, which nobody is told.
pub(super) fn no_session(id: Option<Value>) -> Response {
    let error = ErrorData::invalid_request("there is no such session; initialize begins a new one", None);
    refused(StatusCode::NOT_FOUND, &id.unwrap_or_default(), &error)
}

/// rmcp would send the answer of the one to the other.
pub(super) fn id_in_use(id: &Value) -> Response {
    let words = "a request with this id is under way in this session; ids are used once";
    refused(StatusCode::BAD_REQUEST, id, &ErrorData::invalid_request(words, None))
}

/// What `initialize` begins with cannot be read.
pub(super) fn no_initialize(id: Option<Value>) -> Response {
    let error = ErrorData::invalid_params(format!("initialize cannot be read: {INITIALIZE}"), None);
    refused(StatusCode::BAD_REQUEST, &id.unwrap_or_default(), &error)
}

/// Somebody on the way may have read the other one.
pub(super) fn doubled(header: &str, id: Option<Value>) -> Response {
    let error = ErrorData::header_mismatch(format!("there is more than one {header} header"), None);
    refused(StatusCode::BAD_REQUEST, &id.unwrap_or_default(), &error)
}

/// What rmcp refuses in plain text is said as an error of JSON-RPC.
pub(super) async fn said(response: Response) -> Response {
    let mut status = response.status();
    if !status.is_client_error() && !status.is_server_error()
        || response.headers().contains_key(CONTENT_TYPE) && is_json(&response)
    {
        return response;
    }
    let allow = response.headers().get(axum::http::header::ALLOW).cloned();
    let words = to_bytes(response.into_body(), WORDS).await.unwrap_or_default();
    let words = String::from_utf8_lossy(&words).into_owned();
    let error = match status.is_server_error() {
        true => {
            // What comes behind may name a session, which is a secret.
            let what = words.split(':').next().unwrap_or_default();
            tracing::error!(%status, what, "an MCP message could not be answered");
            ErrorData::internal_error("the service failed; its log says why", None)
        }
        // Its type is right, or else it would not say this.
        false if status == StatusCode::UNSUPPORTED_MEDIA_TYPE && words.starts_with(UNREADABLE) => {
            status = StatusCode::BAD_REQUEST;
            ErrorData::invalid_request("this is no message of MCP: its method, result or error cannot be read", None)
        }
        false => ErrorData::invalid_request(words, None),
    };
    let mut response = refused(status, &Value::Null, &error);
    if let Some(allow) = allow {
        response.headers_mut().insert(axum::http::header::ALLOW, allow);
    }
    response
}

pub(super) fn is_json(response: &Response<Body>) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}
