//! Reads the `_meta` of a `tools/call`. It has what REST takes in the other fields of a request.

use std::sync::Arc;

use serde_json::Value;

use crate::call::{Idempotency, IdempotencyKey, Invocation, JsonObject, Page, Policy, TraceContext, fields};

/// Prefix of the keys of this service.
const OURS: &str = "toolcrib/";

/// The keys that a call may have, for error messages.
const KEYS: &str = "idempotencyKey, runId, toolUseId, context, cache, timeout, page";

/// Sets the fields of the invocation that `_meta` names.
///
/// # Errors
/// The key, and what would be right.
pub(super) fn read(meta: &JsonObject, policy: &Policy, invocation: &mut Invocation) -> Result<(), String> {
    for (name, value) in meta {
        let Some(key) = name.strip_prefix(OURS) else { continue };
        one(key, value, policy, invocation).map_err(|wrong| format!("_meta, {name}: {wrong}"))?;
    }
    Ok(())
}

/// The trace in `_meta`, under the two keys that MCP takes from W3C Trace Context (2026-07-28, `_meta`).
pub(super) fn trace(meta: &JsonObject) -> Option<Arc<TraceContext>> {
    let text = |name: &str| meta.get(name).and_then(Value::as_str).map(str::as_bytes);
    TraceContext::read(text("traceparent"), text("tracestate")).map(Arc::new)
}

fn one(key: &str, value: &Value, policy: &Policy, invocation: &mut Invocation) -> Result<(), String> {
    let value = value.clone();
    match key {
        "idempotencyKey" => idempotency(value, policy, invocation)?,
        "runId" => invocation.run_id = fields::id(key, value)?.map(Into::into),
        "toolUseId" => invocation.tool_use_id = fields::id(key, value)?.map(Into::into),
        "context" => invocation.context = Arc::new(fields::context(value)?),
        "cache" => invocation.cache = fields::cache(value)?,
        "timeout" => {
            let end = fields::timeout(value)?.and_then(|timeout| invocation.started.checked_add(timeout));
            // A timeout that the clock cannot represent is no limit.
            end.into_iter().for_each(|end| invocation.shorten_deadline(end));
        }
        "page" => invocation.page = Page::read(value)?,
        _ => return Err(format!("there is no such key; there are {KEYS}, each after `{OURS}`")),
    }
    Ok(())
}

fn idempotency(value: Value, policy: &Policy, invocation: &mut Invocation) -> Result<(), String> {
    let key = match value {
        Value::Null => return Ok(()),
        Value::String(text) => IdempotencyKey::parse(text.as_bytes()),
        _ => Err("is a text"),
    };
    let key = key.map_err(|wrong| format!("the key {wrong}; a random UUID is a good one"))?;
    if policy.idempotency == Idempotency::Off {
        let warning = "this tool takes no idempotency key (idempotency: off): the call was not protected by it";
        invocation.notes.lock().meta.warnings.push(warning.into());
    } else {
        invocation.key = Some(key);
    }
    Ok(())
}
