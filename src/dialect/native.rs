//! The `native` dialect: `{"tool_name": …, "arguments": {…}}`, also with the key names that other formats use.

use serde_json::{Map, Value};

use super::found_calls::{FoundCalls, take};
use super::reply::AnsweredCall;
use super::{mcp, text};
use crate::call::JsonObject;

const NAME: [&str; 3] = ["tool_name", "tool", "name"];
const ARGUMENTS: [&str; 4] = ["arguments", "args", "input", "parameters"];
/// ReAct's key for the tool's name.
const ACTION: &str = "action";
/// ReAct's key for the arguments.
pub(super) const ACTION_INPUT: &str = "action_input";
const ID: [&str; 4] = ["tool_use_id", "id", "tool_call_id", "call_id"];

/// Finds the calls. Returns false if the body is not a native message.
pub(super) fn find(body: &mut Value, found: &mut FoundCalls) -> bool {
    let calls = match body {
        Value::Array(calls) => calls.as_mut_slice(),
        one => std::slice::from_mut(one),
    };
    let is_call =
        |call: &Value| NAME.into_iter().any(|name| call.get(name).is_some()) || call.get(ACTION_INPUT).is_some();
    if !calls.is_empty() && !calls.iter().any(is_call) {
        return false;
    }
    for call in calls {
        match call.as_object_mut() {
            Some(fields) => one(fields, found),
            None => found.call(None, None, None),
        }
    }
    true
}

fn one(fields: &mut JsonObject, found: &mut FoundCalls) {
    // The `tool_name` keys take precedence. A tool may have a parameter `action` beside its arguments.
    let is_action = fields.contains_key(ACTION_INPUT) && NAME.into_iter().all(|name| !fields.contains_key(name));
    if is_action {
        action(fields, found);
        return;
    }
    let known = |key: &&String| NAME.iter().chain(&ARGUMENTS).chain(&ID).any(|name| name == key) || *key == "type";
    let unknown: Vec<String> = fields.keys().filter(|key| !known(key)).map(|key| format!("`{key}`")).collect();
    if !unknown.is_empty() {
        found.warn(format!("of a call {} is not looked at", unknown.join(", ")));
    }
    let (name, arguments) = (take(fields, &NAME), take(fields, &ARGUMENTS));
    found.call(take(fields, &ID), name, arguments);
}

/// Reads ReAct's `{"action": …, "action_input": …}`. Some actions are not calls: they announce the final answer.
fn action(fields: &mut JsonObject, found: &mut FoundCalls) {
    let (name, arguments) = (take(fields, &[ACTION]), take(fields, &[ACTION_INPUT]));
    if !name.as_ref().and_then(Value::as_str).is_some_and(text::is_no_tool) {
        found.call(take(fields, &ID), name, arguments);
    }
}

/// The result of one call.
pub(super) fn reply(told: AnsweredCall<'_>) -> Value {
    let said = told.said;
    let mut result = Map::new();
    result.insert("tool_name".into(), told.name.into());
    if let Some(id) = told.id {
        result.insert("tool_use_id".into(), id.clone());
    }
    result.insert("is_error".into(), said.is_error.into());
    result.insert("content".into(), mcp::content(said));
    if let Some(data) = said.structured {
        result.insert("structured_content".into(), data.clone());
    }
    if said.is_answer {
        result.insert("result_as_answer".into(), true.into());
    }
    result.into()
}
