//! Asks a server for its tools, and selects those that can be used.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, CustomResult, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool,
};
use rmcp::service::Peer;
use serde::Deserialize;
use serde_json::Value;

use super::config::ServerSettings;
use super::fault::{self, ListToolsError};
use super::message::TASK_ONLY_KEY;
use super::partial_list;
use crate::call::{CutEnds, JsonObject, Redact};
use crate::schema::{Schema, SchemaOwner};
use crate::secrets::Redactor;
use crate::sources::{DefinitionFingerprint, ToolFilter};
use crate::text::sanitize;

/// Most tools of a server.
const MAX_TOOLS: usize = 1000;
/// Most pages of a list of tools.
const MAX_PAGES: usize = 100;
/// Most bytes that are kept of a server's tools: definitions as JSON, faults of others, cursors.
const MAX_LISTING_BYTES: usize = 16 << 20;
/// Keywords whose value has schemas by name (JSON Schema 2020-12, and `definitions` of draft 7).
const SCHEMA_MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// Members of a tool without which it can be called.
const OPTIONAL_MEMBERS: [&str; 5] = ["icons", "_meta", "annotations", "title", "outputSchema"];
/// Most characters of a server's text in one warning.
const MAX_WARNING_CHARS: usize = 200;

/// The tools of a server: those that are wanted and usable, and warnings about the others.
#[derive(Clone, PartialEq)]
pub(super) struct ServerListing {
    pub tools: Vec<FingerprintedTool>,
    pub warnings: Vec<String>,
    /// Names of the tools that are wanted and cannot be used.
    pub skipped_names: Vec<String>,
}

impl ServerListing {
    /// Leaves out tools whose names contain a secret. A name appears in lists, metrics and records,
    /// and a redacted name would be another name.
    pub(super) fn reject_secret_names(&mut self, redactor: &Redactor) {
        let Self {
            tools,
            warnings,
            skipped_names,
        } = self;
        tools.retain(|FingerprintedTool { tool, .. }| {
            let is_secret = matches!(redactor.redact_text(&tool.name), Cow::Owned(_));
            if is_secret {
                let reason = "a tool is left out: its name contains a secret; rename it at the server, or add it to `exclude` to avoid this \
                   warning";
                warnings.push(reason.into());
                skipped_names.push(tool.name.to_string());
            }
            !is_secret
        });
    }
}

/// A tool, with the fingerprint of its definition as the server sent it.
#[derive(Clone)]
pub(super) struct FingerprintedTool {
    pub tool: Tool,
    pub fingerprint: Arc<DefinitionFingerprint>,
}

impl PartialEq for FingerprintedTool {
    fn eq(&self, other: &Self) -> bool {
        // For a model, the same members in another order are another definition.
        let text = |tool: &Tool| serde_json::to_string(tool).unwrap_or_default();
        self.fingerprint == other.fingerprint && text(&self.tool) == text(&other.tool)
    }
}

/// A tool of a page, with a warning if a part of it was left out, or the reason why it cannot be
/// read.
struct ReadTool {
    name: String,
    definition: Result<(Tool, Option<String>), String>,
}

/// One page of the list.
struct Page {
    tools: Vec<ReadTool>,
    next_cursor: Option<String>,
    /// How long the server says that the list is fresh, in milliseconds.
    ttl_ms: Option<u64>,
}

/// Asks for all pages of the list. Also returns how long the server says that the list is fresh.
///
/// # Errors
/// [`ListToolsError`].
pub(super) async fn fetch_listing(
    peer: &Peer<RoleClient>,
    settings: &ServerSettings,
    redactor: &Redactor,
) -> Result<(ServerListing, Option<Duration>), ListToolsError> {
    let (mut tools, mut cursor, mut seen, mut size) = (Vec::new(), None, HashSet::new(), 0);
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let response = peer.send_request(request).await;
        let page = read_page(response.map_err(|error| fault::list_tools_error(error, redactor))?)?;
        for tool in page.tools {
            size += match &tool.definition {
                Ok((tool, _)) => serde_json::to_vec(tool).map_or(0, |json| json.len()),
                Err(reason) => tool.name.len() + reason.len(),
            };
            tools.push(tool);
        }
        size += page.next_cursor.as_ref().map_or(0, String::len);
        if tools.len() > MAX_TOOLS {
            return Err(format!("it lists more than {MAX_TOOLS} tools").into());
        }
        if size > MAX_LISTING_BYTES {
            let max_bytes = bytesize::ByteSize(MAX_LISTING_BYTES as u64);
            return Err(format!("the definitions of its tools are larger than {max_bytes}").into());
        }
        let Some(next) = page.next_cursor else {
            let listing = select_tools(tools, settings, redactor);
            return Ok((listing, page.ttl_ms.map(Duration::from_millis)));
        };
        if !seen.insert(next.clone()) {
            let reason = "its list of tools has no end: a page refers to an earlier page";
            return Err(reason.to_owned().into());
        }
        cursor = Some(next);
    }
    Err(format!("its list of tools has more than {MAX_PAGES} pages").into())
}

