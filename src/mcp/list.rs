//! `tools/list`: the caller's tools, page by page.
//!
//! The shape of a tool depends on its definition alone. So each tool is rendered once per catalog, for all callers. A
//! cursor names the last tool of a page, so it survives a reload: the next page starts with the first tool after that
//! name.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rmcp::ErrorData;
use rmcp::model::Tool;
use serde_json::Value;

use crate::call::{Caller, ToolName};
use crate::catalog::{Catalog, Entry};
use crate::formats::mcp;

/// Tools on one page.
const PAGE: usize = 100;
/// Start of the text in a cursor of this service.
const AFTER: &str = "after:";
/// Marks a parameter that clients repeat in a header (2026-07-28, `x-mcp-header`).
const IN_HEADER: &str = "\"x-mcp-header\":";

/// The tools of the current catalog in MCP's shape.
#[derive(Default)]
pub(super) struct Lists {
    latest: ArcSwapOption<Rendered>,
}

struct Rendered {
    /// Weak, since an old catalog must be freed after its last call.
    of: Weak<Catalog>,
    tools: BTreeMap<ToolName, Shown>,
    any_in_header: bool,
}

struct Shown {
    tool: Tool,
    /// The tool without its output schema, if the schema's root is not an object. Versions before 2026-07-28 do not
    /// know such schemas.
    before_2026: Option<Tool>,
    digest: u64,
    in_header: bool,
}

impl Lists {
    fn of(&self, catalog: &Arc<Catalog>) -> Arc<Rendered> {
        if let Some(latest) = self.latest.load_full().filter(|latest| latest.of.as_ptr() == Arc::as_ptr(catalog)) {
            return latest;
        }
        let shown = catalog.entries().filter_map(|entry| Some((entry.definition.name.clone(), Shown::of(entry)?)));
        let tools: BTreeMap<ToolName, Shown> = shown.collect();
        let any_in_header = tools.values().any(|shown| shown.in_header);
        let rendered = Arc::new(Rendered { of: Arc::downgrade(catalog), tools, any_in_header });
        self.latest.store(Some(rendered.clone()));
        rendered
    }

    /// One page of the tools that this caller can call, and the cursor of the next page.
    ///
    /// # Errors
    /// The cursor is not one of this service.
    pub(super) fn page(
        &self,
        catalog: &Arc<Catalog>,
        caller: &Caller,
        cursor: Option<&str>,
        modern: bool,
    ) -> Result<(Vec<Tool>, Option<String>), ErrorData> {
        let after = cursor.map(read).transpose()?;
        let rendered = self.of(catalog);
        let entries = catalog.list(caller);
        let begin = after.map_or(0, |after| entries.partition_point(|entry| entry.definition.name.as_str() <= &*after));
        let mut usable = entries.iter().skip(begin).filter(|entry| entry.is_available()).filter_map(|entry| {
            let name = &entry.definition.name;
            Some((name, rendered.tools.get(name)?))
        });
        let page: Vec<_> = usable.by_ref().take(PAGE).collect();
        let next = usable.next().and_then(|_| page.last()).map(|(last, _)| write(last));
        let tool = |shown: &Shown| shown.before_2026.as_ref().filter(|_| !modern).unwrap_or(&shown.tool).clone();
        Ok((page.iter().map(|(_, shown)| tool(shown)).collect(), next))
    }

    /// A digest of this caller's whole list. It changes when any tool in the list changes.
    pub(super) fn digest(&self, catalog: &Arc<Catalog>, caller: &Caller) -> u64 {
        let rendered = self.of(catalog);
        let mut all = DefaultHasher::new();
        for entry in catalog.list(caller).iter().filter(|entry| entry.is_available()) {
            rendered.tools.get(&entry.definition.name).map(|shown| shown.digest).hash(&mut all);
        }
        all.finish()
    }

    /// The tool that a name means to this caller, if clients repeat some of its parameters in headers.
    pub(super) fn in_header(&self, catalog: &Arc<Catalog>, name: &str, caller: &Caller) -> Option<Tool> {
        let rendered = self.of(catalog);
        if !rendered.any_in_header {
            return None;
        }
        let (entry, _) = catalog.resolve(name, caller).ok()?;
        let shown = rendered.tools.get(&entry.definition.name)?;
        shown.in_header.then(|| shown.tool.clone())
    }
}

impl Shown {
    /// Renders a tool. `None` if MCP cannot show it, because its input schema is not an object.
    fn of(entry: &Entry) -> Option<Self> {
        let written = Value::Object(mcp::written(&entry.offer()));
        let text = written.to_string();
        let mut digest = DefaultHasher::new();
        text.hash(&mut digest);
        let tool: Tool = serde_json::from_value(written).ok()?;
        let output_is_object =
            tool.output_schema.as_deref().is_none_or(|schema| schema.get("type") == Some(&Value::from("object")));
        let before_2026 = (!output_is_object).then(|| {
            let mut tool = tool.clone();
            tool.output_schema = None;
            tool
        });
        Some(Self { tool, before_2026, digest: digest.finish(), in_header: text.contains(IN_HEADER) })
    }
}

fn write(last: &ToolName) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{AFTER}{last}"))
}

fn read(cursor: &str) -> Result<String, ErrorData> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.and_then(|text| text.strip_prefix(AFTER).map(str::to_owned)).ok_or_else(|| {
        ErrorData::invalid_params("this cursor is none of ours: send nextCursor of the page before as it came", None)
    })
}
