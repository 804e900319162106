//! Runs tools that send a request to an HTTP API.
//!
//! The request of the manifest is parsed once, when the tool is built. `http_get` (a built-in) uses the same parts,
//! with a URL from its arguments.
//!
//! - `config`: the manifest keys;
//! - `target`: the URL, with `path_value` for values in its path;
//! - `values`: JSON with placeholders;
//! - `request`: builds the request of one attempt;
//! - `client`: sends it through the `gate`, which also knows the service's own ports (`own_ports`);
//! - `response`: turns the response into a result;
//! - `trace`: the trace headers.

pub(crate) mod address_policy;
pub(crate) mod client;
mod config;
mod own_ports;
mod path_value;
mod request;
pub(crate) mod response;
mod target;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trace;
mod values;

use std::sync::Arc;

use async_trait::async_trait;

pub use config::{Config, RequestConfig, ResponseConfig};

use self::address_policy::AddressPolicy;
use self::client::Client;
pub use self::client::Clients;
use self::config::Diagnostics;
pub use self::own_ports::OwnPorts;
pub(crate) use self::own_ports::leads_here;
use self::request::RequestTemplate;
use self::response::ResponseReader;
pub(crate) use self::target::listed_host;
use super::{BuildContext, ConfigFault, Fault, Runner, Values};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};

/// Builds the runner, unless one of the faults is an error. Returns all faults, warnings too.
pub fn build(config: Config, context: &BuildContext<'_>) -> (Option<Arc<dyn Runner>>, Vec<ConfigFault>) {
    let mut notes = Diagnostics::new(context);
    let gate = match context.trusted {
        true => AddressPolicy::new(config.request.allow_private, "request.allow_private"),
        false => AddressPolicy::shut(),
    };
    let request = RequestTemplate::parse(config.request, context.effect, &mut notes);
    let reading = ResponseReader::parse(config.response, config.max_output, &mut notes);
    let client = context.clients.get(gate).map_err(|message| notes.error(&["request"], message)).ok();
    if let (Some(request), Some(client)) = (&request, &client) {
        request.target.check(|url| client.check(url), client.has_roots(), &mut notes);
    }
    let runner = match (request, reading, client) {
        (Some(request), Some(reading), Some(client)) if !notes.has_errors() => {
            Some(Arc::new(HttpTool { request, reading, client }) as Arc<dyn Runner>)
        }
        _ => None,
    };
    (runner, notes.faults)
}

struct HttpTool {
    request: RequestTemplate,
    reading: ResponseReader,
    client: Client,
}

#[async_trait]
impl Runner for HttpTool {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let request = self.request.render(Values { arguments: &arguments, context: &context.context }, &context)?;
        let response = self.client.send(request).await?;
        self.reading.read(response, &context).await
    }

    fn has_one_target(&self) -> bool {
        self.request.target.has_one_host()
    }

    fn faults(&self, values: Values<'_>) -> Vec<Fault> {
        self.request.faults(values)
    }

    fn takes_fields(&self) -> bool {
        true
    }

    fn max_output(&self) -> Option<usize> {
        self.reading.raised_cap()
    }
}
