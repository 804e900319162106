//! Reads the `_meta` of a `tools/call`. It has what REST takes in the other fields of a request.

use std::sync::Arc;

use serde_json::Value;

use crate::call::{
    Idempotency, IdempotencyKey, Invocation, JsonObject, Page, Policy, TraceContext, request_fields,
};

/// Prefix of the keys of this service.
const KEY_PREFIX: &str = "toolcrib/";

/// The keys that a call may have, for error messages.
const KNOWN_KEYS: &str = "idempotencyKey, runId, toolUseId, context, cache, timeout, page";

/// Sets the fields of the invocation that `_meta` names.
///
/// # Errors
/// The key, and what would be right.
pub(super) fn apply_meta(
    meta: &JsonObject,
    policy: &Policy,
    invocation: &mut Invocation,
) -> Result<(), String> {
    for (name, value) in meta {
        let Some(key) = name.strip_prefix(KEY_PREFIX) else {
            continue;
        };
        apply_key(key, value, policy, invocation)
            .map_err(|error| format!("_meta, {name}: {error}"))?;
    }
    Ok(())
}

/// The trace in `_meta`, under the two keys that MCP takes from W3C Trace Context (2026-07-28,
/// `_meta`).
pub(super) fn trace_from_meta(meta: &JsonObject) -> Option<Arc<TraceContext>> {
    let text = |name: &str| meta.get(name).and_then(Value::as_str).map(str::as_bytes);
    TraceContext::from_headers(text("traceparent"), text("tracestate")).map(Arc::new)
}

fn apply_key(
    key: &str,
    value: &Value,
    policy: &Policy,
    invocation: &mut Invocation,
) -> Result<(), String> {
    let value = value.clone();
    match key {
        "idempotencyKey" => apply_idempotency_key(value, policy, invocation)?,
        "runId" => invocation.run.id = request_fields::parse_id(key, value)?.map(Into::into),
        "toolUseId" => {
            invocation.correlation.tool_use_id =
                request_fields::parse_id(key, value)?.map(Into::into);
        }
        "context" => invocation.input.context = Arc::new(request_fields::parse_context(value)?),
        "cache" => invocation.cache = request_fields::parse_cache_mode(value)?,
        "timeout" => {
            let end = request_fields::parse_timeout(value)?
                .and_then(|timeout| invocation.timing.started.checked_add(timeout));
            // A timeout that the clock cannot represent is no limit.
            end.into_iter()
                .for_each(|end| invocation.timing.shorten_deadline(end));
        }
        "page" => invocation.paging.page = Page::from_json(value)?,
        _ => {
            return Err(format!(
                "unknown key; the keys are {KNOWN_KEYS}, each with the prefix `{KEY_PREFIX}`"
            ));
        }
    }
    Ok(())
}

fn apply_idempotency_key(
    value: Value,
    policy: &Policy,
    invocation: &mut Invocation,
) -> Result<(), String> {
    let key = match value {
        Value::Null => return Ok(()),
        Value::String(text) => IdempotencyKey::parse(text.as_bytes()),
        _ => Err("is a text"),
    };
    let key = key.map_err(|error| format!("the key {error}; a random UUID is a good one"))?;
    if policy.idempotency == Idempotency::Off {
        let warning = "this tool takes no idempotency key (idempotency: off): the call was not protected by it";
        invocation.report.entry.lock().warnings.push(warning.into());
    } else {
        invocation.idempotency_key = Some(key);
    }
    Ok(())
}
