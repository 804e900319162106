//! What the fuzz targets need of this folder.

use super::argv::Argv;
use super::config::Config;
use crate::call::{JsonObject, ToolContext};
use crate::kinds::{BuildContext, Values};

/// The items after the program in a call; `None` if the template or a value is refused.
pub fn render(
    config: &Config,
    context: &BuildContext<'_>,
    arguments: &JsonObject,
    call: &ToolContext,
) -> Option<Vec<String>> {
    let (argv, faults) = Argv::parse(&config.command, context);
    let values = Values::for_call(arguments, call);
    let is_refused =
        faults.iter().any(|fault| !fault.warning) || !argv.value_faults(values).is_empty();
    (!is_refused).then(|| argv.render(values))
}
