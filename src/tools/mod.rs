//! Runs tools. Each kind of tool is a [`Runner`] in a file or folder of its own; [`kinds`] is the
//! only module that knows all of them.

pub mod agent;
pub(crate) mod agent_directory;
#[doc(hidden)]
pub mod attribute;
mod blocking;
mod build_context;
mod build_error;
pub mod builtin;
pub mod command;
mod config_fault;
mod denied_files;
mod examples;
pub(crate) mod features;
mod folder;
pub mod http;
pub mod kinds;
pub(crate) mod literal;
mod malformed_definition;
pub mod mcp;
mod media;
pub mod native;
pub mod openapi;
mod placeholder;
mod process;
mod process_env;
pub mod python;
mod restart_history;
mod runner;
mod source;
mod sources;
pub mod sql;
pub mod template;
mod tool;
mod unavailable;

pub use agent::builder::Agent;
pub use build_context::{BuildContext, BuildResult, ParameterUse};
pub use build_error::BuildError;
pub use config_fault::{ConfigFault, FaultRule};
pub use http::{HttpClients, OwnPorts, TokenSources};
pub use placeholder::{Placeholder, ValueFault, Values};
pub use process_env::{ProcessEnv, ShutdownGuard};
pub use runner::Runner;
pub use source::{
    DefinitionFingerprint, DiscoveredTool, Operations, Source, SourceFault, SourceListing,
    SourceStatus, StatusFn, ToolDefinitionSnapshot,
};
pub use sources::{SourceKind, SourceSettings};
pub use sql::Databases;
pub(crate) use tool::DeclaredSettings;
pub use tool::Tool;
pub use unavailable::{UnavailableReason, UnavailableTool};
