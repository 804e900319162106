//! The YAML file that declares tools, callers and settings.
//!
//! `node.rs` reads YAML with places, `references.rs` brings in secrets (`reference_places.rs`: where their text would be read as a template), `decode.rs` holds what is written against the
//! types in `sections.rs`, `tool.rs` makes tools of entries, `modules.rs` and `servers.rs` sources of tools (`brought.rs`: what both say of these; `lock.rs`: what was approved of servers; `clashes.rs`: names that they could both have; `itself.rs`: a server that is the service), `callers.rs` who may call, `tool_lists.rs` lists of tools that name none, `variables.rs` and `context.rs` what tools and sources declare that they are given. As many faults as possible are found in one go, each
//! with its place and what would be right. `lint/` looks at what can be used for what is hardly meant so.

mod brought;
mod callers;
mod check;
mod clashes;
mod context;
mod decode;
mod defaults;
mod finding;
mod itself;
mod lint;
mod load;
mod lock;
mod modules;
mod node;
mod parameters;
mod reference_places;
mod references;
pub(crate) mod registered;
mod rule;
mod schema;
mod sections;
mod servers;
mod source;
#[cfg(test)]
mod testing;
mod tool;
mod tool_lists;
mod variables;

use std::net::SocketAddr;

pub use check::{Checked, DeclaredVariable, check};
pub use finding::{Finding, Place, Severity};
pub(crate) use itself::mounted;
pub use load::load;
pub(crate) use load::{Host, load_for};
pub use references::{Process, Source};
pub(crate) use references::{matching, read_file};
pub use registered::{Defaults, read_registered};
pub use rule::Rule;
pub use schema::schema;
pub use source::{DeclaredSource, SourceRules, ToolRules};
pub(crate) use tool_lists::{Knowledge, ListEntry};

use crate::call::{CallSettings, Capture, DigestKey};
use crate::callers::CallerSettings;
use crate::http::ServerSettings;
use crate::ledger;
use crate::pins::Pins;
use crate::tools::Tool;

/// What a manifest comes to.
pub struct Manifest {
    /// `server:`
    pub server: ServerSettings,
    /// `server.listen:`, as it was written or by default.
    pub listen: String,
    /// `ledger:`
    pub ledger: ledger::Settings,
    /// `ledger.capture:`, for the calls of tools that do not say.
    pub capture: Capture,
    /// `ledger.digest_key:`
    pub digest_key: Option<DigestKey>,
    /// `cache.max_bytes:`
    pub cache_bytes: u64,
    /// `calls:`
    pub calls: CallSettings,
    /// `defaults:`
    pub defaults: Defaults,
    /// `callers:`
    pub callers: Vec<CallerSettings>,
    /// The entries of all lists of tools, to be looked at again when all tools are known.
    pub(crate) lists: Vec<ListEntry>,
    /// `tools:`, includes too.
    pub tools: Vec<Tool>,
    /// `python_modules:` and `mcp_servers:`, includes too.
    pub sources: Vec<DeclaredSource>,
    /// What was approved of `mcp_servers:`, in the file beside the manifest; `None`: there is no such file.
    pub pins: Option<Pins>,
    /// Names of the embedding program's tools that an entry has taken over.
    pub taken: Vec<String>,
    /// Every value that came in by reference.
    pub secrets: Vec<String>,
    /// What is odd but works.
    pub warnings: Vec<Finding>,
}

/// Where the service listens when nobody says otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7411";
/// The ledger when nobody says otherwise: a file in the working folder.
pub const DEFAULT_LEDGER: &str = "sqlite://toolcrib.db";
/// Results kept in memory when nobody says otherwise.
pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;

/// Whether an address is reachable from this machine only.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
