//! The `sql` kind: one prepared statement with bound parameters.

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
    Err(vec![ConfigFault::error(&["kind"], "kind sql is not built yet")])
}
