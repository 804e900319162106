//! Reads the `_meta` of a `tools/call`. It has what REST takes in the other fields of a request.

use std::sync::Arc;

use serde_json::Value;

use crate::call::request_fields::CallOptions;
use crate::call::{IdempotencyKey, JsonObject, TraceContext};

/// Prefix of the keys of this service.
const KEY_PREFIX: &str = "toolcrib/";

/// The keys that a call may have, for error messages.
const KNOWN_KEYS: &str = "idempotencyKey, runId, toolUseId, context, cache, timeout, page";

/// The fields of `_meta`: options of the call, and its idempotency key.
///
/// # Errors
/// The key, and what would be right.
pub(super) fn read_meta(
    meta: &JsonObject,
) -> Result<(CallOptions, Option<IdempotencyKey>), String> {
    let (mut options, mut idempotency_key) = (CallOptions::default(), None);
    for (name, value) in meta {
        let Some(key) = name.strip_prefix(KEY_PREFIX) else {
            continue;
        };
        let field = match key {
            "runId" => "run_id",
            "toolUseId" => "tool_use_id",
            other => other,
        };
        let known = match key {
            "idempotencyKey" => read_idempotency_key(value).map(|key| {
                idempotency_key = key;
                true
            }),
            // Only the spellings of `_meta` are known here.
            "run_id" | "tool_use_id" => Ok(false),
            _ => options.read_field(field, key, value.clone()),
        };
        let known = known.map_err(|error| format!("_meta, {name}: {error}"))?;
        if !known {
            return Err(format!(
                "_meta, {name}: unknown key; the keys are {KNOWN_KEYS}, each with the prefix `{KEY_PREFIX}`"
            ));
        }
    }
    Ok((options, idempotency_key))
}

/// The trace in `_meta`, under the two keys that MCP takes from W3C Trace Context (2026-07-28,
/// `_meta`).
pub(crate) fn trace_from_meta(meta: &JsonObject) -> Option<Arc<TraceContext>> {
    let text = |name: &str| meta.get(name).and_then(Value::as_str).map(str::as_bytes);
    TraceContext::from_headers(text("traceparent"), text("tracestate")).map(Arc::new)
}

fn read_idempotency_key(value: &Value) -> Result<Option<IdempotencyKey>, String> {
    let key = match value {
        Value::Null => return Ok(None),
        Value::String(text) => IdempotencyKey::parse(text.as_bytes()),
        _ => Err("is a text"),
    };
    key.map(Some)
        .map_err(|error| format!("the key {error}; a random UUID is a good one"))
}
