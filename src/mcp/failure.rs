//! Makes the result or the JSON-RPC error for a failed call.
//!
//! MCP (Tools, Error Handling) reserves errors of the protocol for failures that no model can
//! repair:
//!
//! - an unknown tool
//! - an invalid request, or one without a required idempotency key
//! - a context that the tool cannot use
//! - a tool that the caller may not use
//! - an idempotency key that belongs to another call, or whose call still runs
//!
//! Every other failure, most refusals included, is a result with `isError`, whose text tells the
//! model what to do. Both carry the fields of a REST problem: a result under `toolcrib/problem`, an
//! error as its `data`.

use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::json;

use crate::call::{CallError, Content, Effect, ErrorKind, Failure, InvocationId, JsonObject};

/// The JSON-RPC code of a refused call; `data` has the kind of error. Implementations may use
/// -32000 to -32019, and no SDK uses this one.
const REFUSED_CODE: ErrorCode = ErrorCode(-32010);

/// A call that is answered with an error of JSON-RPC.
#[derive(Debug)]
pub struct JsonRpcFailure {
    /// The error for the client.
    pub error: ErrorData,
    /// The failure whose REST status an HTTP transport uses. `None`: JSON-RPC's usual status.
    pub failure: Option<Box<Failure>>,
}

impl From<ErrorData> for JsonRpcFailure {
    fn from(error: ErrorData) -> Self {
        Self {
            error,
            failure: None,
        }
    }
}

/// The text for the model, and the `_meta`. `id` is the call's id, if a call started.
///
/// # Errors
/// The failure is an error of the protocol: `-32602` if the idempotency key is missing or the
/// context is invalid, else `-32010`.
pub(super) fn build_reply(
    error: &CallError,
    effect: Effect,
    id: Option<InvocationId>,
) -> Result<(Content, JsonObject), JsonRpcFailure> {
    if let CallError::IdempotencyKeyMissing { tool } = error {
        let message = format!(
            "tool `{tool}` requires an idempotency key: send `toolcrib/idempotencyKey` in `_meta`, the same for every \
             repetition of a call, and another one for each new call"
        );
        return Err(ErrorData::invalid_params(message, None).into());
    }
    // The client program made the context, not the model. So the program gets the error.
    if let CallError::InvalidContext(what) = error {
        return Err(
            ErrorData::invalid_params(format!("_meta, toolcrib/context: {what}"), None).into(),
        );
    }
    let failure = Failure::from_error(error, effect);
    let invocation_id = id.and_then(|id| error.recorded_invocation(id));
    // The fields of a REST problem, beside the text for the model.
    let mut problem = json!({
        "kind": failure.kind,
        "source": failure.kind.facts().source,
        "detail": failure.detail,
        "retryable": failure.retryable,
        "retry_after_ms": failure.retry_after_ms,
    });
    if let Some(id) = invocation_id {
        problem["invocation_id"] = json!(id);
    }
    if !failure.violations.is_empty() {
        problem["violations"] = json!(failure.violations);
    }
    if is_protocol_error(failure.kind) {
        let error = ErrorData::new(REFUSED_CODE, failure.for_model.clone(), Some(problem));
        return Err(JsonRpcFailure {
            error,
            failure: Some(Box::new(failure)),
        });
    }
    let mut meta = JsonObject::new();
    if let Some(id) = invocation_id {
        meta.insert("toolcrib/invocationId".into(), id.to_string().into());
    }
    meta.insert("toolcrib/problem".into(), problem);
    Ok((Content::text(failure.for_model), meta))
}

/// Whether the failure is an error of the protocol: no other call of the model could repair it.
fn is_protocol_error(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Forbidden | ErrorKind::IdempotencyInProgress | ErrorKind::IdempotencyMismatch
    )
}
