//! Runs tools. Each kind of tool is a [`Runner`] in a file or folder of its own; [`table`] is the
//! only module that knows all of them.

pub mod agent;
pub(crate) mod agent_directory;
#[doc(hidden)]
pub mod attribute;
mod build_context;
mod build_error;
pub mod builtin;
pub mod command;
mod config_fault;
mod denied_files;
mod folder;
pub mod http;
pub(crate) mod literal;
pub(crate) mod malformed_definition;
mod media;
pub mod native;
mod placeholder;
pub(crate) mod process;
pub(crate) mod process_env;
mod runner;
pub mod sandbox;
pub mod sql;
pub mod table;
pub mod template;
mod tool;
mod unavailable;

pub use agent::builder::Agent;
pub use build_context::{BuildContext, BuildResult};
pub use build_error::BuildError;
pub use config_fault::{ConfigFault, FaultRule};
pub use http::{HttpClients, OwnPorts, TokenSources};
pub use placeholder::{Placeholder, ValueFault, Values};
pub use process_env::ProcessEnv;
pub use runner::{Runner, RunnerTraits, ToolOutcome};
pub use sandbox::{SandboxSetting, Sandboxes};
pub use sql::Databases;
pub use table::{
    MANIFEST_KINDS, build_runner, manifest_keys, manifest_schema, parse_manifest_kind,
    tool_with_defaults,
};
pub(crate) use tool::DeclaredSettings;
pub use tool::Tool;
pub use unavailable::{UnavailableReason, UnavailableTool};
