//! Adds one operation for each tool, with the tool's own types, to the OpenAPI document of the
//! fixed routes.
//!
//! `POST /tools/get_weather/invoke` is `POST /tools/{name}/invoke` for one tool. Its request,
//! answer and problems are those of the fixed route. Only the type of `arguments` is the input
//! schema, and the type of `structured_content` is the output schema.
//!
//! Some features are documented at the fixed route only. JSON text as `arguments` is of no use to a
//! typed client. With streams of events and `respond-async`, an answer could have three types, so
//! it would not be typed.

use std::collections::HashSet;

use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

use super::examples::{self, ExampleCall};
use crate::call::{Definition, Effect};
use crate::manifest::registered::registered_schemas;
use crate::schema;

/// The route that all tools share.
const INVOKE_ROUTE: &str = "/tools/{name}/invoke";

/// `openapi/openapi.json`, which `build.rs` has compressed.
const COMMITTED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// The document of the fixed routes, the same for every caller.
pub(crate) struct FixedRoutes {
    document: Value,
    names: UsedNames,
}

impl FixedRoutes {
    /// From the code.
    pub(crate) fn described(routes: &utoipa::openapi::OpenApi) -> Self {
        let mut document = json!(routes);
        if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") {
            schemas.extend(registered_schemas());
        }
        Self::new(document)
    }

    /// From `openapi/openapi.json`.
    pub(crate) fn committed() -> Self {
        Self::new(serde_json::from_reader(GzDecoder::new(COMMITTED)).unwrap_or_default())
    }

    fn new(document: Value) -> Self {
        let mut names = UsedNames::default();
        let operations = document["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(_, path)| path.as_object());
        let ids = operations
            .flatten()
            .filter_map(|(_, operation)| operation["operationId"].as_str());
        let schemas = document["components"]["schemas"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str());
        names.0.extend(ids.chain(schemas).map(normalize));
        Self { document, names }
    }

    /// The document with an operation for each of these tools.
    pub(crate) fn with_tools<'a>(
        &self,
        tools: impl IntoIterator<Item = (&'a Definition, Effect)>,
    ) -> Value {
        let tools: Vec<(&Definition, Effect)> = tools.into_iter().collect();
        let example_call = ExampleCall::select(tools.iter().copied());
        let mut tools: Vec<&Definition> = tools.into_iter().map(|(tool, _)| tool).collect();
        // A tool whose name is already a valid identifier gets it first. Then no tool with a
        // similar name can take it.
        let is_changed =
            |tool: &Definition| schema::to_identifier(tool.name.as_str()) != tool.name.as_str();
        tools.sort_by_key(|tool| (is_changed(tool), tool.name.as_str()));
        let mut document = self.document.clone();
        let mut names = self.names.clone();
        let (mut paths, mut schemas) = (Map::new(), Map::new());
        for tool in tools {
            let path = INVOKE_ROUTE.replace("{name}", tool.name.as_str());
            paths.insert(path, self.tool_path_item(tool, &mut names, &mut schemas));
        }
        examples::add_shared_examples(&mut document, &example_call);
        for (pointer, added) in [("/paths", paths), ("/components/schemas", schemas)] {
            if let Some(Value::Object(existing)) = document.pointer_mut(pointer) {
                existing.extend(added);
            }
        }
        document
    }

    fn tool_path_item(
        &self,
        tool: &Definition,
        names: &mut UsedNames,
        schemas: &mut Map<String, Value>,
    ) -> Value {
        let stem = names.claim_stem(&schema::to_identifier(tool.name.as_str()));

        let arguments = format!("{stem}_arguments");
        add_schema(tool, &tool.input_schema, &arguments, &stem, names, schemas);
        let request = format!("{stem}_request");
        schemas.insert(
            request.clone(),
            self.copy_with_property("InvokeRequest", "arguments", schema_ref(&arguments)),
        );

        let mut operation = self.document["paths"][INVOKE_ROUTE]["post"].clone();
        if let Some(output) = &tool.output_schema {
            let result = format!("{stem}_result");
            add_schema(tool, output, &result, &result, names, schemas);
            let answer = format!("{stem}_answer");
            // Null if the result is an error.
            let content = json!({"oneOf": [schema_ref(&result), {"type": "null"}]});
            schemas.insert(
                answer.clone(),
                self.copy_with_property("InvokeAnswer", "structured_content", content),
            );
            operation["responses"]["200"]["content"]["application/json"]["schema"] =
                schema_ref(&answer);
        }
        let title = tool.annotations.get("title").and_then(Value::as_str);
        let first_sentence = tool
            .description
            .lines()
            .next()
            .and_then(|line| line.split(". ").next());
        let labels = std::iter::once("invoke").chain(
            tool.tags
                .iter()
                .map(String::as_str)
                .filter(|tag| *tag != "invoke"),
        );
        operation["tags"] = labels.collect();
        operation["summary"] = title.or(first_sentence).unwrap_or_default().into();
        operation["description"] = tool.description.as_str().into();
        operation["operationId"] = format!("invoke_{stem}").into();
        let request_content = &mut operation["requestBody"]["content"]["application/json"];
        request_content["schema"] = schema_ref(&request);
        request_content["example"] = examples::tool_request(tool);
        operation["responses"]["200"]["content"]["application/json"]["example"] =
            examples::tool_answer(tool);
        if let Some(parameters) = operation["parameters"].as_array_mut() {
            // The path has the name, and `respond-async` is documented at the fixed route only.
            parameters
                .retain(|parameter| parameter["in"] != "path" && parameter["name"] != "prefer");
        }
        if let Some(responses) = operation["responses"].as_object_mut() {
            responses.shift_remove("202");
        }
        if let Some(content) = operation["responses"]["200"]["content"].as_object_mut() {
            content.shift_remove("text/event-stream");
        }
        json!({"post": operation})
    }

    /// The document for a service without callers: no operation needs a key, and none takes one.
    pub(crate) fn without_keys(mut document: Value) -> Value {
        if let Some(root) = document.as_object_mut() {
            root.shift_remove("security");
        }
        if let Some(components) = document
            .get_mut("components")
            .and_then(Value::as_object_mut)
        {
            components.shift_remove("securitySchemes");
        }
        document
    }

    /// A copy of a fixed schema, with another type for one property.
    fn copy_with_property(&self, shape: &str, property: &str, schema: Value) -> Value {
        let mut like = self.document["components"]["schemas"][shape].clone();
        like["properties"][property] = schema;
        like
    }
}

