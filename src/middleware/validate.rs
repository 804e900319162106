//! Arguments against the tool's input schema, compiled at registration.
//!
//! Above cache and limits: a call that cannot run costs no unit, and equal calls look equal (defaults filled in,
//! strings that hold JSON read) before the cache sees them.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::ready;
use tower::{Layer, Service};

use super::CallFuture;
use crate::call::{CallError, Invocation, JsonObject, ToolResult, Violation};
use crate::schema::{Fitting, Schema};
use crate::tools::Runner;

/// What arguments of one tool are held against.
#[derive(Clone)]
pub struct ArgumentRules {
    /// The compiled input schema.
    pub schema: Arc<Schema>,
    /// Knows faults that a schema cannot express.
    pub runner: Arc<dyn Runner>,
    /// No coercion.
    pub strict: bool,
}

impl ArgumentRules {
    /// Fits arguments, or says everything that is wrong with them.
    ///
    /// # Errors
    /// Every violation.
    pub fn fit(&self, arguments: &JsonObject) -> Result<Fitting, Vec<Violation>> {
        let fitting = self.schema.fit(arguments, self.strict)?;
        let faults = self.runner.faults(&fitting.arguments);
        if faults.is_empty() { Ok(fitting) } else { Err(faults) }
    }
}

/// See the module.
#[derive(Clone)]
pub struct ValidateLayer(Arc<ArgumentRules>);

impl ValidateLayer {
    /// Validates by these rules.
    pub fn new(rules: Arc<ArgumentRules>) -> Self {
        Self(rules)
    }
}

impl<S> Layer<S> for ValidateLayer {
    type Service = Validate<S>;

    fn layer(&self, inner: S) -> Validate<S> {
        Validate { inner, rules: self.0.clone() }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Validate<S> {
    inner: S,
    rules: Arc<ArgumentRules>,
}

impl<S> Service<Invocation> for Validate<S>
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

    fn call(&mut self, mut invocation: Invocation) -> CallFuture {
        match self.rules.fit(&invocation.arguments) {
            Ok(fitting) => {
                invocation.arguments = Arc::new(fitting.arguments);
                invocation.notes.lock().meta.coercions = fitting.coercions;
                self.inner.call(invocation).boxed()
            }
            Err(violations) => ready(Err(CallError::InvalidArguments(violations))).boxed(),
        }
    }
}
