//! The `openai-responses` dialect: OpenAI Responses.

use serde_json::{Value, json};

use super::blocks::{self, IMAGE_TYPES};
use super::found_calls::{FoundCalls, take_field, text_field};
use super::message::AnsweredCall;
use crate::content::Content;
use crate::strict_json::JsonObject;
use crate::words::words;

/// Item types that need no result: the model's own output, and tools that ran on the provider's
/// side.
const NON_CALL_TYPES: [&str; 12] = words(
    "message reasoning web_search_call file_search_call code_interpreter_call
     image_generation_call mcp_call mcp_list_tools compaction item_reference program
     additional_tools",
);

/// File types whose content the API reads (file inputs, accepted file types). Text files are not
/// listed: they are sent as text.
const FILE_TYPES: [&str; 9] = words(
    "application/pdf application/msword
     application/vnd.openxmlformats-officedocument.wordprocessingml.document
     application/vnd.ms-excel
     application/vnd.openxmlformats-officedocument.spreadsheetml.sheet
     application/vnd.ms-powerpoint
     application/vnd.openxmlformats-officedocument.presentationml.presentation
     application/rtf application/vnd.oasis.opendocument.text",
);

/// Finds the calls. Returns false if the body is not an object of the Responses API.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    found.visit_body(body, parts, is_item, read_item)
}

fn parts(fields: &mut JsonObject) -> Option<(&mut Vec<Value>, bool)> {
    let is_cut = is_cut_off(fields);
    Some((fields.get_mut("output")?.as_array_mut()?, is_cut))
}

/// Whether the status says that the output is incomplete.
pub(super) fn is_cut_off(fields: &JsonObject) -> bool {
    matches!(
        text_field(fields, "status"),
        Some("incomplete" | "failed" | "cancelled")
    )
}

/// Whether the value is an item. An item has a type; a plain message needs none.
fn is_item(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string)
        || value.get("role").is_some_and(Value::is_string)
}

/// Adds the item to `found` if it is a call. Returns whether it is a call.
fn read_item(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    match text_field(fields, "type").unwrap_or("message") {
        "function_call" => {
            let is_cut = text_field(fields, "status").is_some_and(|status| status != "completed");
            let name = take_field(fields, &["name"]);
            let arguments = take_field(fields, &["arguments"]);
            // A result would carry an invented id, so a call of another API must not run.
            if !fields.contains_key("call_id") && arguments.as_ref().is_some_and(Value::is_object) {
                let fault = "a `function_call` with an object as `arguments` and without `call_id` is not of the \
                             Responses API; `dialect=gemini-interactions` reads those of Gemini";
                found.add_foreign_call(take_field(fields, &["id"]), fault.to_owned());
                return true;
            }
            // `id` identifies the item. Results refer to `call_id`.
            found.add_call_with_id(take_field(fields, &["call_id"]), name, arguments);
            let repeated = take_members(fields, &["caller", "namespace"]);
            if let Some(call) = found.last_call() {
                call.namespace = text_field(&repeated, "namespace").map(str::to_owned);
            }
            found.set_reply_fields(repeated);
            if is_cut {
                found.mark_cut_off();
            }
            return true;
        }
        "custom_tool_call" => {
            found.add_custom_call(take_field(fields, &["call_id"]), fields);
            if let Some(call) = found.last_call() {
                call.namespace = text_field(fields, "namespace").map(str::to_owned);
            }
            let mut reply = output_fields("custom_tool_call_output", fields);
            reply.remove("status");
            found.set_reply_fields(reply);
            return true;
        }
        kind if NON_CALL_TYPES.contains(&kind) || kind.ends_with("_output") => {}
        // What runs on the provider's side needs no result.
        "tool_search_call" if text_field(fields, "execution") != Some("client") => {}
        "shell_call" if fields.get("environment").is_some_and(is_hosted) => {}
        "tool_search_call" | "shell_call" | "apply_patch_call" | "local_shell_call" => {
            add_foreign_item(fields, found);
            return true;
        }
        kind => {
            let id = text_field(fields, "call_id")
                .or_else(|| text_field(fields, "id"))
                .unwrap_or("without id");
            found.warn_ignored(&format!("the `{kind}` item {id}"));
        }
    }
    false
}

