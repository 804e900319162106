//! The MCP server: the same tools for MCP clients, over any transport.
//!
//! `Handler` is rmcp's `ServerHandler` over the registry. It knows no HTTP. A transport that knows
//! the caller passes it in an `McpPeer`. A peer without one (standard input and output) is the
//! operator. A call passes through its tool's stack like any other call, so limits, cache, ledger
//! and policies are the same as in REST. This folder only translates requests and answers.

mod approval;
mod approval_rounds;
mod call;
mod content;
mod failure;
mod handler;
mod list;
mod meta;
mod peer;
mod progress;
mod questions;
mod request_state;
pub mod stdio;
mod subscribers;

pub use call::{PrepareError, PreparedCall, prepare_call};
pub use content::Reply;
pub use failure::JsonRpcFailure;
pub use handler::{Handler, INITIALIZE_PARAMS, VERSIONS};
pub(crate) use meta::trace_from_meta;
pub use peer::McpPeer;
pub use subscribers::ListSnapshot;
