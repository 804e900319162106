//! The `mcp` kind: tools of MCP servers, as a client of them.
//!
//! `connector` makes a connection: it starts a process (`child`, spoken to over `pipes`) or asks a URL (`remote`, `events`, `unasked`), has
//! the SDK shake hands, and asks for the tools (`listing`). `connection` carries calls, side by side; `tap` stands between the SDK and what
//! it sends over. `keeper` has one for all calls of a persistent server, and another when it breaks; with `on_demand` each
//! call has its own (`runner`); `server` is the source that they make. `said` holds pinned tools against what is listed. `result` and `fault` say what an answer, or none, comes to.

mod child;
mod client;
mod config;
mod connection;
mod connector;
mod events;
mod fault;
mod keeper;
mod listing;
mod message;
mod partial_list;
mod pipes;
mod remote;
mod result;
mod runner;
mod said;
mod server;
mod subscription;
mod tap;
mod unasked;

pub(crate) use self::config::ToolFilter;
pub use self::config::{Mode, Reach, ServerSettings};
pub use self::server::Server;

#[cfg(test)]
mod tests;