/// Reads one page. If the page cannot be read as a whole, it is read tool by tool: one broken tool
/// must not hide the others.
fn read_page(response: ServerResult) -> Result<Page, String> {
    match response {
        ServerResult::ListToolsResult(list) => Ok(Page {
            tools: list.tools.into_iter().map(ReadTool::from).collect(),
            next_cursor: list.next_cursor.filter(|c| !c.is_empty()),
            ttl_ms: list.ttl_ms,
        }),
        ServerResult::CustomResult(CustomResult(Value::Object(mut fields))) => {
            let Some(Value::Array(tools)) = fields.remove("tools") else {
                return Err("its list of tools is invalid: `tools` is not an array".into());
            };
            let next = match fields.remove("nextCursor") {
                Some(Value::String(next)) if !next.is_empty() => Some(next),
                _ => None,
            };
            Ok(Page {
                tools: tools.into_iter().map(read_tool).collect(),
                next_cursor: next,
                ttl_ms: fields.get("ttlMs").and_then(Value::as_u64),
            })
        }
        _ => Err("its response is not a list of tools".into()),
    }
}

impl From<Tool> for ReadTool {
    fn from(tool: Tool) -> Self {
        Self {
            name: tool.name.to_string(),
            definition: Ok((tool, None)),
        }
    }
}

fn read_tool(tool: Value) -> ReadTool {
    let name = tool.get("name").and_then(Value::as_str);
    ReadTool {
        name: name.unwrap_or("?").to_owned(),
        definition: match partial_list::unreadable_reason(&tool) {
            Some(reason) => Err(reason.to_owned()),
            None => read_definition(tool),
        },
    }
}

/// Reads a tool. A member that it can do without is left out if it cannot be read.
fn read_definition(mut tool: Value) -> Result<(Tool, Option<String>), String> {
    let Some(fields) = tool.as_object_mut() else {
        return Err("it is not an object".into());
    };
    if fields.get("inputSchema").is_none_or(Value::is_null) {
        fields.insert("inputSchema".into(), Value::Object(JsonObject::new()));
    }
    let first_error = match Tool::deserialize(&tool) {
        Ok(tool) => return Ok((tool, None)),
        Err(error) => error.to_string(),
    };
    for name in OPTIONAL_MEMBERS {
        let removed = tool
            .as_object_mut()
            .and_then(|fields| fields.shift_remove(name));
        if removed.is_some()
            && let Ok(tool) = Tool::deserialize(&tool)
        {
            let warning = format!("its `{name}` is left out: {first_error}");
            return Ok((tool, Some(warning)));
        }
    }
    Err(first_error)
}

/// Selects the tools that are wanted and usable. Each name is taken once.
fn select_tools(
    tools: Vec<ReadTool>,
    settings: &ServerSettings,
    redactor: &Redactor,
) -> ServerListing {
    let short = |text: &str| -> String {
        redactor
            .excerpt(text, CutEnds::NONE)
            .chars()
            .take(MAX_WARNING_CHARS)
            .collect()
    };
    let filter = ToolFilter::new(&settings.include, &settings.exclude);
    let (mut chosen, mut skipped_names, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let all_names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let mut warnings = Vec::new();
    for (key, text) in filter.unmatched_entries(&all_names) {
        let text = short(text);
        warnings.push(format!(
            "`{key}`: no tool of the server has the name `{text}`"
        ));
    }
    for ReadTool { name, definition } in tools {
        if !filter.allows(&name) {
            continue;
        }
        let checked = definition.and_then(|(mut tool, warning)| {
            if !names.insert(name.clone()) {
                return Err("the list contains it twice".into());
            }
            // The fingerprint is of the definition as the server sent it.
            let fingerprint = Arc::new(fingerprint_definition(&tool));
            let mended = mend_schemas(&mut tool);
            check_usable(&tool)?;
            Ok((tool, fingerprint, warning.into_iter().chain(mended)))
        });
        let shown = short(&name);
        match checked {
            Ok((mut tool, fingerprint, own_warnings)) => {
                for warning in own_warnings {
                    warnings.push(format!("the tool `{shown}`: {}", short(&warning)));
                }
                for warning in sanitize_texts(&mut tool) {
                    warnings.push(format!("the definition of the tool `{shown}`: {warning}"));
                }
                chosen.push(FingerprintedTool { tool, fingerprint });
            }
            Err(reason) => {
                let reason = short(&reason);
                warnings.push(format!("the tool `{shown}` is left out: {reason}"));
                skipped_names.push(name);
            }
        }
    }
    ServerListing {
        tools: chosen,
        warnings,
        skipped_names,
    }
}

/// The fingerprint of a definition as the server sent it, before anything is removed.
pub(super) fn fingerprint_definition(tool: &Tool) -> DefinitionFingerprint {
    let json = serde_json::to_value(tool).unwrap_or_default();
    let parts = [
        "title",
        "description",
        "inputSchema",
        "outputSchema",
        "annotations",
    ];
    DefinitionFingerprint::new(
        &tool.name,
        parts.map(|part| (part, json.get(part).cloned())),
    )
}

/// Reads the schemas as the official clients do, and returns what the server should write:
///
/// - An input schema without a type is that of an object. The specification requires
///   `type: object`, but arguments are an object in any case, so the meaning is clear.
/// - A keyword with `null` is absent. So are the empty list that PHP writes for an empty object, and
///   a `required` that is no list.
fn mend_schemas(tool: &mut Tool) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, schema) in [
        ("inputSchema", Some(&mut tool.input_schema)),
        ("outputSchema", tool.output_schema.as_mut()),
    ] {
        let Some(schema) = schema else { continue };
        let mut absent = BTreeSet::new();
        remove_invalid_keywords(Arc::make_mut(schema), &mut absent);
        if !absent.is_empty() {
            let absent: Vec<String> = absent.iter().map(|key| format!("`{key}`")).collect();
            warnings.push(format!(
                "its {name} has no valid {}, which is read as absent",
                absent.join(" and no valid ")
            ));
        }
        if name == "inputSchema" && !schema.contains_key("type") {
            Arc::make_mut(schema).shift_insert(0, "type".into(), "object".into());
            warnings.push(
                "its inputSchema has no type and is read as `type: object`; the server should write the type".into(),
            );
        }
    }
    warnings
}

