//! `tools/list`: the caller's tools, page by page.
//!
//! The shape of a tool depends on its definition alone. So each tool is rendered once per catalog,
//! for all callers. A cursor names the last tool of a page, so it survives a reload: the next page
//! starts with the first tool after that name.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rmcp::ErrorData;
use rmcp::model::Tool;
use serde_json::Value;

use super::peer::McpPeer;
use crate::call::{Caller, ToolName};
use crate::catalog::{Catalog, Entry};
use crate::formats::toolbox::no_toolset;
use crate::formats::{mcp, toolbox};

/// Most tools on one page. Many clients read one page only, so a usual list has one.
const MAX_PAGE_TOOLS: usize = 1000;
/// Most bytes of the definitions on one page, as JSON. Clients bound the length of a message.
const MAX_PAGE_BYTES: usize = 2 << 20;
/// Start of the text in a cursor of this service.
const CURSOR_PREFIX: &str = "after:";
/// Marks a parameter that clients repeat in a header (2026-07-28, `x-mcp-header`).
const HEADER_MARK: &str = "\"x-mcp-header\":";

/// The tools of the current catalog in MCP's shape.
#[derive(Default)]
pub(super) struct ToolLists {
    latest: ArcSwapOption<RenderedCatalog>,
}

struct RenderedCatalog {
    /// Weak, since an old catalog must be freed after its last call.
    catalog: Weak<Catalog>,
    tools: BTreeMap<ToolName, RenderedTool>,
    has_header_parameters: bool,
}

struct RenderedTool {
    tool: Tool,
    /// The tool without its output schema, if the schema's root is not an object. Versions before
    /// 2026-07-28 do not know such schemas.
    before_2026: Option<Tool>,
    digest: u64,
    /// The length of the definition as JSON.
    bytes: usize,
    has_header_parameters: bool,
}

impl ToolLists {
    fn render_catalog(&self, catalog: &Arc<Catalog>) -> Arc<RenderedCatalog> {
        if let Some(latest) = self
            .latest
            .load_full()
            .filter(|latest| latest.catalog.as_ptr() == Arc::as_ptr(catalog))
        {
            return latest;
        }
        let entries = catalog.entries().filter_map(|entry| {
            Some((entry.definition.name.clone(), RenderedTool::render(entry)?))
        });
        let tools: BTreeMap<ToolName, RenderedTool> = entries.collect();
        let has_header_parameters = tools
            .values()
            .any(|rendered| rendered.has_header_parameters);
        let rendered = Arc::new(RenderedCatalog {
            catalog: Arc::downgrade(catalog),
            tools,
            has_header_parameters,
        });
        self.latest.store(Some(rendered.clone()));
        rendered
    }

    /// One page of a peer's list, and the cursor of the next page.
    ///
    /// # Errors
    /// The cursor is not one of this service.
    pub(super) fn list_page(
        &self,
        catalog: &Arc<Catalog>,
        entries: &[Arc<Entry>],
        cursor: Option<&str>,
        modern: bool,
    ) -> Result<(Vec<Tool>, Option<String>), ErrorData> {
        let after = cursor.map(decode_cursor).transpose()?;
        let rendered = self.render_catalog(catalog);
        let start = after.map_or(0, |after| {
            entries.partition_point(|entry| entry.definition.name.as_str() <= &*after)
        });
        let usable = entries.iter().skip(start).filter_map(|entry| {
            let name = &entry.definition.name;
            Some((name, rendered.tools.get(name)?))
        });
        let mut page: Vec<(&ToolName, &RenderedTool)> = Vec::new();
        let (mut bytes, mut next) = (0, None);
        for (name, shown) in usable {
            bytes += shown.bytes;
            if page.len() == MAX_PAGE_TOOLS || (bytes > MAX_PAGE_BYTES && !page.is_empty()) {
                next = page.last().map(|(last, _)| encode_cursor(last));
                break;
            }
            page.push((name, shown));
        }
        let tool = |shown: &RenderedTool| {
            shown
                .before_2026
                .as_ref()
                .filter(|_| !modern)
                .unwrap_or(&shown.tool)
                .clone()
        };
        Ok((page.iter().map(|(_, shown)| tool(shown)).collect(), next))
    }

