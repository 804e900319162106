//! Validates arguments against the tool's input schema, which is compiled at registration.
//!
//! This layer is above the cache and the limits. So a call that cannot run costs no unit. Equal
//! calls are equal for the cache, because defaults are filled in and strings that hold JSON are
//! parsed before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;
use super::interceptor::{Inner, Interceptor};
use super::validation_pool::{ValidationError, ValidationPool, is_small_object};
use crate::call::{
    CallError, Coercion, ContextFields, Invocation, JsonObject, Page, PageArguments,
    UnreadableArguments,
};
use crate::kinds::{Runner, Values};
use crate::schema::{self, FitError, INLINE_STEPS, Meter, PageFields, Schema};

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
    pub cache_key_fields: Vec<String>,
    /// Whether arguments are never coerced.
    pub strict: bool,
    /// The parameters by which a model requests a part of the result. The tool does not get them.
    pub page_fields: Option<PageFields>,
    /// The pool for large arguments.
    pub validation_pool: ValidationPool,
    /// Maximum time of a validation if the call has no deadline.
    pub timeout: Duration,
}

/// Valid arguments, and the changes that made them valid.
#[derive(Debug)]
pub struct FittedArguments {
    /// The arguments, with defaults filled in.
    pub arguments: JsonObject,
    /// The values that were converted.
    pub coercions: Vec<Coercion>,
    /// Warnings about values that could not be judged.
    pub warnings: Vec<String>,
    /// The part of the result that the arguments request.
    pub page: Option<Page>,
}

impl ArgumentRules {
    /// Removes the paging parameters from arguments.
    pub fn take_page(&self, arguments: &mut JsonObject) -> Option<PageArguments> {
        self.page_fields.as_ref()?.extract(arguments, self.strict)
    }

    /// [`ArgumentRules::fit_arguments`] for arguments as a model writes them. The paging parameters
    /// are checked and removed.
    ///
    /// # Errors
    /// As [`ArgumentRules::fit_arguments`].
    pub async fn fit_model_arguments(
        &self,
        mut arguments: JsonObject,
        context: &Arc<JsonObject>,
        deadline: Option<Instant>,
    ) -> Result<FittedArguments, CallError> {
        match self.take_page(&mut arguments) {
            None => self.fit_arguments(arguments, context, deadline).await,
            Some(page) => add_page_result(
                self.fit_arguments(arguments, context, deadline).await,
                &page,
            ),
        }
    }

    /// Fits arguments to the schema, or reports all violations. It ends at `deadline`, or without
    /// one after the tool's timeout. Invalid arguments are dropped on the thread that validated
    /// them. `context` is the caller's.
    ///
    /// # Errors
    /// All violations, or a field of the context that is invalid. Or there was no slot or no time
    /// for the validation.
    pub async fn fit_arguments(
        &self,
        mut arguments: JsonObject,
        context: &Arc<JsonObject>,
        deadline: Option<Instant>,
    ) -> Result<FittedArguments, CallError> {
        if is_small_object(&arguments)
            && let Some(fitted) =
                self.fit_with_meter(&mut arguments, context, &Meter::new(INLINE_STEPS, None))
        {
            return fitted.map(|fitted| FittedArguments {
                arguments,
                ..fitted
            });
        }
        let (began, rules, context) = (Instant::now(), self.clone(), context.clone());
        let until = deadline.unwrap_or(began + self.timeout);
        let fitted = self.validation_pool.run(until, move |meter| {
            let fitted = rules.fit_with_meter(&mut arguments, &context, meter)?;
            Some(fitted.map(|fitted| FittedArguments {
                arguments,
                ..fitted
            }))
        });
        match fitted.await {
            Ok(Some(fitted)) => fitted,
            Ok(None) => Err(CallError::InvalidArguments(vec![schema::too_costly(
                "the arguments object",
            )])),
            Err(ValidationError::NoFreeSlot) if deadline.is_none() => Err(CallError::Overloaded {
                retry_after: RETRY_AFTER,
                per_caller: None,
            }),
            Err(ValidationError::NoFreeSlot | ValidationError::TimedOut) => {
                Err(CallError::DeadlineExceeded {
                    after: until - began,
                    started: false,
                })
            }
            Err(ValidationError::ShuttingDown) => Err(CallError::Draining),
        }
    }

    /// Fits the arguments in place, so the result has none. `None` if the meter was spent before the
    /// result was clear.
    fn fit_with_meter(
        &self,
        arguments: &mut JsonObject,
        context: &JsonObject,
        meter: &Meter<'_>,
    ) -> Option<Result<FittedArguments, CallError>> {
        match self.schema.fit_arguments(arguments, self.strict, meter) {
            Ok(coercions) => {
                let faults = self.runner.value_faults(Values {
                    arguments,
                    context,
                    credentials: None,
                });
                Some(if faults.is_empty() {
                    Ok(FittedArguments {
                        arguments: JsonObject::new(),
                        coercions,
                        warnings: meter.unjudged_warning().into_iter().collect(),
                        page: None,
                    })
                } else {
                    Err(faults.into())
                })
            }
            Err(FitError::Violations(violations)) => {
                Some(Err(CallError::InvalidArguments(violations)))
            }
            Err(FitError::Stopped(_)) => None,
        }
    }
}

