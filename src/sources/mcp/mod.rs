//! The `mcp` kind: tools of MCP servers. This service is the client.
//!
//! - `connector`: makes a connection: the transport, the handshake by the SDK, the list of tools
//! - `child`, `pipes`: a server's process and its standard input and output
//! - `remote`, `events`: a server's URL, its event streams, its own notifications
//! - `per_caller`: what requests to a URL carry for the caller of a call
//! - `transport_adapter`, `early_initialize`: stands between the SDK and the transport
//! - `connection`: carries calls side by side, and follows the changes of servers without sessions
//! - `direct`: calls of a server with a URL and without sessions, which bypass the SDK
//! - `persistent_connection`: the one connection of a persistent server, replaced when it breaks,
//!   with the check of pinned tools
//! - `runner`: a tool's runner; with `on_demand`, each call has a connection of its own
//! - `server`: the source of these tools
//! - `listing`: the list of tools; `partial_list`: a list of which a part cannot be read; `verified_listing`: what pinned tools are compared with
//! - `config`: the settings of a server
//! - `message`, `result`, `fault`: messages, results of calls, failures

mod child;
mod config;
mod connection;
mod connector;
mod direct;
mod early_initialize;
mod events;
mod fault;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod json_rpc;
mod listing;
mod message;
mod partial_list;
mod per_caller;
mod persistent_connection;
mod pipes;
mod remote;
mod result;
mod runner;
mod server;
mod transport_adapter;
mod verified_listing;

pub use self::config::{Mode, Protocol, ServerSettings, Transport};
pub use self::per_caller::PerCaller;
pub use self::server::Server;

#[cfg(test)]
mod tests;
