//! `toolcrib openapi`: the OpenAPI document of the service.

use std::path::Path;

use super::Failure;
use super::output::{print_json, print_line};
use super::tools::{fail_on_faults, log_progress};
use crate::app::{self, DeclaredTools};
use crate::environment::Environment;
use crate::http;

/// Prints the document of the fixed routes, or with a manifest also of its tools.
pub(super) async fn run(manifest: Option<&Path>, environment: &Environment) -> Result<(), Failure> {
    let Some(path) = manifest else {
        let text = http::openapi().to_pretty_json();
        print_line(&text.map_err(|error| Failure::Failed(error.to_string()))?);
        return Ok(());
    };
    let DeclaredTools { tools, faults, .. } = app::load_declared(path, environment, log_progress).await?;
    let usable = tools.iter().filter(|tool| tool.policy.enabled).map(|tool| &tool.definition);
    print_json(&http::openapi_with_tools(usable));
    fail_on_faults(faults)
}
