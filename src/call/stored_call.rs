//! A call as data that can be stored and started later, in another process too.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::call_chain::CallChain;
use super::caller::Caller;
use super::definition::ToolName;
use super::idempotency::IdempotencyKey;
use super::invocation::{CacheMode, Invocation, Run};
use super::invocation_id::InvocationId;
use super::json::JsonObject;
use super::trace::TraceContext;

/// What is needed to start a call later. The page of the answer is left out: a call that starts
/// later is read with `GET /invocations/{id}/result`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredCall {
    /// The arguments as received.
    pub arguments: JsonObject,
    /// The caller's context.
    pub context: JsonObject,
    cache: CacheMode,
    #[serde(flatten)]
    run: Run,
    tool_use_id: Option<Arc<str>>,
    request_id: Option<Arc<str>>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    idempotency_key: Option<Arc<str>>,
    /// The time that the call has, in milliseconds.
    budget_ms: Option<u64>,
    #[serde(flatten)]
    call_chain: CallChain,
}

impl StoredCall {
    /// The stored form of a call with these arguments.
    pub fn new(invocation: &Invocation, arguments: &JsonObject) -> Self {
        let Invocation {
            input,
            run,
            correlation,
            call_chain,
            timing,
            ..
        } = invocation;
        let trace = correlation.trace.as_deref();
        let budget = timing.deadline.map(|_| timing.budget().as_millis());
        Self {
            arguments: arguments.clone(),
            context: JsonObject::clone(&input.context),
            cache: invocation.cache,
            run: run.clone(),
            tool_use_id: correlation.tool_use_id.clone(),
            request_id: correlation.request_id.clone(),
            traceparent: trace.map(|trace| trace.traceparent().to_owned()),
            tracestate: trace.and_then(|trace| trace.tracestate().map(str::to_owned)),
            idempotency_key: invocation
                .idempotency_key
                .as_ref()
                .map(IdempotencyKey::to_arc),
            budget_ms: budget.and_then(|millis| u64::try_from(millis).ok()),
            call_chain: call_chain.clone(),
        }
    }

    /// The call again, as one that starts now.
    pub fn to_invocation(
        &self,
        id: InvocationId,
        tool: ToolName,
        caller: Arc<Caller>,
        now: Timestamp,
    ) -> Box<Invocation> {
        let mut call = Invocation::new(tool, self.arguments.clone(), caller, now);
        call.id = id;
        call.input.context = Arc::new(self.context.clone());
        call.cache = self.cache;
        call.run = self.run.clone();
        call.correlation.tool_use_id = self.tool_use_id.clone();
        call.correlation.request_id = self.request_id.clone();
        call.correlation.trace = TraceContext::from_headers(
            self.traceparent.as_deref().map(str::as_bytes),
            self.tracestate.as_deref().map(str::as_bytes),
        )
        .map(Arc::new);
        let key = self.idempotency_key.as_ref();
        call.idempotency_key = key.and_then(|key| IdempotencyKey::parse(key.as_bytes()).ok());
        if let Some(millis) = self.budget_ms {
            call.timing.limit_to(Duration::from_millis(millis));
        }
        call.call_chain = self.call_chain.clone();
        Box::new(call)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stored_call_is_the_same_call() {
        let caller = Arc::new(Caller::new("ann", false));
        let tool = ToolName::parse("pay").unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let arguments = json!({"amount": 5}).as_object().cloned().unwrap();
        let mut call = Invocation::new(tool.clone(), arguments.clone(), caller.clone(), now);
        call.run.id = Some("r1".into());
        call.input.context = Arc::new(json!({"tenant": 7}).as_object().cloned().unwrap());
        call.idempotency_key = IdempotencyKey::parse(b"k1").ok();
        call.call_chain.parent = Some(InvocationId::new());
        call.call_chain.tools = [ToolName::parse("agent").unwrap()].into();
        call.call_chain.deny = ["delete_*".to_owned()].into();
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        call.correlation.trace = TraceContext::from_headers([trace.as_bytes()], []).map(Arc::new);
        call.timing.limit_to(Duration::from_secs(9));
        let json = serde_json::to_string(&StoredCall::new(&call, &arguments)).unwrap();
        // Rows of earlier versions have this form.
        assert!(
            json.contains(r#""run_id":"r1","run_is_implied":false"#),
            "{json}"
        );
        assert!(json.contains(r#""chain":["agent"],"agent":null"#), "{json}");
        let stored: StoredCall = serde_json::from_str(&json).unwrap();
        let again = stored.to_invocation(call.id, tool, caller, now);
        assert_eq!((again.id, &*again.input.arguments), (call.id, &arguments));
        assert_eq!(again.input.context, call.input.context);
        assert_eq!(
            (&again.run.id, again.timing.budget()),
            (&call.run.id, Duration::from_secs(9))
        );
        assert_eq!(again.correlation.trace, call.correlation.trace);
        assert_eq!(again.call_chain.parent, call.call_chain.parent);
        assert_eq!(again.call_chain.tools, call.call_chain.tools);
        assert_eq!(again.call_chain.deny, call.call_chain.deny);
        let key = |call: &Invocation| call.idempotency_key.as_ref().map(IdempotencyKey::to_arc);
        assert_eq!(key(&again), key(&call));
    }
}
