//! One attempt: builds the request, sends it and reads the response.

use std::sync::Arc;

use async_trait::async_trait;

use super::auth::RequestAuth;
use super::client::HttpClient;
use super::request::RequestTemplate;
use super::response::ResponseReader;
use crate::call::{JsonObject, ToolContext};
use crate::kinds::{Runner, RunnerTraits, ToolOutcome, ValueFault, Values};

/// The parts of an `http` tool.
pub(super) struct HttpRunner {
    pub(super) request: RequestTemplate,
    pub(super) auth: Option<RequestAuth>,
    pub(super) response_reader: ResponseReader,
    pub(super) client: HttpClient,
    /// The names of the credentials that the request sends for the caller.
    pub(super) caller_credentials: Vec<String>,
}

#[async_trait]
impl Runner for HttpRunner {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let request = self
            .request
            .render(Values::for_call(&arguments, &context), &context)?;
        let response = match &self.auth {
            Some(auth) => Box::pin(auth.send(&self.client, request)).await?,
            None => self.client.send(request).await?,
        };
        self.response_reader.read_result(response, &context).await
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: self.request.url.has_one_host(),
            takes_context_fields: true,
            ..RunnerTraits::default()
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        self.request.value_faults(values)
    }

    fn caller_credentials(&self) -> &[String] {
        &self.caller_credentials
    }

    fn max_output(&self) -> Option<usize> {
        self.response_reader.raised_cap()
    }
}
