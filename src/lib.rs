//! Toolcrib executes the tool calls of software agents.
//!
//! The crate is the service. A program adds its own tools and ships its own binary:
//!
//! ```no_run
//! # async fn example() -> Result<(), toolcrib::Error> {
//! use toolcrib::{App, Effect, Tool};
//!
//! let app = App::builder()
//!     .tool(
//!         Tool::new("shout", "Writes a text in capitals.")
//!             .param("text", "string", "The text")
//!             .effect(Effect::Read)
//!             .call(|arguments, _context| async move {
//!                 let text = arguments["text"].as_str().unwrap_or_default();
//!                 Ok(text.to_uppercase())
//!             }),
//!     )
//!     .build()
//!     .await?;
//! app.serve().await
//! # }
//! ```
//!
//! Where things are: [`call`] has the nouns; [`stack`] the way of every call, layer by layer; [`middleware`] the
//! layers; [`tools`] what runs a tool; [`ledger`] the durable record; [`metrics`] and [`log`] what is seen from outside;
//! [`manifest`] the YAML file; [`http`] the routes; [`cli`] the program. [`app`] puts them together; [`init`] is for
//! containers, [`environment`], [`confine`] and [`file_handles`] for a program's `main`.

pub mod app;
mod blocking;
pub mod call;
pub mod callers;
pub mod catalog;
pub mod changes;
pub mod cli;
pub mod confine;
mod denials;
pub mod dialect;
pub mod environment;
pub mod expression;
pub mod file_handles;
pub mod formats;
pub mod http;
pub mod init;
mod json_rpc;
pub mod ledger;
pub mod live;
pub mod log;
pub mod manifest;
pub mod mcp;
pub mod metrics;
pub mod middleware;
pub mod names;
pub mod pins;
pub mod printable;
pub mod providers;
pub mod registry;
pub mod running;
pub mod runs;
pub mod schema;
mod seats;
pub mod secrets;
pub mod similar;
pub mod stack;
mod start;
mod stored;
mod subcalls;
mod tool_pattern;
pub mod tools;

pub use app::{App, AppBuilder, Error};
pub use call::{Capture, Effect, Idempotency, Limit, LimitScope, Per, ToolContext, ToolError, ToolResult};
pub use registry::{MOST_REGISTERED, Registry};
pub use tools::Tool;
