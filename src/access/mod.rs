//! Callers and the tools that they may use.
//!
//! - `callers.rs`: callers and their keys
//! - `webhook_secret.rs`: secrets of receivers of webhooks; `public_url.rs`: the base of links
//! - `tool_pattern.rs`: patterns that select tools; `deny_list.rs`: the tools that a request denies
//! - `toolset.rs`: named parts of the tools

pub mod callers;
pub(crate) mod deny_list;
pub mod public_url;
pub(crate) mod tool_pattern;
pub mod toolset;
pub(crate) mod webhook_secret;

pub use webhook_secret::WebhookSecret;
