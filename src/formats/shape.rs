//! What each API wants of one tool, and of all of them together.

use serde_json::{Value, json};

use super::{Format, Offer, mcp};
use crate::call::{Definition, JsonObject};
use crate::schema;

/// One tool.
pub(super) fn tool(format: Format, name: &str, offer: &Offer<'_>) -> Value {
    let Definition { description, input_schema, .. } = offer.definition;
    if format == Format::Native {
        return json!({"name": name, "description": description, "input_schema": input_schema});
    }
    let parameters = parameters(input_schema);
    let mut tool = JsonObject::new();
    tool.insert("name".into(), name.into());
    // Bedrock refuses an empty text, and nobody learns anything from it.
    if !description.trim().is_empty() {
        tool.insert("description".into(), description.as_str().into());
    }
    match format {
        Format::Openai => {
            tool.insert("parameters".into(), parameters);
            json!({"type": "function", "function": tool})
        }
        Format::OpenaiResponses => {
            tool.insert("type".into(), "function".into());
            tool.insert("parameters".into(), parameters);
            // Where nothing is said Responses makes the schema a strict one: all parameters required, and refused if it
            // holds what the strict subset has not.
            tool.insert("strict".into(), false.into());
            tool.into()
        }
        Format::Anthropic | Format::Native => {
            tool.insert("input_schema".into(), parameters);
            tool.into()
        }
        Format::Gemini => {
            // `parameters` is an OpenAPI 3.0 schema, in which neither references nor lists of types nor
            // additionalProperties can be said; this is JSON Schema. API reference, FunctionDeclaration: "For function
            // with no parameters, this can be left unset"; an object without properties was refused ("should be
            // non-empty for OBJECT type").
            if !is_empty(&parameters) {
                tool.insert("parametersJsonSchema".into(), parameters);
            }
            tool.into()
        }
        Format::Bedrock => {
            tool.insert("inputSchema".into(), json!({"json": parameters}));
            json!({"toolSpec": tool})
        }
        Format::Mcp => {
            tool.insert("inputSchema".into(), parameters);
            mcp::complete(&mut tool, offer);
            tool.into()
        }
    }
}

/// All tools. Who has none gets what that API takes, as far as it takes anything: OpenAI and Bedrock refuse an empty
/// list, so there `tools` and `toolConfig` have to be left out of the request.
pub(super) fn list(format: Format, tools: Vec<Value>) -> Value {
    match format {
        Format::Native | Format::Openai | Format::OpenaiResponses | Format::Anthropic => tools.into(),
        // An empty list of declarations is refused, no list is not.
        Format::Gemini if tools.is_empty() => json!([]),
        Format::Gemini => json!([{"functionDeclarations": tools}]),
        Format::Bedrock | Format::Mcp => json!({"tools": tools}),
    }
}

/// The input schema in words that all take. One that cannot be said in them (a nested `$id`) goes out as it is.
fn parameters(input_schema: &Value) -> Value {
    let mut parameters = schema::standalone(input_schema).unwrap_or_else(|| input_schema.clone());
    if let Some(root) = parameters.as_object_mut() {
        // OpenAI's own error text: "object schema missing properties".
        root.entry("properties").or_insert_with(|| json!({}));
    }
    parameters
}

/// Whether nothing but an empty object fits, or a schema says no more than that it is an object.
fn is_empty(parameters: &Value) -> bool {
    let mut words = parameters.as_object().into_iter().flatten();
    words.all(|(word, value)| match word.as_str() {
        "type" | "title" | "description" => true,
        "properties" | "required" => value.as_object().is_some_and(JsonObject::is_empty) || *value == json!([]),
        "additionalProperties" => *value == json!(false),
        _ => false,
    })
}
