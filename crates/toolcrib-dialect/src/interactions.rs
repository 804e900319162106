//! The `gemini-interactions` dialect: steps of Gemini's Interactions API.

use serde_json::{Value, json};

use super::blocks;
use super::found_calls::{FoundCalls, text_field};
use super::message::AnsweredCall;
use crate::content::Content;
use crate::strict_json::JsonObject;

/// Image types that the API takes in the result of a function.
const IMAGE_TYPES: [&str; 3] = ["image/png", "image/jpeg", "image/webp"];

/// Finds the calls. Returns false if the body is not an object of the Interactions API.
pub(super) fn find_calls(body: &mut Value, found: &mut FoundCalls) -> bool {
    found.visit_body(body, parts, is_step, read_step)
}

fn parts(fields: &mut JsonObject) -> Option<(&mut Vec<Value>, bool)> {
    let is_cut = matches!(
        text_field(fields, "status"),
        Some("incomplete" | "failed" | "cancelled" | "budget_exceeded")
    );
    Some((fields.get_mut("steps")?.as_array_mut()?, is_cut))
}

fn is_step(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string)
}

/// Adds the step to `found` if it is a call. Returns whether it is a call. The provider runs all
/// other steps itself.
fn read_step(fields: &mut JsonObject, found: &mut FoundCalls) -> bool {
    let is_call = text_field(fields, "type") == Some("function_call");
    if is_call {
        found.take_call_with_id(fields, &["id"], "name", "arguments");
    }
    is_call
}

/// The step with the result of a call: an object, a text, or a list of parts if there are pictures.
pub(super) fn write_result(answered: AnsweredCall<'_>) -> Value {
    let reply = answered.reply;
    let images: Vec<Value> = reply.content.iter().filter_map(image_part).collect();
    let texts = reply.content.len() - images.len();
    let data = reply.structured.filter(|data| {
        let stated = blocks::find_data_texts(reply);
        data.is_object() && images.is_empty() && stated.is_some_and(|stated| stated.len() == texts)
    });
    let result = match data {
        Some(data) => data.clone(),
        None => {
            let text = blocks::text_except(reply, |block| image_part(block).is_some());
            match images.is_empty() {
                true => text.into(),
                false => {
                    let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
                    text.into_iter().chain(images).collect()
                }
            }
        }
    };
    blocks::without_nulls(json!({
        "type": "function_result",
        "call_id": answered.id,
        "result": result,
        "name": answered.name,
        "is_error": reply.is_error.then_some(true),
    }))
}

fn image_part(block: &Content) -> Option<Value> {
    let (kind, data) = blocks::image(block, &IMAGE_TYPES)?;
    Some(json!({"type": "image", "mime_type": kind, "data": data}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::*;
    use crate::*;

    #[test]
    fn step_of_interactions_is_answered_under_its_id() {
        let step =
            json!({"type": "function_call", "id": "fc_1", "name": "f", "arguments": {"a": 1}});
        let interaction = json!({"id": "v1_x", "status": "requires_action", "steps": [{"type": "thought"}, step]});
        for body in [step.clone(), json!([step]), interaction] {
            let calls = one_call("fc_1", "f", json!({"a": 1}));
            assert_eq!(read_calls(body), (Dialect::GeminiInteractions, calls));
        }
        let message = read_guessed(step.clone());
        let (data, content) = (json!({"n": 1}), [text("{\"n\":1}")]);
        let reply = ToolReply {
            structured: Some(&data),
            ..tool_reply(&content)
        };
        let expected = json!([{"type": "function_result", "call_id": "fc_1", "name": "f", "result": {"n": 1}}]);
        assert_eq!(json!(write_replies(&message, &[reply])), expected);
        let content = [
            text("no"),
            Content::Image {
                data: "aGk=".into(),
                mime_type: "image/png".into(),
            },
        ];
        let reply = ToolReply {
            is_error: true,
            ..tool_reply(&content)
        };
        let parts = json!([{"type": "text", "text": "no"}, {"type": "image", "mime_type": "image/png", "data": "aGk="}]);
        let expected = json!([{"type": "function_result", "call_id": "fc_1", "name": "f", "result": parts, "is_error": true}]);
        assert_eq!(json!(write_replies(&message, &[reply])), expected);
        // Read as another API, the call would run under an id that its provider does not know.
        let message = read_message(step, Some(Dialect::OpenaiResponses)).unwrap();
        let malformed = message.calls[0].as_ref().unwrap_err();
        assert!(
            malformed.fault.contains("gemini-interactions"),
            "{malformed:?}"
        );
    }
}
