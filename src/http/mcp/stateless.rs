//! Answers the plain call of 2026-07-28 without rmcp: one `tools/call` in, one JSON answer out, no
//! progress.
//!
//! rmcp starts three tasks for each such request, so this path is faster. It takes only requests
//! that are valid in every respect. All others go to rmcp, so only one place judges invalid
//! requests.

use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use super::message::{self, Message, error_response};
use super::valid_request::{ValidRequest, has_only, single_header};
use crate::call::{Caller, JsonObject};
use crate::catalog::registry::{Catalog, Registry};
use crate::http::problem::with_failure_status;
use crate::mcp::{
    Handler, JsonRpcFailure, McpPeer, PrepareError, PreparedCall, Reply, prepare_call,
};

/// A valid plain call.
pub(super) struct StatelessCall {
    id: Value,
    name: String,
    arguments: JsonObject,
    meta: JsonObject,
}

#[derive(Serialize)]
struct JsonRpcAnswer<'a> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: Reply<'a>,
}

impl StatelessCall {
    /// Takes the call out of a message that is a valid plain call.
    ///
    /// # Errors
    /// The unchanged message, if it is not a valid plain call.
    pub(super) fn from_message(
        headers: &HeaderMap,
        mut message: Message,
        handler: &Handler,
        catalog: &Arc<Catalog>,
        caller: &Caller,
    ) -> Result<Self, Message> {
        if !is_plain_call(headers, &message, handler, catalog, caller) {
            return Err(message);
        }
        let (id, params) = (
            message.id.take().unwrap_or_default(),
            message.fields.remove("params"),
        );
        let mut params = into_object(params);
        let name = match params.remove("name") {
            Some(Value::String(name)) => name,
            _ => String::new(),
        };
        Ok(Self {
            id,
            name,
            arguments: into_object(params.remove("arguments")),
            meta: into_object(params.remove("_meta")),
        })
    }

    pub(super) async fn run(
        self,
        registry: &Registry,
        catalog: Arc<Catalog>,
        peer: &McpPeer,
    ) -> Response {
        let id = self.id;
        let prepared = match prepare_call(
            registry,
            &catalog,
            peer,
            &self.name,
            self.arguments,
            &self.meta,
        ) {
            Ok(prepared) => prepared.with_request(registry, peer, || message::id_text(&id)),
            Err(PrepareError::Protocol(error)) => return refusal_response(&id, &error.into()),
            Err(PrepareError::Unavailable(error)) => {
                return respond(&id, Reply::from_error(&error, true));
            }
        };
        drop(catalog);
        let PreparedCall { entry, invocation } = prepared;
        let invocation_id = invocation.id;
        let outcome = registry.invoke(&entry, invocation).await;
        let reply = Reply::from_call(
            registry,
            (&entry, &peer.caller),
            invocation_id,
            &outcome,
            true,
        );
        respond(&id, reply)
    }
}

/// A JSON-RPC error. Its status is 200, unless the same failure has a status of its own in REST.
fn respond(id: &Value, reply: Result<Reply<'_>, JsonRpcFailure>) -> Response {
    match reply {
        Ok(result) => Json(JsonRpcAnswer {
            jsonrpc: "2.0",
            id,
            result,
        })
        .into_response(),
        Err(refused) => refusal_response(id, &refused),
    }
}

fn refusal_response(id: &Value, JsonRpcFailure { error, failure }: &JsonRpcFailure) -> Response {
    let response = error_response(StatusCode::OK, id, error);
    match failure {
        Some(failure) => with_failure_status(failure, response),
        None => response,
    }
}

fn into_object(value: Option<Value>) -> JsonObject {
    match value {
        Some(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

fn is_plain_call(
    headers: &HeaderMap,
    message: &Message,
    handler: &Handler,
    catalog: &Arc<Catalog>,
    caller: &Caller,
) -> bool {
    let Some(request) = ValidRequest::read(headers, message, "tools/call") else {
        return false;
    };
    let Some(name) = request.params.get("name").and_then(Value::as_str) else {
        return false;
    };
    let client = &request.client;
    has_only(request.params, &["name", "arguments", "_meta"])
        && single_header(headers, "mcp-name") == Some(name)
        && !name.starts_with("=?")
        && request.params.get("arguments").is_none_or(Value::is_object)
        && (client.elicitation.is_none() || !handler.may_ask(catalog, name, caller))
        && !request.meta.contains_key("progressToken")
        && !handler.has_header_parameters(catalog, name, caller)
}
