//! `toolcrib import`: prints a manifest made from another format, or adds recorded calls to a ledger.
//!
//! - `openapi.rs`: the operations of an OpenAPI document.
//! - `mcp.rs`: the servers of another MCP client. `client_settings.rs` finds them in its file, and
//!   `client_text.rs` converts the variables in their texts.
//! - `yaml.rs` writes YAML.
//! - `invocations.rs`: calls that `toolcrib export` has written.

mod client_settings;
mod client_text;
mod invocations;
mod mcp;
mod openapi;
mod yaml;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use super::Failure;
use super::failure::describe_io_error;
use super::output::print_line;
use crate::environment::Environment;

#[derive(Subcommand)]
pub(super) enum ImportCommand {
    /// Print the operations of an OpenAPI document as tools of kind http.
    Openapi(openapi::OpenapiArgs),
    /// Print the servers of another MCP client as `mcp_servers`.
    Mcp {
        /// The client's settings as JSON, TOML or YAML; `-` reads standard input.
        file: PathBuf,
    },
    /// Add the calls that `toolcrib export` has written to a ledger. Known calls are skipped.
    Invocations(invocations::InvocationsArgs),
}

pub(super) async fn run(command: ImportCommand, environment: &Environment) -> Result<(), Failure> {
    match command {
        ImportCommand::Openapi(args) => openapi::print_openapi_tools(args),
        ImportCommand::Mcp { file } => mcp::print_servers(&file),
        ImportCommand::Invocations(args) => invocations::import_calls(args, environment).await,
    }
}

fn read_input(file: &Path) -> Result<String, Failure> {
    let read = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    read.map_err(|error| {
        Failure::Usage(format!("{}: {}", file.display(), describe_io_error(&error)))
    })
}

fn print_yaml(value: &Value) -> Result<(), Failure> {
    print_line(&yaml::to_yaml(value).map_err(Failure::Failed)?);
    Ok(())
}
