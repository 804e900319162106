//! Checks that the caller may use the tool, that the tool is enabled, and that its definition is approved.
//!
//! This layer is directly below `record`, so a refusal costs nothing and has a row. The caller and the registered tool
//! decide. A request can only deny itself further tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Outcome;
use super::interceptor::{Inner, Interceptor, InterceptorLayer};
use crate::call::{CallError, Invocation};
use crate::callers::Grants;

/// The layer that checks permission, switch and approval.
pub struct Authorize {
    grants: Arc<Grants>,
    enabled: Arc<AtomicBool>,
    quarantined: bool,
}

impl Authorize {
    /// Admits callers with a grant while `enabled` is set. A `quarantined` tool admits no caller.
    pub fn layer(grants: Arc<Grants>, enabled: Arc<AtomicBool>, quarantined: bool) -> InterceptorLayer<Self> {
        InterceptorLayer::new(Self { grants, enabled, quarantined })
    }
}

impl Interceptor for Authorize {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        if !self.grants.allows(&invocation.caller) {
            let (caller, tool) = (invocation.caller.name.to_string(), invocation.tool.to_string());
            return Err(CallError::Forbidden { caller, tool });
        }
        if invocation.denied {
            return Err(CallError::Denied { tool: invocation.tool.to_string() });
        }
        if !self.enabled.load(Ordering::Relaxed) {
            return Err(CallError::ToolDisabled { tool: invocation.tool.to_string() });
        }
        if self.quarantined {
            return Err(CallError::DefinitionChanged { tool: invocation.tool.to_string() });
        }
        inner.call(invocation).await
    }
}
