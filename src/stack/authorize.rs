//! Checks that the caller may use the tool, that the tool is enabled, that its definition is
//! approved, and that the caller has the credentials that the tool sends for it.
//!
//! This layer is directly below `record`, so a refusal costs nothing and has a row. The caller and
//! the registered tool decide. A request can only deny itself further tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Outcome;
use super::interceptor::{Inner, Interceptor};
use crate::access::callers::Grants;
use crate::call::{CallError, Invocation};

/// The layer that checks permission, switch, approval and credentials.
pub struct Authorize {
    /// The callers that may use the tool.
    pub(super) grants: Arc<Grants>,
    pub(super) enabled: Arc<AtomicBool>,
    /// A quarantined tool admits no caller.
    pub(super) quarantined: bool,
    /// The names of the credentials that the tool sends for its caller.
    pub(super) credentials: Vec<String>,
}

impl Interceptor for Authorize {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        if !self.grants.allows(&invocation.caller) {
            let (caller, tool) = (
                invocation.caller.name.to_string(),
                invocation.tool.to_string(),
            );
            return Err(CallError::Forbidden { caller, tool });
        }
        if invocation.call_chain.denied {
            return Err(CallError::Denied {
                tool: invocation.tool.to_string(),
            });
        }
        if !self.enabled.load(Ordering::Relaxed) {
            return Err(CallError::ToolDisabled {
                tool: invocation.tool.to_string(),
            });
        }
        if self.quarantined {
            return Err(CallError::DefinitionChanged {
                tool: invocation.tool.to_string(),
            });
        }
        if !self.credentials.is_empty() {
            // Noted also for a refusal: a result that was made without the credential is not for
            // other callers either.
            invocation.report.note_caller_credentials();
            let own = &invocation.caller.credentials;
            if let Some(credential) = self.credentials.iter().find(|name| own.get(name).is_none()) {
                let (caller, tool) = (
                    invocation.caller.name.to_string(),
                    invocation.tool.to_string(),
                );
                return Err(CallError::CredentialMissing {
                    caller,
                    tool,
                    credential: credential.clone(),
                });
            }
        }
        inner.call(invocation).await
    }
}
