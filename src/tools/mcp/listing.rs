//! Asks a server for its tools, and makes offers of those that can be used.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, CustomResult, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::service::Peer;
use serde_json::Value;

use super::config::{ServerSettings, ToolFilter};
use super::fault::{self, ListToolsError};
use super::message::AS_TASK;
use super::partial_list;
use super::runner::{CallPath, ToolRunner};
use crate::call::{JsonObject, Redact, Torn};
use crate::sanitize;
use crate::schema::Schema;
use crate::secrets::Redactor;
use crate::tools::process::Sweeps;
use crate::tools::{DefinitionFingerprint, DiscoveredTool, Runner, ToolDefinitionSnapshot};

/// Most tools of a server.
const MOST_TOOLS: usize = 1000;
/// Most pages of a list of tools.
const MOST_PAGES: usize = 100;
/// Most bytes that are kept of a server's tools: definitions as JSON, faults of others, cursors.
const LONGEST: usize = 16 << 20;
/// Most characters of a server's text in one warning.
const SHOWN: usize = 200;

/// The tools of a server: those that are wanted and usable, and warnings about the others.
#[derive(Clone, PartialEq)]
pub(super) struct Listing {
    pub tools: Vec<Defined>,
    pub warnings: Vec<String>,
    /// Names of the tools that are wanted and cannot be used.
    pub left_out: Vec<String>,
}

/// A tool, with the fingerprint of its definition as the server sent it.
#[derive(Clone)]
pub(super) struct Defined {
    pub tool: Tool,
    pub prints: Arc<DefinitionFingerprint>,
}

impl PartialEq for Defined {
    fn eq(&self, other: &Self) -> bool {
        // For a model, the same members in another order are another definition.
        let text = |tool: &Tool| serde_json::to_string(tool).unwrap_or_default();
        self.prints == other.prints && text(&self.tool) == text(&other.tool)
    }
}

/// One page of the list. A tool that cannot be read is its name and the reason.
struct Page {
    tools: Vec<Result<Tool, (String, String)>>,
    next: Option<String>,
}

/// Asks for all pages of the list.
///
/// # Errors
/// [`Unlisted`].
pub(super) async fn ask(
    peer: &Peer<RoleClient>,
    settings: &ServerSettings,
    redactor: &Redactor,
) -> Result<Listing, ListToolsError> {
    let (mut tools, mut cursor, mut seen, mut size) = (Vec::new(), None, HashSet::new(), 0);
    for _ in 0..MOST_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let page = page(peer.send_request(request).await.map_err(|error| fault::of_listing(error, redactor))?)?;
        for tool in page.tools {
            size += match &tool {
                Ok(tool) => serde_json::to_vec(tool).map_or(0, |json| json.len()),
                Err((name, why)) => name.len() + why.len(),
            };
            tools.push(tool);
        }
        size += page.next.as_ref().map_or(0, String::len);
        if tools.len() > MOST_TOOLS {
            return Err(format!("it lists more than {MOST_TOOLS} tools").into());
        }
        if size > LONGEST {
            let most = bytesize::ByteSize(LONGEST as u64);
            return Err(format!("its tools take more than {most} to define").into());
        }
        let Some(next) = page.next else { return Ok(choose(tools, settings, redactor)) };
        if !seen.insert(next.clone()) {
            let why = "its list of tools has no end: a page says that it comes after itself";
            return Err(why.to_owned().into());
        }
        cursor = Some(next);
    }
    Err(format!("its list of tools has more than {MOST_PAGES} pages").into())
}

