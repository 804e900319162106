//! The `agent` kind: a model with a prompt and tools of its own, as a tool.

use serde::Deserialize;

use super::kinds::Built;
use super::{BuildContext, ConfigFault};

/// The keys of the kind.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Builds the runner.
///
/// # Errors
/// What keeps it from being built.
pub fn build(_: Config, _: &BuildContext<'_>) -> Built {
    Err(vec![ConfigFault::error(&["kind"], "kind agent is not built yet")])
}
