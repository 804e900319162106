//! May this caller use this tool, is it switched on, and is it what was approved?
//!
//! Right under the record, so that a refusal costs nothing and is a row. Decided by the caller and the registered
//! tool; a request can only deny itself more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Invocation};
use crate::callers::Grants;

/// See the module.
pub struct Authorize {
    grants: Arc<Grants>,
    enabled: Arc<AtomicBool>,
    stopped: bool,
}

impl Authorize {
    /// Lets through the callers with a grant while `enabled` is set; nobody to a tool that is `stopped`.
    pub fn layer(grants: Arc<Grants>, enabled: Arc<AtomicBool>, stopped: bool) -> AroundLayer<Self> {
        AroundLayer::new(Self { grants, enabled, stopped })
    }
}

impl Around for Authorize {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        if !self.grants.allow(&invocation.caller) {
            let (caller, tool) = (invocation.caller.name.to_string(), invocation.tool.to_string());
            return Err(CallError::Forbidden { caller, tool });
        }
        if invocation.denied {
            return Err(CallError::Denied { tool: invocation.tool.to_string() });
        }
        if !self.enabled.load(Ordering::Relaxed) {
            return Err(CallError::ToolDisabled { tool: invocation.tool.to_string() });
        }
        if self.stopped {
            return Err(CallError::DefinitionChanged { tool: invocation.tool.to_string() });
        }
        inner.call(invocation).await
    }
}
