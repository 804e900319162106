//! One operation for each tool, with the tool's own types, beside the fixed routes of the OpenAPI document.
//!
//! `POST /tools/get_weather/invoke` is what `POST /tools/{name}/invoke` is, said of one tool: its request, answer and
//! problems are the fixed route's, with the input schema in the place of `arguments` and the output schema in the place
//! of `structured_content`. JSON text as `arguments` is left to the fixed route: a typed client has no use for it. So are
//! streams of events and `respond-async`: an answer that may be of three types is no typed answer.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::call::Definition;
use crate::schema;

/// The route that all tools share.
const SHARED: &str = "/tools/{name}/invoke";

/// The document of the fixed routes, as it stands for every caller.
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

    /// The document with these tools.
    pub(super) fn with_tools<'a>(&self, tools: impl IntoIterator<Item = &'a Definition>) -> Value {
        let mut tools: Vec<&Definition> = tools.into_iter().collect();
        // A tool that is called what its operation is called gets that name before one that only comes close.
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
            // Null when the tool says no.
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
            // The name is said by the path itself.
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

    /// A fixed shape with one property of another type.
    fn like(&self, shape: &str, property: &str, schema: Value) -> Value {
        let mut like = self.document["components"]["schemas"][shape].clone();
        like["properties"][property] = schema;
        like
    }
}

/// Puts a tool's schema among the document's. One that cannot be there is shown as what it is at least.
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

/// What is called something already. Generators make class, function and file names of these, and each language has
/// its own way with case and underscores: what differs in nothing else counts as the same.
#[derive(Clone, Default)]
struct Names(HashSet<String>);

fn normal(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

impl Names {
    /// The name, or the name with the first number that makes it free.
    fn claim(&mut self, wanted: &str) -> String {
        self.first_free(wanted, |name| vec![name.to_owned()])
    }

    /// A word of which all names of one tool can be made.
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
