//! May this caller use this tool, and is it switched on?
//!
//! Right under the record, so that a refusal costs nothing and is a row. Decided by the caller and the registered
//! tool, never by anything in the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::ready;
use tower::{Layer, Service};

use super::CallFuture;
use crate::call::{CallError, Invocation, ToolResult};
use crate::callers::Grants;

/// See the module.
#[derive(Clone)]
pub struct AuthorizeLayer {
    grants: Arc<Grants>,
    enabled: Arc<AtomicBool>,
}

impl AuthorizeLayer {
    /// Lets through the callers with a grant while `enabled` is set.
    pub fn new(grants: Arc<Grants>, enabled: Arc<AtomicBool>) -> Self {
        Self { grants, enabled }
    }
}

impl<S> Layer<S> for AuthorizeLayer {
    type Service = Authorize<S>;

    fn layer(&self, inner: S) -> Authorize<S> {
        Authorize { inner, rules: self.clone() }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Authorize<S> {
    inner: S,
    rules: AuthorizeLayer,
}

impl<S> Service<Invocation> for Authorize<S>
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError>,
    S::Future: Send + 'static,
{
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, invocation: Invocation) -> CallFuture {
        let tool = || invocation.tool.as_str().to_owned();
        if !self.rules.grants.allow(&invocation.caller) {
            let caller = invocation.caller.name.to_string();
            return ready(Err(CallError::Forbidden { caller, tool: tool() })).boxed();
        }
        if !self.rules.enabled.load(Ordering::Relaxed) {
            return ready(Err(CallError::ToolDisabled { tool: tool() })).boxed();
        }
        self.inner.call(invocation).boxed()
    }
}
