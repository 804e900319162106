//! Arguments against the tool's input schema, compiled at registration.
//!
//! Above cache and limits: a call that cannot run costs no unit, and equal calls look equal (defaults filled in,
//! strings that hold JSON read) before the cache sees them.

use std::sync::Arc;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Invocation, JsonObject, Unreadable, Violation};
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
pub struct Validate(Arc<ArgumentRules>);

impl Validate {
    /// Validates by these rules.
    pub fn layer(rules: Arc<ArgumentRules>) -> AroundLayer<Self> {
        AroundLayer::new(Self(rules))
    }
}

impl Around for Validate {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, mut invocation: Invocation) -> Outcome {
        if let Some(unreadable) = &invocation.unreadable {
            // Its words quote what came, and nobody can tell which part of that the schema marks `writeOnly`.
            let quotes = !self.0.schema.has_write_only();
            let unreadable = quotes.then(|| Unreadable::clone(unreadable));
            return Err(CallError::UnreadableArguments(unreadable.unwrap_or_else(Unreadable::without_words)));
        }
        let fitting = self.0.fit(&invocation.arguments).map_err(CallError::InvalidArguments)?;
        invocation.arguments = Arc::new(fitting.arguments);
        if !fitting.coercions.is_empty() {
            invocation.notes.lock().meta.coercions = fitting.coercions;
        }
        inner.call(invocation).await
    }
}
