//! Adds one operation for each tool, with the tool's own types, to the OpenAPI document of the fixed routes.
//!
//! `POST /tools/get_weather/invoke` is `POST /tools/{name}/invoke` for one tool. Its request, answer and problems are
//! those of the fixed route. Only the type of `arguments` is the input schema, and the type of `structured_content` is
//! the output schema.
//!
//! Some features are documented at the fixed route only. JSON text as `arguments` is of no use to a typed client. With
//! streams of events and `respond-async`, an answer could have three types, so it would not be typed.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::call::Definition;
use crate::schema;

/// The route that all tools share.
const SHARED: &str = "/tools/{name}/invoke";

/// The document of the fixed routes, the same for every caller.
pub(super) struct Fixed {
    document: Value,
    names: Names,
}

impl Fixed {
    pub(super) fn new(document: &utoipa::openapi::OpenApi) -> Self {
        let document = json!(document);
        let mut names = Names::default();
        let operations = document["paths"].as_object().into_iter().flatten().flat_map(|(_, path)| path.as_object());
        let ids = operations.flatten().filter_map(|(_, operation)| operation["operationId"].as_str());
        let schemas =
            document["components"]["schemas"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        names.0.extend(ids.chain(schemas).map(normal));
        Self { document, names }
    }

    /// The document with an operation for each of these tools.
    pub(super) fn with_tools<'a>(&self, tools: impl IntoIterator<Item = &'a Definition>) -> Value {
        let mut tools: Vec<&Definition> = tools.into_iter().collect();
        // A tool whose name is already a valid identifier gets it first. Then no tool with a similar name can take it.
        let comes_close = |tool: &Definition| schema::identifier(tool.name.as_str()) != tool.name.as_str();
        tools.sort_by_key(|tool| (comes_close(tool), tool.name.as_str()));
        let mut document = self.document.clone();
        let mut names = self.names.clone();
        let (mut paths, mut schemas) = (Map::new(), Map::new());
        for tool in tools {
            let path = SHARED.replace("{name}", tool.name.as_str());
            paths.insert(path, self.path(tool, &mut names, &mut schemas));
        }
        for (place, more) in [("/paths", paths), ("/components/schemas", schemas)] {
            if let Some(Value::Object(there)) = document.pointer_mut(place) {
                there.extend(more);
            }
        }
        document
    }

    fn path(&self, tool: &Definition, names: &mut Names, schemas: &mut Map<String, Value>) -> Value {
        let Definition { name, description, input_schema, output_schema, annotations, tags, .. } = tool;
        let family = names.family(&schema::identifier(name.as_str()));

        let arguments = format!("{family}_arguments");
        place(tool, input_schema, &arguments, &family, names, schemas);
        let request = format!("{family}_request");
        schemas.insert(request.clone(), self.like("InvokeRequest", "arguments", reference(&arguments)));

        let mut operation = self.document["paths"][SHARED]["post"].clone();
        if let Some(output) = output_schema {
            let result = format!("{family}_result");
            place(tool, output, &result, &result, names, schemas);
            let answer = format!("{family}_answer");
            // Null if the result is an error.
            let content = json!({"oneOf": [reference(&result), {"type": "null"}]});
            schemas.insert(answer.clone(), self.like("InvokeAnswer", "structured_content", content));
            operation["responses"]["200"]["content"]["application/json"]["schema"] = reference(&answer);
        }
        let title = annotations.get("title").and_then(Value::as_str);
        let first_sentence = description.lines().next().and_then(|line| line.split(". ").next());
        let labels = std::iter::once("invoke").chain(tags.iter().map(String::as_str).filter(|tag| *tag != "invoke"));
        operation["tags"] = labels.collect();
        operation["summary"] = title.or(first_sentence).unwrap_or_default().into();
        operation["description"] = description.as_str().into();
        operation["operationId"] = format!("invoke_{family}").into();
        operation["requestBody"]["content"]["application/json"]["schema"] = reference(&request);
        if let Some(parameters) = operation["parameters"].as_array_mut() {
            // The path has the name, and `respond-async` is documented at the fixed route only.
            parameters.retain(|parameter| parameter["in"] != "path" && parameter["name"] != "prefer");
        }
        if let Some(responses) = operation["responses"].as_object_mut() {
            responses.shift_remove("202");
        }
        if let Some(content) = operation["responses"]["200"]["content"].as_object_mut() {
            content.shift_remove("text/event-stream");
        }
        json!({"post": operation})
    }

    /// A copy of a fixed schema, with another type for one property.
    fn like(&self, shape: &str, property: &str, schema: Value) -> Value {
        let mut like = self.document["components"]["schemas"][shape].clone();
        like["properties"][property] = schema;
        like
    }
}

/// Adds a tool's schema to the schemas of the document. If the schema cannot be moved there, the document says so, and
/// accepts any value.
fn place(
    tool: &Definition,
    schema: &Value,
    root: &str,
    prefix: &str,
    names: &mut Names,
    schemas: &mut Map<String, Value>,
) {
    match schema::components(schema, root, prefix, |wanted| names.claim(wanted)) {
        Some(parts) => schemas.extend(parts),
        None => {
            let description = format!(
                "GET /tools/{} has this schema: it refers to its parts in a way that has no place in this document.",
                tool.name
            );
            schemas.insert(root.to_owned(), json!({"additionalProperties": true, "description": description}));
        }
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The names that are taken, in normal form.
///
/// Generators make names of classes, functions and files of them. Each language changes case and underscores in its own
/// way. So names that differ in nothing else count as equal.
#[derive(Clone, Default)]
struct Names(HashSet<String>);

fn normal(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

impl Names {
    /// Takes the name, or the name with the first number that makes it free.
    fn claim(&mut self, wanted: &str) -> String {
        self.first_free(wanted, |name| vec![name.to_owned()])
    }

    /// Takes all names of one tool at once, and returns their common stem: `wanted`, or `wanted` with a number.
    fn family(&mut self, wanted: &str) -> String {
        self.first_free(wanted, |word| {
            let suffixes = ["arguments", "request", "result", "answer"].map(|suffix| format!("{word}_{suffix}"));
            suffixes.into_iter().chain([format!("invoke_{word}")]).collect()
        })
    }

    fn first_free(&mut self, wanted: &str, made_of: impl Fn(&str) -> Vec<String>) -> String {
        let mut word = wanted.to_owned();
        let mut number = 1;
        loop {
            let made: Vec<String> = made_of(&word).iter().map(|name| normal(name)).collect();
            if !made.iter().any(|name| self.0.contains(name)) {
                self.0.extend(made);
                return word;
            }
            number += 1;
            word = format!("{wanted}_{number}");
        }
    }
}
