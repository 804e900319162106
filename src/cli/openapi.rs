//! `toolcrib openapi`: the OpenAPI document of the service.

use std::path::Path;

use super::Failure;
use super::output::print_json;
use super::tools::{fail_on_faults, log_progress};
use crate::app::{self, DeclaredTools};
use crate::environment::Environment;
use crate::http;

/// Prints the document of the fixed routes, or with a manifest also of its tools.
pub(super) async fn run(manifest: Option<&Path>, environment: &Environment) -> Result<(), Failure> {
    let Some(path) = manifest else {
        print_json(&http::openapi_with_tools([]));
        return Ok(());
    };
    let DeclaredTools { tools, faults, .. } =
        app::load_declared(path, environment, log_progress).await?;
    let usable = tools
        .iter()
        .filter(|tool| tool.policy.enabled)
        .map(|tool| (&tool.definition, tool.policy.effect));
    print_json(&http::openapi_with_tools(usable));
    fail_on_faults(faults)
}
