//! Tools that come with the service. A service has only those that its manifest names; the demo has
//! all that need no settings.

mod add_image;
mod arguments;
mod calculator;
mod current_time;
mod delegate;
mod find_tools;
mod http_get;
mod read_cache;
mod read_file;
mod read_result;
pub mod run_script;

use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::agent::coworkers::{ASK_QUESTION, DELEGATE_WORK};
use super::table::decode_settings;
use super::{ConfigFault, HttpClients, OwnPorts, TokenSources, Tool};
use crate::call::JsonObject;
use crate::call::words;

/// The names of all built-in tools, sorted.
pub const NAMES: [&str; 12] = words(
    "add_image ask_question calculator call_tool current_time delegate_work http_get read_cache
     read_file read_result run_script search_tools",
);

/// Builds the built-in `which`, registered as `name`, with its settings (`with:`). `None` if there
/// is no such built-in.
pub fn build(
    which: &str,
    name: &str,
    with: &JsonObject,
    base: &Path,
    clients: &HttpClients,
) -> Option<Result<Tool, Vec<ConfigFault>>> {
    Some(match which {
        "add_image" => configure(with, |config| add_image::tool(name, config, base, clients)),
        "ask_question" => configure(with, |config| delegate::tool(&ASK_QUESTION, name, config)),
        "calculator" => configure(with, |_: NoSettings| Ok(calculator::tool(name))),
        "call_tool" => configure(with, |_: NoSettings| Ok(find_tools::call_tool(name))),
        "current_time" => configure(with, |_: NoSettings| Ok(current_time::tool(name))),
        "delegate_work" => configure(with, |config| delegate::tool(&DELEGATE_WORK, name, config)),
        "http_get" => configure(with, |config| http_get::tool(name, config, clients)),
        "read_cache" => configure(with, |_: NoSettings| Ok(read_cache::tool(name))),
        "read_file" => configure(with, |config| read_file::tool(name, config, base)),
        "read_result" => configure(with, |_: NoSettings| Ok(read_result::tool(name))),
        "run_script" => configure(with, |config| run_script::tool(name, config)),
        "search_tools" => configure(with, |_: NoSettings| Ok(find_tools::search_tool(name))),
        _ => return None,
    })
}

/// The JSON Schemas of the settings (`with:`), for the built-ins that have settings.
pub fn settings_schemas(generator: &mut SchemaGenerator) -> [(&'static str, Schema); 5] {
    [
        (
            "AddImageSettings",
            add_image::Config::json_schema(generator),
        ),
        ("DelegateSettings", delegate::Config::json_schema(generator)),
        ("HttpGetSettings", http_get::Config::json_schema(generator)),
        (
            "ReadFileSettings",
            read_file::Config::json_schema(generator),
        ),
        (
            "RunScriptSettings",
            run_script::Config::json_schema(generator),
        ),
    ]
}

/// The settings of built-ins without settings: any key is an error.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

/// Decodes the settings, and makes the tool from them.
fn configure<T: DeserializeOwned + JsonSchema>(
    with: &JsonObject,
    make_tool: impl FnOnce(T) -> Result<Tool, ConfigFault>,
) -> Result<Tool, Vec<ConfigFault>> {
    let config = decode_settings(&Value::Object(with.clone()), &["with"])?;
    make_tool(config).map_err(|fault| vec![fault])
}

/// The tools of a service that was started without a manifest.
pub(crate) fn demo_tools(own: &OwnPorts) -> Vec<Tool> {
    let clients = HttpClients::new(own.clone(), TokenSources::default());
    // All built-ins that need no settings.
    let names = [
        "add_image",
        "calculator",
        "current_time",
        "http_get",
        "read_cache",
        "read_result",
    ];
    let tool = |name: &&str| build(name, name, &JsonObject::new(), Path::new(""), &clients)?.ok();
    names.iter().filter_map(tool).collect()
}