/// Whether a shell runs on the provider's side.
fn is_hosted(environment: &Value) -> bool {
    environment.get("type").is_some_and(|kind| kind != "local")
}

/// Fields of an output of this type: what it repeats of the call.
fn output_fields(kind: &str, call: &mut JsonObject) -> JsonObject {
    let mut fields = JsonObject::from_iter([("type".into(), kind.into())]);
    fields.extend(take_members(call, &["caller"]));
    fields
}

/// The fields with these names that are not null.
fn take_members(fields: &mut JsonObject, names: &[&str]) -> JsonObject {
    let members = names.iter().filter_map(|name| fields.remove_entry(*name));
    members.filter(|(_, value)| !value.is_null()).collect()
}

/// Adds a call of a tool of the API itself that the client would have to run. The output has the
/// form that the API expects.
fn add_foreign_item(call: &mut JsonObject, found: &mut FoundCalls) {
    let kind = text_field(call, "type").unwrap_or_default().to_owned();
    let id = take_field(call, &["call_id", "id"]);
    let fault = format!("this service has no tool for a `{kind}`");
    let text = format!("This was not run: {fault}. Call one of your functions instead.");
    found.add_foreign_call(id, fault);
    let failed = match &*kind {
        "tool_search_call" => {
            json!({"execution": "client", "status": "completed", "tools": [], "output": null})
        }
        "shell_call" => {
            let outcome = json!({"type": "exit", "exit_code": 1});
            json!({"output": [{"stdout": "", "stderr": text, "outcome": outcome}]})
        }
        "local_shell_call" => json!({"id": found.last_id(), "call_id": null}),
        _ => json!({"status": "failed"}),
    };
    let mut fields = output_fields(&kind.replace("_call", "_call_output"), call);
    if kind == "tool_search_call" {
        fields.insert("type".into(), "tool_search_output".into());
    }
    if let Value::Object(failed) = failed {
        fields.extend(failed);
    }
    found.set_reply_fields(fields);
}

/// The item with the result of a call: a text, or a list of parts if there is content other than
/// text.
pub(super) fn write_output(answered: AnsweredCall<'_>) -> Value {
    let content = answered.reply.content;
    let text_part = |text| json!({"type": "input_text", "text": text});
    let media: Vec<Option<Value>> = content.iter().map(media_part).collect();
    let output = if media.iter().any(Option::is_some) {
        let parts = content.iter().zip(media);
        let parts = parts.map(|(block, media)| {
            media.unwrap_or_else(|| text_part(blocks::block_as_text(block, blocks::UNSUPPORTED)))
        });
        // The API has no field for errors, so the text says it.
        let mark = answered.reply.is_error.then(|| text_part("Error:".into()));
        let data = blocks::unstated_data(answered.reply).map(|data| text_part(data.into()));
        mark.into_iter().chain(data).chain(parts).collect()
    } else {
        let text = blocks::result_as_text(answered.reply);
        Value::String(blocks::mark_error(text, answered.reply.is_error))
    };
    let item = json!({"type": "function_call_output", "call_id": answered.id, "output": output});
    answered.with_fields(item)
}

