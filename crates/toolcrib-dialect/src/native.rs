//! The `native` dialect: `{"tool_name": …, "arguments": {…}}`, also with the key names that other
//! formats use.

use serde_json::{Map, Value};

use super::found_calls::{FoundCalls, text_field};
use super::message::AnsweredCall;
use super::{mcp, text};
use crate::strict_json::JsonObject;

const NAME_KEYS: [&str; 3] = ["tool_name", "tool", "name"];
const ARGUMENT_KEYS: [&str; 4] = ["arguments", "args", "input", "parameters"];
/// ReAct's key for the tool's name.
const ACTION: &str = "action";
/// ReAct's key for the arguments.
pub(super) const ACTION_INPUT: &str = "action_input";
const ID_KEYS: [&str; 4] = ["tool_use_id", "id", "tool_call_id", "call_id"];

/// Finds the calls. Returns false if the body is not a native message.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    let calls = match body {
        Value::Array(calls) => calls.as_mut_slice(),
        one => std::slice::from_mut(one),
    };
    let is_call = |call: &Value| {
        NAME_KEYS.into_iter().any(|name| call.get(name).is_some())
            || call.get(ACTION_INPUT).is_some()
    };
    if !calls.is_empty() && !calls.iter().any(is_call) {
        return false;
    }
    for call in calls {
        match call.as_object_mut() {
            Some(fields) => read_call(fields, found),
            None => found.add_call(None, None, None),
        }
    }
    true
}

fn read_call(fields: &mut JsonObject, found: &mut FoundCalls) {
    // The `tool_name` keys take precedence. A tool may have a parameter `action` beside its
    // arguments.
    let is_action = fields.contains_key(ACTION_INPUT)
        && NAME_KEYS.into_iter().all(|name| !fields.contains_key(name));
    if is_action {
        read_action(fields, found);
        return;
    }
    let is_known = |key: &str| {
        let mut known = NAME_KEYS.iter().chain(&ARGUMENT_KEYS).chain(&ID_KEYS);
        key == "type" || known.any(|name| *name == key)
    };
    let unknown = fields.keys().filter(|key| !is_known(key));
    let unknown: Vec<String> = unknown.map(|key| format!("`{key}`")).collect();
    if !unknown.is_empty() {
        found.warn(format!(
            "unknown keys of a call are ignored: {}",
            unknown.join(", ")
        ));
    }
    found.take_call(fields, &ID_KEYS, &NAME_KEYS, &ARGUMENT_KEYS);
}

/// Reads ReAct's `{"action": …, "action_input": …}`. Some actions are not calls: they announce the
/// final answer.
fn read_action(fields: &mut JsonObject, found: &mut FoundCalls) {
    if !text_field(fields, ACTION).is_some_and(text::is_reserved_action) {
        found.take_call(fields, &ID_KEYS, &[ACTION], &[ACTION_INPUT]);
    }
}

/// The result of one call.
pub(super) fn write_reply(answered: AnsweredCall<'_>) -> Value {
    let reply = answered.reply;
    let mut result = Map::new();
    result.insert("tool_name".into(), answered.name.into());
    if let Some(id) = answered.id {
        result.insert("tool_use_id".into(), id.clone());
    }
    result.insert("is_error".into(), reply.is_error.into());
    result.insert("content".into(), mcp::content_blocks(reply));
    if let Some(data) = reply.structured {
        result.insert("structured_content".into(), data.clone());
    }
    if reply.is_final_answer {
        result.insert("result_as_answer".into(), true.into());
    }
    result.into()
}