/// Removes the keywords that are read as absent, and notes their names.
fn remove_invalid_keywords(schema: &mut JsonObject, absent: &mut BTreeSet<String>) {
    schema.retain(|key, part| {
        let is_absent = is_absent(key, part);
        if is_absent {
            absent.insert(key.to_owned());
        }
        !is_absent
    });
    for (key, part) in schema {
        match part {
            Value::Object(parts) if SCHEMA_MAPS.contains(&key.as_str()) => parts
                .values_mut()
                .filter_map(Value::as_object_mut)
                .for_each(|part| remove_invalid_keywords(part, absent)),
            Value::Object(part) if !holds_data(key) => remove_invalid_keywords(part, absent),
            Value::Array(parts) if !holds_data(key) => parts
                .iter_mut()
                .filter_map(Value::as_object_mut)
                .for_each(|part| remove_invalid_keywords(part, absent)),
            _ => {}
        }
    }
}

fn is_absent(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => !holds_data(key),
        Value::Array(items) => items.is_empty() && SCHEMA_MAPS.contains(&key),
        _ => key == "required",
    }
}

/// Whether the value of a keyword is data and not a schema.
fn holds_data(key: &str) -> bool {
    matches!(key, "default" | "const" | "enum" | "example" | "examples") || key.starts_with("x-")
}

/// Checks that the tool can be called and that its input schema can be compiled. The tool works without
/// its output schema.
fn check_usable(tool: &Tool) -> Result<(), String> {
    let meta = tool.meta.as_ref();
    if meta.is_some_and(|meta| meta.0.contains_key(TASK_ONLY_KEY)) {
        return Err(
            "it runs only as a task (`taskSupport: required`), which is not supported here".into(),
        );
    }
    if tool.name.trim().is_empty() {
        return Err("it has no name".into());
    }
    let input = Arc::new(Value::Object(JsonObject::clone(&tool.input_schema)));
    Schema::compile_input(input, SchemaOwner::Foreign)
        .map_err(|fault| format!("inputSchema{}: {}", fault.pointer, fault.message))?;
    Ok(())
}

/// Removes invisible characters from the texts that people and models read. Returns what may still
/// hide something.
fn sanitize_texts(tool: &mut Tool) -> Vec<&'static str> {
    let mut schemas = [Some(&mut tool.input_schema), tool.output_schema.as_mut()]
        .map(|schema| schema.map(Arc::make_mut));
    let title = tool
        .annotations
        .as_mut()
        .and_then(|annotations| annotations.title.as_mut());
    let mut words: Vec<&mut String> = tool.title.as_mut().into_iter().chain(title).collect();
    words.extend(tool.description.as_mut().map(Cow::to_mut));
    for schema in schemas.iter_mut().flatten() {
        collect_texts(schema, &mut words);
    }
    sanitize::clean_texts(words)
}

/// Collects the descriptions and titles of a schema, at any depth.
fn collect_texts<'s>(schema: &'s mut JsonObject, words: &mut Vec<&'s mut String>) {
    for (name, part) in schema {
        let parts = match part {
            Value::String(text) => {
                words.extend(matches!(name.as_str(), "description" | "title").then_some(text));
                continue;
            }
            Value::Array(items) => items.as_mut_slice(),
            part => std::slice::from_mut(part),
        };
        parts
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(|part| collect_texts(part, words));
    }
}
