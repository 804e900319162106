//! The MCP face: the same tools for every MCP client, over whatever transport.
//!
//! `Handler` is rmcp's `ServerHandler` over the registry. It knows no HTTP: a transport that knows who asks says so in a `Guest`; a
//! peer without one (standard input and output) is the operator. A call goes through its tool's stack like any other, so
//! limits, cache, ledger and policies are those of REST; here is only what MCP says it in.

mod call;
mod content;
mod failure;
mod guest;
mod handler;
mod list;
mod meta;
mod progress;
pub mod stdio;
mod subscribers;

pub use call::{Asked, NoCall, prepare};
pub use content::Reply;
pub use failure::Refused;
pub use guest::Guest;
pub use handler::{Handler, INITIALIZE, VERSIONS};