/// Adds the result for the paging parameters to the result for the other arguments.
fn add_page_result(
    fitted: Result<FittedArguments, CallError>,
    page: &PageArguments,
) -> Result<FittedArguments, CallError> {
    match fitted {
        Ok(mut fitting) if page.violations.is_empty() => {
            fitting.coercions.extend(page.coercions.iter().cloned());
            fitting.page = Some(page.page);
            Ok(fitting)
        }
        Ok(_) => Err(CallError::InvalidArguments(page.violations.clone())),
        Err(CallError::InvalidArguments(mut violations)) => {
            violations.extend(page.violations.iter().cloned());
            Err(CallError::InvalidArguments(violations))
        }
        Err(error) => Err(error),
    }
}

/// The layer that validates arguments.
pub struct Validate(pub(super) Arc<ArgumentRules>);

impl Interceptor for Validate {
    async fn call<S: Inner>(
        self: Arc<Self>,
        mut inner: S,
        mut invocation: Box<Invocation>,
    ) -> Outcome {
        // Nested calls get no warning: they inherit the context of their parent call, and their
        // tool did not choose its fields.
        if !invocation.input.context.is_empty()
            && invocation.call_chain.parent.is_none()
            && let Some(ignored) = self
                .0
                .context
                .ignored_warning(&invocation.input.context, &self.0.cache_key_fields)
        {
            invocation.report.fitting.lock().warnings.push(ignored);
        }
        if let Some(unreadable_arguments) = &invocation.input.unreadable {
            // The message quotes the arguments. They cannot be parsed, so it is unknown which part
            // of them the schema marks `writeOnly`.
            let quotes = !self.0.schema.has_write_only();
            let unreadable_arguments =
                quotes.then(|| UnreadableArguments::clone(unreadable_arguments));
            return Err(CallError::UnreadableArguments(
                unreadable_arguments.unwrap_or_else(UnreadableArguments::without_quotes),
            ));
        }
        // No layer above keeps a reference, so this moves the arguments and does not copy them.
        let arguments = Arc::unwrap_or_clone(std::mem::take(&mut invocation.input.arguments));
        let fitted = self
            .0
            .fit_arguments(
                arguments,
                &invocation.input.context,
                invocation.timing.deadline,
            )
            .await;
        let fitted = match &invocation.paging.arguments {
            None => fitted,
            Some(page) => add_page_result(fitted, page),
        };
        let fitting = fitted.map_err(|error| match error {
            // The duration counts from the start of the call, as in the other layers.
            CallError::DeadlineExceeded { started, .. } if invocation.timing.deadline.is_some() => {
                invocation.timing.deadline_exceeded(started)
            }
            error => error,
        })?;
        invocation.input.arguments = Arc::new(fitting.arguments);
        if !fitting.coercions.is_empty() || !fitting.warnings.is_empty() {
            let mut report = invocation.report.fitting.lock();
            report.coercions = fitting.coercions;
            report.warnings.extend(fitting.warnings);
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
    use crate::kinds::ValueFault;
    use crate::schema::SchemaOwner;

    /// A tool whose validation takes as long as the lock is held.
    struct Slow(Arc<Mutex<()>>);

    #[async_trait]
    impl Runner for Slow {
        async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
            Ok(ToolResult::text("yes"))
        }

        fn value_faults(&self, _: Values<'_>) -> Vec<ValueFault> {
            drop(self.0.blocking_lock());
            Vec::new()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(slots: usize, lock: &Arc<Mutex<()>>) -> ArgumentRules {
        let schema = Arc::new(
            Schema::compile(Arc::new(json!({"type": "object"})), SchemaOwner::Own).unwrap(),
        );
        let validation_pool = ValidationPool::with_slots(slots);
        ArgumentRules {
            schema,
            runner: Arc::new(Slow(lock.clone())),
            strict: false,
            validation_pool,
            timeout: SECOND,
            page_fields: None,
            context: ContextFields::none(),
            cache_key_fields: Vec::new(),
        }
    }

    fn large() -> JsonObject {
        json!({"a": vec![1; 5000]}).as_object().cloned().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn full_pool_waits_until_the_deadline() {
        let rules = rules(0, &Arc::default());
        let began = Instant::now();
        let error = rules
            .fit_arguments(large(), &Arc::default(), None)
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                CallError::Overloaded {
                    retry_after: RETRY_AFTER,
                    per_caller: None
                }
            ),
            "{error:?}"
        );
        assert_eq!(began.elapsed().as_secs(), 1, "the tool's timeout");
        let error = rules
            .fit_arguments(large(), &Arc::default(), Some(Instant::now() + 3 * SECOND))
            .await
            .unwrap_err();
        let CallError::DeadlineExceeded {
            after,
            started: false,
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!((after, began.elapsed().as_secs()), (3 * SECOND, 4));
    }

    #[tokio::test]
    async fn large_arguments_respect_the_tool_timeout() {
        let lock = Arc::default();
        let mut rules = rules(1, &lock);
        rules.timeout = Duration::from_millis(1);
        let guard = lock.clone().lock_owned().await;
        let error = rules
            .fit_arguments(large(), &Arc::default(), None)
            .await
            .unwrap_err();
        assert!(
            matches!(error, CallError::DeadlineExceeded { started: false, .. }),
            "{error:?}"
        );
        drop(guard);
        rules.timeout = 60 * SECOND;
        assert_eq!(
            rules
                .fit_arguments(large(), &Arc::default(), None)
                .await
                .unwrap()
                .arguments,
            large()
        );
    }
}
