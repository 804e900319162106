//! Runs tools that send a request to an HTTP API.
//!
//! The request of the manifest is parsed once, when the tool is built. `http_get` (a built-in) uses
//! the same parts, with a URL from its arguments.
//!
//! - `config`: the manifest keys, with the `fault_collector` of a build;
//! - `url_template`: the URL, with `path_value` for values in its path;
//! - `json_template`: JSON with placeholders;
//! - `request`: builds the request of one attempt, with its `body`;
//! - `auth`: authorizes it; `header_value` has values that may be secret;
//! - `client`: sends it under the `address_policy`, which also knows the service's own ports
//!   (`own_ports`); `transport` has its connections; `clients` shares clients among tools;
//! - `runner`: makes one attempt of these parts;
//! - `response`: turns the response into a result;
//! - `trace`: the trace headers.

pub(crate) mod address_policy;
pub(crate) mod auth;
mod body;
pub(crate) mod client;
mod clients;
mod config;
mod fault_collector;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod header_value;
mod json_template;
mod own_ports;
mod path_value;
pub(crate) mod received;
mod request;
pub(crate) mod response;
mod runner;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trace;
mod transport;
mod url_template;

use std::sync::Arc;

pub use auth::{AuthConfig, TokenSources};
pub use config::{Config, Fields, RequestConfig, ResponseConfig};

use self::address_policy::AddressPolicy;
use self::auth::RequestAuth;
pub use self::clients::HttpClients;
use self::fault_collector::FaultCollector;
pub use self::own_ports::OwnPorts;
pub(crate) use self::own_ports::points_to_this_machine;
use self::request::RequestTemplate;
use self::response::ResponseReader;
use self::runner::HttpRunner;
pub(crate) use self::url_template::{parse_listed_host, percent_encode};
use super::{BuildContext, BuildResult};

/// Builds the runner, with its warnings.
///
/// # Errors
/// All faults, warnings too.
pub fn build(config: Config, context: &BuildContext<'_>, clients: &HttpClients) -> BuildResult {
    let mut collector = FaultCollector::new(context);
    let policy = match context.trusted {
        true => AddressPolicy::new(config.request.allow_private, "request.allow_private"),
        false => AddressPolicy::deny_private(),
    };
    let has_auth = config.auth.is_some();
    let auth = config.auth.as_ref().and_then(|auth| {
        let (auth, faults) = match RequestAuth::build(auth, policy, clients) {
            Ok((auth, warnings)) => (Some(auth), warnings),
            Err(errors) => (None, errors),
        };
        collector.faults.extend(faults);
        auth
    });
    let request = RequestTemplate::parse(config.request, &mut collector);
    if let Some(request) = &request
        && has_auth
        && request.sets_authorization()
    {
        let message = "`auth` sets this header: leave one of them out";
        collector.error(&["request", "headers", "authorization"], message);
    }
    if !collector.has_errors() {
        collector.warn_unused_parameters();
    }
    let response_reader = ResponseReader::parse(config.response, config.max_output, &mut collector);
    let client = clients.get(policy);
    if let Some(request) = &request {
        request.url.check_hosts(&client, &mut collector);
    }
    match (request, response_reader) {
        (Some(request), Some(response_reader)) if !collector.has_errors() => {
            let runner = HttpRunner {
                caller_credentials: request.caller_credentials(),
                request,
                auth,
                response_reader,
                client,
            };
            Ok((Arc::new(runner), collector.faults))
        }
        _ => Err(collector.faults),
    }
}
