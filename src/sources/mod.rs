//! What provides tools: MCP servers, Python modules, OpenAPI documents, and the embedding program.
//!
//! - `source.rs`: the trait of a source, and what it lists
//! - `settings.rs`: what a source is started with. It is the only file that knows all kinds of sources
//! - `tool_filter.rs`: which tools of a source are mounted
//! - `mcp/`, `python/`, `typescript/`, `openapi/`: the kinds
//! - `workers/`: modules of every language, in worker processes
//! - `kept.rs`: one worker or connection that is replaced whenever it ends; how often something ended
//!   lately, and how long to wait before the next start
//! - `live/`: the tools while the service runs; `live/lifecycle/`: the state of each source

mod kept;
pub mod live;
pub mod mcp;
pub mod openapi;
mod python;
mod settings;
mod source;
mod tool_filter;
mod typescript;
pub mod workers;

pub use settings::{ProgramSource, SourceKind, SourceSettings};
pub use source::{
    DefinitionFingerprint, DiscoveredTool, Operations, Source, SourceFault, SourceListing,
    SourceStatus, StatusFn, ToolDefinitionSnapshot,
};
pub(crate) use tool_filter::ToolFilter;
