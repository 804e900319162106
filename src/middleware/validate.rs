//! Validates arguments against the tool's input schema, which is compiled at registration.
//!
//! This layer is above the cache and the limits. So a call that cannot run costs no unit. Equal calls are equal for the
//! cache, because defaults are filled in and strings that hold JSON are parsed before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use super::validation::{NotValidated, ValidationPool, is_small_object};
use crate::call::{CallError, Coercion, ContextFields, InvalidArguments, Invocation, JsonObject, Page, PageArguments};
use crate::schema::{self, INLINE_STEPS, Meter, PageFields, Schema, Unfit};
use crate::tools::{Runner, Values};

/// `retry_after` for a call that found no free slot for validation.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// All rules for the arguments of one tool.
#[derive(Clone)]
pub struct ArgumentRules {
    /// The compiled input schema.
    pub schema: Arc<Schema>,
    /// Finds violations that a schema cannot express.
    pub runner: Arc<dyn Runner>,
    /// The fields of the caller's context that the tool takes.
    pub context: ContextFields,
    /// Fields of the context that are part of the cache key.
    pub keyed: Vec<String>,
    /// Whether arguments are never coerced.
    pub strict: bool,
    /// The parameters by which a model requests a part of the result. The tool does not get them.
    pub pages: Option<PageFields>,
    /// The pool for large arguments.
    pub validations: ValidationPool,
    /// Maximum time of a validation if the call has no deadline.
    pub timeout: Duration,
}

/// Valid arguments, and the changes that made them valid.
#[derive(Debug)]
pub struct Fitting {
    /// The arguments, with defaults filled in.
    pub arguments: JsonObject,
    /// The values that were converted.
    pub coercions: Vec<Coercion>,
    /// The part of the result that the arguments request.
    pub page: Option<Page>,
}

impl ArgumentRules {
    /// Removes the paging parameters from arguments.
    pub fn take_page(&self, arguments: &mut JsonObject) -> Option<PageArguments> {
        self.pages.as_ref()?.take(arguments, self.strict)
    }

    /// [`ArgumentRules::fit`] for arguments as a model writes them. The paging parameters are checked and removed.
    ///
    /// # Errors
    /// As [`ArgumentRules::fit`].
    pub async fn fit_shown(
        &self,
        mut arguments: JsonObject,
        context: &Arc<JsonObject>,
        deadline: Option<Instant>,
    ) -> Result<Fitting, CallError> {
        match self.take_page(&mut arguments) {
            None => self.fit(arguments, context, deadline).await,
            Some(page) => with_page(self.fit(arguments, context, deadline).await, &page),
        }
    }

    /// Fits arguments to the schema, or reports all violations. It ends at `deadline`, or without one after the tool's
    /// timeout. Invalid arguments are dropped on the thread that validated them. `context` is the caller's.
    ///
    /// # Errors
    /// All violations, or a field of the context that is invalid. Or there was no slot or no time for the validation.
    pub async fn fit(
        &self,
        mut arguments: JsonObject,
        context: &Arc<JsonObject>,
        deadline: Option<Instant>,
    ) -> Result<Fitting, CallError> {
        if is_small_object(&arguments)
            && let Some(fitted) = self.fit_within(&mut arguments, context, &Meter::new(INLINE_STEPS, None))
        {
            return fitted.map(|coercions| Fitting { arguments, coercions, page: None });
        }
        let (began, rules, context) = (Instant::now(), self.clone(), context.clone());
        let until = deadline.unwrap_or(began + self.timeout);
        let fitted = self.validations.run(until, move |meter| {
            let fitted = rules.fit_within(&mut arguments, &context, meter)?;
            Some(fitted.map(|coercions| Fitting { arguments, coercions, page: None }))
        });
        match fitted.await {
            Ok(Some(fitted)) => fitted,
            Ok(None) => Err(CallError::InvalidArguments(vec![schema::too_much("the arguments object")])),
            Err(NotValidated::Full) if deadline.is_none() => {
                Err(CallError::Overloaded { retry_after: RETRY_AFTER, per_caller: None })
            }
            Err(NotValidated::Full | NotValidated::OutOfTime) => {
                Err(CallError::DeadlineExceeded { after: until - began, started: false })
            }
            Err(NotValidated::Stopping) => Err(CallError::Draining),
        }
    }

    /// `None` if the meter was spent before the result was clear.
    fn fit_within(
        &self,
        arguments: &mut JsonObject,
        context: &JsonObject,
        meter: &Meter<'_>,
    ) -> Option<Result<Vec<Coercion>, CallError>> {
        match self.schema.fit(arguments, self.strict, meter) {
            Ok(coercions) => {
                let faults = self.runner.faults(Values { arguments, context });
                Some(if faults.is_empty() { Ok(coercions) } else { Err(faults.into()) })
            }
            Err(Unfit::Violations(violations)) => Some(Err(CallError::InvalidArguments(violations))),
            Err(Unfit::Stopped(_)) => None,
        }
    }
}

