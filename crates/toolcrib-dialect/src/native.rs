//! The `native` dialect: `{"tool_name": …, "arguments": {…}}`, also with the key names that other
//! formats use.

use serde_json::{Value, json};

use super::found_calls::{FoundCalls, text_field};
use super::message::AnsweredCall;
use super::{mcp, text};
use crate::strict_json::JsonObject;

const NAME_KEYS: [&str; 3] = ["tool_name", "tool", "name"];
pub(super) const ARGUMENT_KEYS: [&str; 4] = ["arguments", "args", "input", "parameters"];
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
    let mut result = json!({
        "tool_name": answered.name,
        "tool_use_id": answered.id,
        "is_error": reply.is_error,
        "content": mcp::content_blocks(reply),
        "structured_content": reply.structured,
        "result_as_answer": reply.is_final_answer.then_some(true),
    });
    if let Value::Object(members) = &mut result {
        members.retain(|name, member| name == "tool_name" || !member.is_null());
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::*;
    use crate::*;

    #[test]
    fn alternative_keys_are_read() {
        let arguments = json!({"a": 1});
        for body in [
            json!({"tool_name": "f", "arguments": arguments, "tool_use_id": "n1"}),
            json!({"name": "f", "arguments": arguments, "id": "n1"}),
            json!({"name": "f", "args": arguments, "id": "n1", "type": "tool_call"}),
            json!({"name": "f", "parameters": arguments, "id": "n1"}),
            json!({"tool": "f", "input": arguments, "call_id": "n1"}),
        ] {
            assert_eq!(
                read_calls(body.clone()),
                (Dialect::Native, one_call("n1", "f", json!({"a": 1})))
            );
            assert_eq!(
                read_calls(json!([body])),
                (Dialect::Native, one_call("n1", "f", json!({"a": 1})))
            );
        }
        assert!(
            read_refusal(
                json!({"name": "f", "description": "d", "parameters": {}}),
                None
            )
            .contains("no dialect")
        );
        let message = read_guessed(json!({"tool_name": "f", "arguments": {}, "run_id": "r"}));
        assert_eq!(
            message.warnings,
            ["unknown keys of a call are ignored: `run_id`"]
        );
    }

    #[test]
    fn final_answer_is_marked() {
        let body = json!({"tool_name": "f", "arguments": {}});
        assert_eq!(
            reply_to(
                body.clone(),
                ToolReply {
                    is_final_answer: true,
                    ..tool_reply(&[])
                }
            )["result_as_answer"],
            json!(true)
        );
        assert_eq!(
            reply_to(body, tool_reply(&[])).get("result_as_answer"),
            None
        );
    }

    #[test]
    fn results_use_native_keys() {
        let data = json!({"a": 1});
        let content = [text("x")];
        let body = json!({"tool_name": "f", "arguments": {}, "tool_use_id": "n1"});
        assert_eq!(
            reply_to(
                body,
                ToolReply {
                    structured: Some(&data),
                    ..tool_reply(&content)
                }
            ),
            json!({"tool_name": "f", "tool_use_id": "n1", "is_error": false, "content": [{"type": "text", "text": "x"}],
                "structured_content": {"a": 1}})
        );
    }
}
