//! Tools that come with the service. A service has only those that its manifest names; the demo has all that need no
//! settings.

mod add_image;
mod calculator;
mod current_time;
mod delegate;
mod http_get;
mod read_cache;
mod read_file;
mod read_result;
mod web;

use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::agent::coworkers::DelegationTool;
use super::kinds::decode_settings;
use super::{ConfigFault, HttpClients, OwnPorts, Tool};
use crate::call::JsonObject;

/// The names of all built-in tools, sorted.
pub const NAMES: [&str; 9] = [
    "add_image",
    "ask_question",
    "calculator",
    "current_time",
    "delegate_work",
    "http_get",
    "read_cache",
    "read_file",
    "read_result",
];

/// Builds the built-in `which`, registered as `name`, with its settings (`with:`). `None` if there is no such
/// built-in.
pub fn build(
    which: &str,
    name: &str,
    with: &JsonObject,
    base: &Path,
    clients: &HttpClients,
) -> Option<Result<Tool, ConfigFault>> {
    match which {
        "add_image" => Some(decode_with(with).and_then(|config| add_image::tool(name, config, base, clients))),
        "ask_question" => {
            Some(decode_with(with).and_then(|config| delegate::tool(DelegationTool::AskQuestion, name, config)))
        }
        "calculator" => Some(decode_with(with).map(|none: NoSettings| calculator::tool(name, none))),
        "current_time" => Some(decode_with(with).map(|none: NoSettings| current_time::tool(name, none))),
        "delegate_work" => {
            Some(decode_with(with).and_then(|config| delegate::tool(DelegationTool::DelegateWork, name, config)))
        }
        "http_get" => Some(decode_with(with).and_then(|config| http_get::tool(name, config, clients))),
        "read_cache" => Some(decode_with(with).map(|none: NoSettings| read_cache::tool(name, none))),
        "read_file" => Some(decode_with(with).and_then(|config| read_file::tool(name, config, base))),
        "read_result" => Some(decode_with(with).map(|none: NoSettings| read_result::tool(name, none))),
        _ => None,
    }
}

/// The JSON Schemas of the settings (`with:`), for the built-ins that have settings.
pub fn settings_schemas(generator: &mut SchemaGenerator) -> [(&'static str, Schema); 4] {
    [
        ("AddImageSettings", add_image::Config::json_schema(generator)),
        ("DelegateSettings", delegate::Config::json_schema(generator)),
        ("HttpGetSettings", http_get::Config::json_schema(generator)),
        ("ReadFileSettings", read_file::Config::json_schema(generator)),
    ]
}

/// The settings of built-ins without settings: any key is an error.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

fn decode_with<T: DeserializeOwned>(with: &JsonObject) -> Result<T, ConfigFault> {
    let decoded = decode_settings(Value::Object(with.clone()), &["with"]);
    decoded
        .map_err(|faults| faults.into_iter().next().unwrap_or_else(|| ConfigFault::error(&["with"], "cannot be read")))
}

/// The tools of a service that was started without a manifest.
pub(crate) fn demo_tools(own: &OwnPorts) -> Vec<Tool> {
    let clients = HttpClients::new(own.clone());
    // All built-ins that need no settings.
    let names = ["add_image", "calculator", "current_time", "http_get", "read_cache", "read_result"];
    let tool = |name: &&str| build(name, name, &JsonObject::new(), Path::new(""), &clients)?.ok();
    names.iter().filter_map(tool).collect()
}
