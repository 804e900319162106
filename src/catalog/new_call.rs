//! Makes the invocation of a call, in the same way for every entry point: the routes of tools and
//! messages, both transports of MCP, nested calls, and programs that embed the crate.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Entry, NameMatch};
use crate::call::request_fields::CallOptions;
use crate::call::{
    Caller, Idempotency, IdempotencyKey, Invocation, JsonObject, TraceContext, UnreadableArguments,
};

/// A call as an entry point describes it.
pub struct NewCall<'a> {
    /// The name in the request, which may be an alias or another spelling.
    pub requested_name: &'a str,
    /// How that name matched the tool.
    pub name_match: NameMatch,
    /// The caller of the tool.
    pub caller: Arc<Caller>,
    /// The arguments, or why a model's text has none.
    pub arguments: Result<JsonObject, UnreadableArguments>,
    /// Repairs of the model's text, as warnings.
    pub repairs: Vec<String>,
    /// What the request has beside the arguments.
    pub options: CallOptions,
    /// The idempotency key of the request.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The client's id of the HTTP request.
    pub request_id: Option<Arc<str>>,
    /// The trace of the request.
    pub trace: Option<Arc<TraceContext>>,
    /// When the call was accepted.
    pub started_at: Timestamp,
}

impl<'a> NewCall<'a> {
    /// A call with nothing beside its arguments.
    pub fn new(
        (requested_name, name_match): (&'a str, NameMatch),
        caller: Arc<Caller>,
        arguments: Result<JsonObject, UnreadableArguments>,
        started_at: Timestamp,
    ) -> Self {
        Self {
            requested_name,
            name_match,
            caller,
            arguments,
            repairs: Vec::new(),
            options: CallOptions::default(),
            idempotency_key: None,
            request_id: None,
            trace: None,
            started_at,
        }
    }
}

impl Entry {
    /// Makes the invocation of a call of this tool. A key that the tool does not take is left out,
    /// with a warning.
    pub fn new_invocation(&self, call: NewCall<'_>) -> Box<Invocation> {
        let (arguments, unreadable) = match call.arguments {
            Ok(arguments) => (arguments, None),
            Err(unreadable) => (JsonObject::new(), Some(Arc::new(unreadable))),
        };
        let tool = self.name_shown_to(&call.caller, call.requested_name);
        let mut invocation = Box::new(Invocation::new(
            tool,
            arguments,
            call.caller,
            call.started_at,
        ));
        invocation.input.unreadable = unreadable;
        invocation.input.context = call.options.context;
        invocation.run.id = call.options.run_id;
        invocation.correlation.tool_use_id = call.options.tool_use_id;
        invocation.correlation.request_id = call.request_id;
        invocation.correlation.trace = call.trace;
        invocation.cache = call.options.cache;
        invocation.paging.page = call.options.page;
        if let Some(timeout) = call.options.timeout {
            invocation.timing.limit_to(timeout);
        }
        let mut warnings = Vec::new();
        warnings.extend(call.name_match.warning(call.requested_name, self));
        warnings.extend(call.repairs);
        if call.idempotency_key.is_some() && !self.takes_idempotency_keys() {
            let warning = "this tool takes no Idempotency-Key (idempotency: off): the call was not protected by it";
            warnings.push(warning.to_owned());
        } else {
            invocation.idempotency_key = call.idempotency_key;
        }
        if !warnings.is_empty() {
            invocation.report.entry.lock().warnings = warnings;
        }
        invocation
    }

    /// Whether a call with an idempotency key runs only once.
    pub fn takes_idempotency_keys(&self) -> bool {
        self.policy.idempotency != Idempotency::Off
    }
}
