//! What the fuzz targets need of this folder.

use reqwest::Request;

use super::config::RequestConfig;
use super::fault_collector::FaultCollector;
use super::request::RequestTemplate;
use crate::call::{JsonObject, ToolContext};
use crate::kinds::{BuildContext, Values, literal};

/// The text of a value that came by reference, as templates have it.
pub fn referenced(value: &str) -> String {
    literal::escape_for_template(value).into_owned()
}

/// A reference to a credential of the caller, as templates have it.
pub fn caller_reference(name: &str) -> String {
    literal::caller_reference(name)
}

/// The request of a call; `None` if the template or a value is refused.
pub fn render(
    config: RequestConfig,
    context: &BuildContext<'_>,
    arguments: &JsonObject,
    call: &ToolContext,
) -> Option<Request> {
    let mut collector = FaultCollector::new(context);
    let template = RequestTemplate::parse(config, &mut collector)?;
    if collector.has_errors() {
        return None;
    }
    template
        .render(Values::for_call(arguments, call), call)
        .ok()
}
