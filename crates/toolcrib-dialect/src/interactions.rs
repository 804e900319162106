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
    let mut step = json!({"type": "function_result", "call_id": answered.id, "result": result});
    if let Some(name) = answered.name {
        step["name"] = name.into();
    }
    if reply.is_error {
        step["is_error"] = true.into();
    }
    step
}

fn image_part(block: &Content) -> Option<Value> {
    let (kind, data) = blocks::image(block, &IMAGE_TYPES)?;
    Some(json!({"type": "image", "mime_type": kind, "data": data}))
}