/// Reads one page. If the page cannot be read as a whole, it is read tool by tool: one broken tool must not hide the
/// others.
fn page(answer: ServerResult) -> Result<Page, String> {
    match answer {
        ServerResult::ListToolsResult(list) => Ok(Page {
            tools: list.tools.into_iter().map(Ok).collect(),
            next: list.next_cursor.filter(|c| !c.is_empty()),
        }),
        ServerResult::CustomResult(CustomResult(Value::Object(mut fields))) => {
            let Some(Value::Array(tools)) = fields.remove("tools") else {
                return Err("its list of tools is none: `tools` is no array".into());
            };
            let next = match fields.remove("nextCursor") {
                Some(Value::String(next)) if !next.is_empty() => Some(next),
                _ => None,
            };
            let tools = tools.into_iter().map(|tool| {
                let name = tool.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
                match partial_list::fault_of(&tool) {
                    Some(why) => Err((name, why.to_owned())),
                    None => serde_json::from_value(tool).map_err(|error| (name, error.to_string())),
                }
            });
            Ok(Page { tools: tools.collect(), next })
        }
        _ => Err("what it answered is no list of tools".into()),
    }
}

/// Selects the tools that are wanted and usable. Each name is taken once.
fn choose(tools: Vec<Result<Tool, (String, String)>>, settings: &ServerSettings, redactor: &Redactor) -> Listing {
    let short = |text: &str| -> String { redactor.excerpt(text, Torn::NOWHERE).chars().take(SHOWN).collect() };
    let filter = ToolFilter::of(settings);
    let (mut chosen, mut left_out, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let all = || tools.iter().map(|tool| tool.as_ref().map_or_else(|(name, _)| name.as_str(), |tool| &*tool.name));
    let idle = filter.idle(&all().collect::<Vec<_>>());
    let idle =
        idle.into_iter().map(|(key, text)| format!("`{key}`: `{}` is the name of none of its tools", short(text)));
    let mut warnings: Vec<String> = idle.collect();
    for tool in tools {
        let (name, checked) = match tool {
            Ok(tool) => (tool.name.to_string(), Ok(tool)),
            Err((name, why)) => (name, Err(why)),
        };
        if !filter.takes(&name) {
            continue;
        }
        let checked = checked
            .and_then(|tool| if names.insert(name.clone()) { usable(tool) } else { Err("it is there twice".into()) });
        match checked {
            Ok(mut tool) => {
                let prints = Arc::new(prints(&tool));
                let odd = clean(&mut tool);
                warnings.extend(
                    odd.into_iter().map(|odd| format!("what the tool `{}` says of itself: {odd}", short(&name))),
                );
                chosen.push(Defined { tool, prints });
            }
            Err(why) => {
                warnings.push(format!("the tool `{}` is left out: {}", short(&name), short(&why)));
                left_out.push(name);
            }
        }
    }
    Listing { tools: chosen, warnings, left_out }
}

/// The fingerprint of a definition as the server sent it, before anything is removed.
pub(super) fn prints(tool: &Tool) -> DefinitionFingerprint {
    let json = |value: serde_json::Result<Value>| value.ok().filter(|value| !value.is_null());
    let parts = [
        ("title", json(serde_json::to_value(&tool.title))),
        ("description", json(serde_json::to_value(&tool.description))),
        ("inputSchema", json(serde_json::to_value(&*tool.input_schema))),
        ("outputSchema", json(serde_json::to_value(tool.output_schema.as_deref()))),
        ("annotations", json(serde_json::to_value(&tool.annotations))),
    ];
    DefinitionFingerprint::of(&tool.name, parts)
}

/// Checks that the tool can be called and that its schemas can be compiled.
fn usable(tool: Tool) -> Result<Tool, String> {
    if tool.meta.as_ref().is_some_and(|meta| meta.0.contains_key(AS_TASK)) {
        return Err("it runs only as a task (`taskSupport: required`), which is not supported here".into());
    }
    if tool.name.trim().is_empty() {
        return Err("it has no name".into());
    }
    let schema = |schema: &Arc<JsonObject>| Arc::new(Value::Object(JsonObject::clone(schema)));
    let fault = |which: &str, fault: crate::schema::SchemaFault| format!("{which}{}: {}", fault.pointer, fault.message);
    Schema::compile_input(schema(&tool.input_schema)).map_err(|error| fault("inputSchema", error))?;
    if let Some(output) = &tool.output_schema {
        // Accept an output schema that is only too large. The manifest side drops it later, and the tool works without
        // it.
        let checked = Schema::compile(schema(output)).map(drop);
        checked.or_else(|error| if error.is_too_large { Ok(()) } else { Err(fault("outputSchema", error)) })?;
    }
    Ok(tool)
}

/// Removes invisible characters from the texts that people and models read. Returns what may still hide something.
fn clean(tool: &mut Tool) -> Vec<&'static str> {
    let mut schemas =
        [Some(&mut tool.input_schema), tool.output_schema.as_mut()].map(|schema| schema.map(Arc::make_mut));
    let title = tool.annotations.as_mut().and_then(|annotations| annotations.title.as_mut());
    let mut words: Vec<&mut String> = tool.title.as_mut().into_iter().chain(title).collect();
    words.extend(tool.description.as_mut().map(Cow::to_mut));
    for schema in schemas.iter_mut().flatten() {
        collect_words(schema, &mut words);
    }
    sanitize::texts(words)
}