fn media_part(block: &Content) -> Option<Value> {
    if let Some((kind, data)) = blocks::image(block, &IMAGE_TYPES) {
        let url = blocks::data_url(kind, data);
        return Some(json!({"type": "input_image", "image_url": url}));
    }
    let (file, kind, data) =
        blocks::file(block).filter(|(_, kind, _)| FILE_TYPES.contains(kind))?;
    let (name, data) = (blocks::file_name(file), blocks::data_url(kind, data));
    Some(json!({"type": "input_file", "filename": name, "file_data": data}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::*;
    use crate::*;

    fn call() -> Value {
        json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"})
    }

    #[test]
    fn calls_are_found_among_items() {
        let message = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "hm", "annotations": []}]});
        let thought = json!({"type": "reasoning", "id": "r", "summary": []});
        let items = json!([thought, message, {"type": "web_search_call", "id": "w"}, call()]);
        let response = json!({"id": "x", "object": "response", "status": "completed", "error": null, "output": items});
        let mixed = json!([{"role": "assistant", "content": "hm"}, call()]);
        for body in [call(), json!([call()]), items, response, mixed] {
            let message = read_guessed(body.clone());
            assert_eq!(message.warnings, [""; 0], "{body}");
            assert_eq!(
                read_calls(body),
                (Dialect::OpenaiResponses, one_call("c1", "f", json!("{}")))
            );
        }
    }

    #[test]
    fn unknown_items_are_ignored_with_warning() {
        let item = json!({"type": "computer_call", "call_id": "x9"});
        let message = read_guessed(json!([call(), item]));
        assert_eq!(message.calls.len(), 1);
        assert!(message.warnings[0].starts_with("the `computer_call` item x9 is ignored"));
    }

    #[test]
    fn incomplete_response_cuts_off_the_last_call() {
        let mut half = call();
        half["status"] = "incomplete".into();
        assert_eq!(cut_off_flags(json!([call(), half])), [false, true]);
        assert_eq!(
            cut_off_flags(
                json!({"object": "response", "status": "incomplete", "output": [call(), call()]})
            ),
            [false, true]
        );
        let last_message = json!({"type": "message", "role": "assistant", "content": []});
        assert_eq!(
            cut_off_flags(json!({"status": "incomplete", "output": [call(), last_message]})),
            [false]
        );
    }

    #[test]
    fn output_is_a_text_or_parts() {
        let reply = reply_to(call(), tool_reply(&[text("a"), text("b")]));
        assert_eq!(
            reply,
            json!({"type": "function_call_output", "call_id": "c1", "output": "a\nb"})
        );
        let reply = reply_to(
            call(),
            tool_reply(&[
                text("a"),
                image("image/jpg"),
                file("f:///r.pdf", "application/pdf"),
            ]),
        );
        assert_eq!(
            reply["output"],
            json!([
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/jpeg;base64,aGk="},
                {"type": "input_file", "filename": "r.pdf", "file_data": "data:application/pdf;base64,aGk="}
            ])
        );
    }

    #[test]
    fn calls_of_the_provider_s_own_tools_are_answered() {
        let calls = json!([
            {"type": "tool_search_call", "id": "ts", "call_id": "c1", "execution": "client", "status": "completed", "arguments": {}},
            {"type": "shell_call", "id": "sh", "call_id": "c2", "action": {"commands": ["ls"]}, "status": "completed"},
            {"type": "apply_patch_call", "id": "ap", "call_id": "c3", "operation": {}, "status": "completed"},
            {"type": "local_shell_call", "id": "c4", "action": {}, "status": "completed"},
            {"type": "tool_search_call", "execution": "server", "arguments": {}},
            {"type": "shell_call", "call_id": "c6", "environment": {"type": "container_reference"}},
        ]);
        let message = read_guessed(calls);
        assert_eq!(
            (
                message.calls.len(),
                message.calls.iter().filter(|call| call.is_err()).count()
            ),
            (4, 4)
        );
        let content = [text("no")];
        let reply = ToolReply {
            is_error: true,
            is_invalid_call: true,
            ..tool_reply(&content)
        };
        let replied = write_replies(&message, &[reply; 4]);
        assert_eq!(
            replied[0],
            json!({"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": []})
        );
        assert_eq!(
            (
                &replied[1]["type"],
                &replied[1]["output"][0]["outcome"]["exit_code"]
            ),
            (&json!("shell_call_output"), &json!(1))
        );
        assert_eq!(
            replied[2],
            json!({"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "Error: no"})
        );
        assert_eq!(
            replied[3],
            json!({"type": "local_shell_call_output", "id": "c4", "output": "Error: no"})
        );
    }

    #[test]
    fn openai_texts_say_that_a_call_failed() {
        let message = read_guessed(
            json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]),
        );
        for (reply, shown) in [
            ("no such city", "Error: no such city"),
            ("Error 42", "Error 42"),
        ] {
            let content = [text(reply)];
            let reply = ToolReply {
                is_error: true,
                ..tool_reply(&content)
            };
            assert_eq!(write_replies(&message, &[reply])[0]["output"], shown);
        }
    }
}