/// Adds a tool's schema to the schemas of the document. If the schema cannot be moved there, the
/// document says so, and accepts any value.
fn add_schema(
    tool: &Definition,
    schema: &Value,
    root: &str,
    prefix: &str,
    names: &mut UsedNames,
    schemas: &mut Map<String, Value>,
) {
    match schema::split_components(schema, root, prefix, |wanted| names.claim_name(wanted)) {
        Some(parts) => schemas.extend(parts),
        None => {
            let description = format!(
                "GET /tools/{} has this schema. Its references cannot be expressed in this document.",
                tool.name
            );
            schemas.insert(
                root.to_owned(),
                json!({"additionalProperties": true, "description": description}),
            );
        }
    }
}

fn schema_ref(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The names that are taken, in normal form.
///
/// Generators make names of classes, functions and files of them. Each language changes case and
/// underscores in its own way. So names that differ in nothing else count as equal.
#[derive(Clone, Default)]
struct UsedNames(HashSet<String>);

fn normalize(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

impl UsedNames {
    /// Takes the name, or the name with the first number that makes it free.
    fn claim_name(&mut self, wanted: &str) -> String {
        self.first_free(wanted, |name| vec![name.to_owned()])
    }

    /// Takes all names of one tool at once, and returns their common stem: `wanted`, or `wanted`
    /// with a number.
    fn claim_stem(&mut self, wanted: &str) -> String {
        self.first_free(wanted, |word| {
            let suffixes = ["arguments", "request", "result", "answer"]
                .map(|suffix| format!("{word}_{suffix}"));
            suffixes
                .into_iter()
                .chain([format!("invoke_{word}")])
                .collect()
        })
    }

    fn first_free(&mut self, wanted: &str, made_of: impl Fn(&str) -> Vec<String>) -> String {
        let mut word = wanted.to_owned();
        let mut number = 1;
        loop {
            let made: Vec<String> = made_of(&word).iter().map(|name| normalize(name)).collect();
            if !made.iter().any(|name| self.0.contains(name)) {
                self.0.extend(made);
                return word;
            }
            number += 1;
            word = format!("{wanted}_{number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `toolcrib openapi > openapi/openapi.json` of an unoptimized build renews it.
    #[test]
    fn committed_document_is_current() {
        let described = FixedRoutes::described(&crate::http::routes::describe()).with_tools([]);
        let committed = FixedRoutes::committed();
        assert!(
            committed.document == described && committed.with_tools([]) == described,
            "openapi/openapi.json is not current: run `target/debug/toolcrib openapi > openapi/openapi.json`"
        );
    }
}