/// Adds the result for the paging parameters to the result for the other arguments.
fn with_page(fitted: Result<Fitting, CallError>, page: &PageArguments) -> Result<Fitting, CallError> {
    match fitted {
        Ok(mut fitting) if page.faults.is_empty() => {
            fitting.coercions.extend(page.coercions.iter().cloned());
            fitting.page = Some(page.page);
            Ok(fitting)
        }
        Ok(_) => Err(CallError::InvalidArguments(page.faults.clone())),
        Err(CallError::InvalidArguments(mut violations)) => {
            violations.extend(page.faults.iter().cloned());
            Err(CallError::InvalidArguments(violations))
        }
        Err(error) => Err(error),
    }
}

/// The layer that validates arguments.
pub struct Validate(Arc<ArgumentRules>);

impl Validate {
    /// Makes the layer with these rules.
    pub fn layer(rules: Arc<ArgumentRules>) -> AroundLayer<Self> {
        AroundLayer::new(Self(rules))
    }
}

impl Around for Validate {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, mut invocation: Invocation) -> Outcome {
        // Nested calls get no warning: they inherit the context of their parent call, and their tool did not choose its
        // fields.
        if !invocation.context.is_empty()
            && invocation.lineage.parent.is_none()
            && let Some(ignored) = self.0.context.ignored(&invocation.context, &self.0.keyed)
        {
            invocation.notes.lock().meta.warnings.push(ignored);
        }
        if let Some(unreadable) = &invocation.unreadable {
            // The message quotes the arguments. They cannot be parsed, so it is unknown which part of them the schema
            // marks `writeOnly`.
            let quotes = !self.0.schema.has_write_only();
            let unreadable = quotes.then(|| InvalidArguments::clone(unreadable));
            return Err(CallError::UnreadableArguments(unreadable.unwrap_or_else(InvalidArguments::without_words)));
        }
        // No layer above keeps a reference, so this moves the arguments and does not copy them.
        let arguments = Arc::unwrap_or_clone(std::mem::take(&mut invocation.arguments));
        let fitted = self.0.fit(arguments, &invocation.context, invocation.deadline).await;
        let fitted = match &invocation.page_arguments {
            None => fitted,
            Some(page) => with_page(fitted, page),
        };
        let fitting = fitted.map_err(|error| match error {
            // The duration counts from the start of the call, as in the other layers.
            CallError::DeadlineExceeded { started, .. } if invocation.deadline.is_some() => {
                CallError::DeadlineExceeded { after: invocation.allowed(), started }
            }
            error => error,
        })?;
        invocation.arguments = Arc::new(fitting.arguments);
        if !fitting.coercions.is_empty() {
            invocation.notes.lock().meta.coercions = fitting.coercions;
        }
        inner.call(invocation).await
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::json;
    use tokio::sync::Mutex;

    use super::*;
    use crate::call::{ToolContext, ToolError, ToolResult};
    use crate::tools::Fault;

    /// A tool whose validation takes as long as the lock is held.
    struct Slow(Arc<Mutex<()>>);

    #[async_trait]
    impl Runner for Slow {
        async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
            Ok(ToolResult::text("yes"))
        }

        fn faults(&self, _: Values<'_>) -> Vec<Fault> {
            drop(self.0.blocking_lock());
            Vec::new()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(places: usize, lock: &Arc<Mutex<()>>) -> ArgumentRules {
        let schema = Arc::new(Schema::compile(Arc::new(json!({"type": "object"}))).unwrap());
        let validations = ValidationPool::of(places);
        ArgumentRules {
            schema,
            runner: Arc::new(Slow(lock.clone())),
            strict: false,
            validations,
            timeout: SECOND,
            pages: None,
            context: ContextFields::none(),
            keyed: Vec::new(),
        }
    }

    fn large() -> JsonObject {
        json!({"a": vec![1; 5000]}).as_object().cloned().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_pool_ends_with_the_calls_time() {
        let rules = rules(0, &Arc::default());
        let began = Instant::now();
        let said = rules.fit(large(), &Arc::default(), None).await.unwrap_err();
        assert!(matches!(said, CallError::Overloaded { retry_after: RETRY_AFTER, per_caller: None }), "{said:?}");
        assert_eq!(began.elapsed().as_secs(), 1, "the tool's timeout");
        let said = rules.fit(large(), &Arc::default(), Some(Instant::now() + 3 * SECOND)).await.unwrap_err();
        let CallError::DeadlineExceeded { after, started: false } = said else { panic!("{said:?}") };
        assert_eq!((after, began.elapsed().as_secs()), (3 * SECOND, 4));
    }

    #[tokio::test]
    async fn large_arguments_end_with_the_tools_time() {
        let lock = Arc::default();
        let mut rules = rules(1, &lock);
        rules.timeout = Duration::from_millis(1);
        let held = lock.clone().lock_owned().await;
        let said = rules.fit(large(), &Arc::default(), None).await.unwrap_err();
        assert!(matches!(said, CallError::DeadlineExceeded { started: false, .. }), "{said:?}");
        drop(held);
        rules.timeout = 60 * SECOND;
        assert_eq!(rules.fit(large(), &Arc::default(), None).await.unwrap().arguments, large());
    }
}