    /// All tools that this peer can call, for a client of MCP Toolbox.
    ///
    /// # Errors
    /// The caller has no tool with the tag.
    pub(super) fn list_toolset(
        &self,
        catalog: &Arc<Catalog>,
        peer: &McpPeer,
    ) -> Result<Vec<Tool>, ErrorData> {
        let entries = catalog.selected_tools(&peer.caller, &peer.selection);
        if let Some(tag) = (peer.selection.tag.as_deref()).filter(|_| entries.is_empty()) {
            return Err(ErrorData::invalid_request(no_toolset(tag), None));
        }
        let rendered = self.render_catalog(catalog);
        let tools = entries.iter().filter(|entry| entry.is_available());
        let tools = tools.filter_map(|entry| {
            let shown = rendered.tools.get(&entry.definition.name)?;
            let mut tool = shown.before_2026.as_ref().unwrap_or(&shown.tool).clone();
            let schema = Value::Object((*tool.input_schema).clone());
            if let Value::Object(schema) = toolbox::with_single_types(&schema) {
                tool.input_schema = Arc::new(schema);
            }
            Some(tool)
        });
        Ok(tools.collect())
    }

    /// A digest of a peer's list. It changes when any tool in the list changes.
    pub(super) fn list_digest(&self, catalog: &Arc<Catalog>, entries: &[Arc<Entry>]) -> u64 {
        let rendered = self.render_catalog(catalog);
        let mut all = DefaultHasher::new();
        for entry in entries {
            rendered
                .tools
                .get(&entry.definition.name)
                .map(|tool| tool.digest)
                .hash(&mut all);
        }
        all.finish()
    }

    /// The tool that a name means to this caller, if clients repeat some of its parameters in
    /// headers.
    pub(super) fn tool_with_header_parameters(
        &self,
        catalog: &Arc<Catalog>,
        name: &str,
        caller: &Caller,
    ) -> Option<Tool> {
        let rendered = self.render_catalog(catalog);
        if !rendered.has_header_parameters {
            return None;
        }
        let (entry, _) = catalog.resolve(name, caller).ok()?;
        let found = rendered.tools.get(&entry.definition.name)?;
        found.has_header_parameters.then(|| found.tool.clone())
    }
}

impl RenderedTool {
    /// Renders a tool. `None` if MCP cannot show it, because its input schema is not an object.
    fn render(entry: &Entry) -> Option<Self> {
        let json = Value::Object(mcp::render_tool(&entry.to_listed_tool()));
        let text = json.to_string();
        let mut digest = DefaultHasher::new();
        text.hash(&mut digest);
        let tool: Tool = serde_json::from_value(json).ok()?;
        let output_is_object = tool
            .output_schema
            .as_deref()
            .is_none_or(|schema| schema.get("type") == Some(&Value::from("object")));
        let before_2026 = (!output_is_object).then(|| {
            let mut tool = tool.clone();
            tool.output_schema = None;
            tool
        });
        Some(Self {
            tool,
            before_2026,
            digest: digest.finish(),
            bytes: text.len(),
            has_header_parameters: text.contains(HEADER_MARK),
        })
    }
}

fn encode_cursor(last: &ToolName) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{CURSOR_PREFIX}{last}"))
}

fn decode_cursor(cursor: &str) -> Result<String, ErrorData> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.and_then(|text| text.strip_prefix(CURSOR_PREFIX).map(str::to_owned))
        .ok_or_else(|| {
            ErrorData::invalid_params(
                "invalid cursor: send nextCursor of the previous page unchanged",
                None,
            )
        })
}
