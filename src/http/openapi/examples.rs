//! Example requests in the OpenAPI document, so that each operation can be tried at once. They name
//! one tool of the caller, so that they succeed.

use serde_json::{Value, json};

use crate::call::{Definition, Effect, Example, JsonObject, ToolResult};
use crate::schema::sample_value;

/// A name for a tool that the example of a registration adds.
const REGISTERED_NAME: &str = "example_status";

/// The tool that the examples of the shared routes call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExampleCall {
    tool: String,
    arguments: JsonObject,
}

impl Default for ExampleCall {
    /// A tool of the demo.
    fn default() -> Self {
        let arguments = JsonObject::from_iter([("expression".to_owned(), json!("6 * 7"))]);
        Self {
            tool: "calculator".into(),
            arguments,
        }
    }
}

impl ExampleCall {
    /// Selects a tool, if possible one that changes nothing and that has an example. Without tools,
    /// a tool of the demo.
    pub(crate) fn select<'a>(tools: impl Iterator<Item = (&'a Definition, Effect)>) -> Self {
        let best =
            tools.min_by_key(|(tool, effect)| (*effect != Effect::Read, tool.examples.is_empty()));
        best.map(|(tool, _)| Self {
            tool: tool.name.to_string(),
            arguments: example_arguments(tool),
        })
        .unwrap_or_default()
    }
}

/// The arguments of the tool's first example; without one, arguments that fit its schema.
fn example_arguments(tool: &Definition) -> JsonObject {
    match tool.examples.first() {
        Some(example) => example.arguments.clone(),
        None => match sample_value(&tool.input_schema) {
            Value::Object(arguments) => arguments,
            _ => JsonObject::new(),
        },
    }
}

/// The example of a request to the tool's own operation.
pub(crate) fn tool_request(tool: &Definition) -> Value {
    json!({"arguments": example_arguments(tool)})
}

/// The example of an answer: the result of the tool's first example, a value that fits its output
/// schema, or a text.
pub(crate) fn tool_answer(tool: &Definition) -> Value {
    let declared = tool
        .examples
        .first()
        .and_then(|Example { result, .. }| result.clone());
    let sample = || {
        tool.output_schema
            .as_ref()
            .map(|schema| sample_value(schema))
    };
    let result = ToolResult::json(declared.or_else(sample).unwrap_or_else(|| json!("…")));
    answer(tool.name.as_str(), &result, tool.result_as_answer)
}

fn answer(tool: &str, result: &ToolResult, result_as_answer: bool) -> Value {
    json!({
        "invocation_id": "0192f2b4-7c1a-7000-8000-000000000001", "tool": tool, "tool_use_id": null, "is_error": false,
        "content": result.content, "structured_content": result.structured_content, "result_as_answer": result_as_answer,
        "meta": {"cache": "off", "attempts": 1, "duration_ms": 0.4, "usage": [], "coercions": [], "overflow": null,
            "warnings": []},
    })
}

/// Adds the examples of the shared routes.
pub(crate) fn add_shared_examples(document: &mut Value, call: &ExampleCall) {
    let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) else {
        return;
    };
    for (path, operations) in paths.iter_mut().filter(|(path, _)| path.contains("{name}")) {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            let is_registration =
                path == "/tools/{name}" && matches!(method.as_str(), "put" | "delete");
            let name = if is_registration {
                REGISTERED_NAME
            } else {
                &call.tool
            };
            let parameters = operation
                .get_mut("parameters")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten();
            // The names of sources are other names.
            for parameter in parameters
                .filter(|parameter| parameter["name"] == "name" && path.starts_with("/tools/"))
            {
                parameter["example"] = json!(name);
            }
        }
    }
    let invoke = json!({"arguments": call.arguments});
    let function = json!({"name": call.tool, "arguments": json!(call.arguments).to_string()});
    let message = json!({
        "role": "assistant", "content": null,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    });
    let registration = json!({
        "kind": "http", "description": "Current status of GitHub. Use it before work that needs GitHub.", "effect": "read",
        "parameters": {},
        "request": {"url": "https://www.githubstatus.com/api/v2/status.json"}, "response": {"pick": "/status"},
    });
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "api-page", "version": "1"}},
    });
    let ran = paths
        .get_mut("/tools/{name}/invoke")
        .and_then(|path| path.pointer_mut("/post/responses/200/content/application~1json"));
    if let Some(content) = ran.and_then(Value::as_object_mut) {
        content.insert(
            "example".into(),
            answer(&call.tool, &ToolResult::text("…"), false),
        );
    }
    for (path, method, example) in [
        ("/tools/{name}/invoke", "post", invoke.clone()),
        ("/tools/{name}/validate", "post", invoke),
        ("/tools/{name}", "put", registration),
        ("/calls", "post", message),
        ("/mcp", "post", initialize),
    ] {
        let body = paths
            .get_mut(path)
            .and_then(|path| path.get_mut(method)?.get_mut("requestBody"));
        let content = body.and_then(|body| {
            body.get_mut("content")?
                .get_mut("application/json")?
                .as_object_mut()
        });
        if let Some(content) = content {
            content.insert("example".into(), example);
        }
    }
}