/// Collects the descriptions and titles of a schema, at any depth.
fn collect_words<'s>(schema: &'s mut JsonObject, words: &mut Vec<&'s mut String>) {
    for (name, part) in schema {
        let parts = match part {
            Value::String(text) => {
                words.extend(matches!(name.as_str(), "description" | "title").then_some(text));
                continue;
            }
            Value::Array(items) => items.as_mut_slice(),
            part => std::slice::from_mut(part),
        };
        parts.iter_mut().filter_map(Value::as_object_mut).for_each(|part| collect_words(part, words));
    }
}

/// Leaves out tools whose names contain a secret. A name appears in lists, metrics and records, and a redacted name
/// would be another name.
pub(super) fn without_secret_names(
    tools: Vec<Defined>,
    redactor: &Redactor,
    warnings: &mut Vec<String>,
    left_out: &mut Vec<String>,
) -> Vec<Defined> {
    let is_plain = |one: &Defined| matches!(redactor.text(&one.tool.name), Cow::Borrowed(_));
    let (plain, secret): (Vec<Defined>, Vec<Defined>) = tools.into_iter().partition(is_plain);
    for one in secret {
        let why = "a tool is left out: its name holds a secret; its server would have to name it otherwise, and `exclude` \
                   spares this warning";
        warnings.push(why.into());
        left_out.push(one.tool.name.into_owned());
    }
    plain
}

/// Makes an offer of a tool, for the manifest's rules.
pub(super) fn offer(
    Defined { tool, prints }: &Defined,
    way: &CallPath,
    sweeps: &Arc<Sweeps>,
    redactor: &Redactor,
) -> DiscoveredTool {
    let runner =
        |prints| -> Arc<dyn Runner> { Arc::new(ToolRunner::new(&tool.name, prints, way.clone(), sweeps.clone())) };
    let annotations = tool.annotations.as_ref().and_then(|annotations| serde_json::to_value(annotations).ok());
    let mut annotations = match annotations {
        Some(Value::Object(annotations)) => annotations,
        _ => JsonObject::new(),
    };
    if let Some(title) = &tool.title {
        annotations.entry("title").or_insert_with(|| title.clone().into());
    }
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    let mut offer = DiscoveredTool {
        name: tool.name.to_string(),
        description: description.to_owned(),
        input_schema: Value::Object(JsonObject::clone(&tool.input_schema)),
        output_schema: tool.output_schema.as_ref().map(|schema| Value::Object(JsonObject::clone(schema))),
        annotations,
        result_as_answer: false,
        max_calls: None,
        env: Vec::new(),
        runner: runner(None),
        said: Some(ToolDefinitionSnapshot { prints: prints.clone(), runner: runner(Some(prints.clone())) }),
    };
    offer.clean(redactor);
    offer
}
