//! The content of a manifest's files, for all that looks at entries after they are read.

use std::path::PathBuf;

use super::node::{Key, Node};
use super::pins::Pins;
use crate::call::ToolName;
use crate::kinds::Tool;

/// The section of sources that can be pinned.
pub(super) const MCP_SERVERS: &str = "mcp_servers";
/// The section of OpenAPI documents.
pub(super) const OPENAPI: &str = "openapi";

/// The sections that declare tools, each in the manifest or in an included file.
pub(super) const TOOL_SECTIONS: [&str; 5] = [
    "tools",
    "python_modules",
    "typescript_modules",
    MCP_SERVERS,
    OPENAPI,
];

/// The content of the files, as far as it could be read.
#[derive(Default)]
pub(super) struct ParsedManifest {
    pub(super) root: Option<Node>,
    pub(super) tools: Vec<ParsedTool>,
    /// Entries of the sections that declare sources.
    pub(super) sources: Vec<ParsedSource>,
    /// The approved definitions of servers' tools.
    pub(super) pins: Option<Pins>,
}

/// One entry of a section that declares sources of tools.
pub(super) struct ParsedSource {
    /// The key of its section.
    pub(super) section: &'static str,
    pub(super) name: String,
    pub(super) entry: Node,
    /// The folder at which relative paths start.
    pub(super) base: PathBuf,
}

/// One entry of `tools:`, at the top or in a source, and the tool made from it.
pub(super) struct ParsedTool {
    /// The name and its position.
    pub(super) key: Key,
    /// The path from the root.
    pub(super) path: String,
    pub(super) entry: Node,
    pub(super) tool: Option<Tool>,
    /// The folder at which relative paths start.
    pub(super) base: PathBuf,
}

impl ParsedTool {
    /// The name of the tool, and its aliases.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let aliases = self.tool.iter().flat_map(|tool| &tool.definition.aliases);
        std::iter::once(self.key.text.as_str()).chain(aliases.map(ToolName::as_str))
    }
}
