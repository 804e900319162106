//! Writes one tool, and the list of all tools, in the format of each API.

use serde_json::{Value, json};

use super::{Format, ListedTool, mcp};
use crate::call::{Definition, Example, JsonObject};
use crate::schema;

/// One tool in a format.
pub(super) fn render_tool(format: Format, name: &str, offer: &ListedTool<'_>) -> Value {
    let Definition {
        description,
        input_schema,
        examples,
        ..
    } = offer.definition;
    if format == Format::Native {
        return json!({"name": name, "description": description, "input_schema": input_schema});
    }
    let parameters = portable_parameters(input_schema);
    let mut tool = JsonObject::new();
    tool.insert("name".into(), name.into());
    let description = match format {
        Format::Anthropic | Format::Mcp => description.clone(),
        _ => with_example(description, examples),
    };
    // Bedrock refuses an empty text, and it is useless anyway.
    if !description.trim().is_empty() {
        tool.insert("description".into(), description.into());
    }
    match format {
        Format::Openai => {
            tool.insert("parameters".into(), parameters);
            json!({"type": "function", "function": tool})
        }
        Format::OpenaiResponses => {
            tool.insert("type".into(), "function".into());
            tool.insert("parameters".into(), parameters);
            // Without this field, Responses treats the schema as strict: all parameters become
            // required, and keywords outside the strict subset are refused.
            tool.insert("strict".into(), false.into());
            tool.into()
        }
        Format::Anthropic | Format::Native => {
            tool.insert("input_schema".into(), parameters);
            if offer.deferred {
                tool.insert("defer_loading".into(), true.into());
            }
            if !examples.is_empty() {
                let arguments = examples.iter().map(|example| example.arguments.clone());
                tool.insert(
                    "input_examples".into(),
                    arguments.collect::<Vec<_>>().into(),
                );
            }
            tool.into()
        }
        Format::Gemini => {
            // `parameters` is an OpenAPI 3.0 schema, which has no references, no lists of types and
            // no additionalProperties. This field is JSON Schema. API reference,
            // FunctionDeclaration: "For function with no parameters, this can be left unset". An
            // object without properties was refused ("should be non-empty for OBJECT type").
            if !has_no_parameters(&parameters) {
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
            mcp::add_mcp_fields(&mut tool, offer);
            tool.into()
        }
    }
}

/// All tools. Without tools, the result is whatever the API accepts. OpenAI and Bedrock refuse an
/// empty list, so a client must leave `tools` or `toolConfig` out of the request.
pub(super) fn render_list(format: Format, tools: Vec<Value>) -> Value {
    match format {
        Format::Native | Format::Openai | Format::OpenaiResponses | Format::Anthropic => {
            tools.into()
        }
        // An empty list of declarations is refused. An empty list of tools is accepted.
        Format::Gemini if tools.is_empty() => json!([]),
        Format::Gemini => json!([{"functionDeclarations": tools}]),
        Format::Bedrock | Format::Mcp => json!({"tools": tools}),
    }
}

/// The input schema in keywords that all providers accept. A schema that refers to another one
/// outside of it stays as it is.
pub(super) fn portable_parameters(input_schema: &Value) -> Value {
    let mut parameters =
        schema::to_standalone(input_schema).unwrap_or_else(|| input_schema.clone());
    if let Some(root) = parameters.as_object_mut() {
        // Error text of OpenAI: "object schema missing properties".
        root.entry("properties").or_insert_with(|| json!({}));
    }
    parameters
}

/// Longest example in a description, in bytes.
const LONGEST_EXAMPLE: usize = 300;

/// The description with the first example, for APIs that have no field for examples.
fn with_example(description: &str, examples: &[Example]) -> String {
    let first = examples.first().map(|example| json!(example.arguments));
    let first = first.map(|arguments| arguments.to_string());
    match first.filter(|text| text.len() <= LONGEST_EXAMPLE) {
        Some(example) => format!("{description}\n\nExample of arguments: {example}")
            .trim_start()
            .to_owned(),
        None => description.to_owned(),
    }
}

/// Whether only an empty object fits, or the schema states only that the value is an object.
fn has_no_parameters(parameters: &Value) -> bool {
    let mut words = parameters.as_object().into_iter().flatten();
    words.all(|(word, value)| match word.as_str() {
        "type" | "title" | "description" => true,
        "properties" | "required" => {
            value.as_object().is_some_and(JsonObject::is_empty) || *value == json!([])
        }
        "additionalProperties" => *value == json!(false),
        _ => false,
    })
}
