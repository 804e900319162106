//! Checks structured content against the tool's output schema.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::validation_pool::{ValidationError, ValidationPool, is_small};
use crate::call::{CallError, OutputCheckMode, ToolResult, Violation};
use crate::schema::{INLINE_STEPS, Meter, Schema, StopReason};

/// An output schema, and the pool that checks large results against it.
#[derive(Clone)]
pub struct OutputCheck {
    schema: Arc<Schema>,
    pool: ValidationPool,
    /// Whether a result that does not fit is passed on with a warning. Otherwise its call fails.
    only_warns: bool,
}

impl OutputCheck {
    /// Checks results against `schema`. `None` if they are not checked. Without a mode, a foreign
    /// schema only warns.
    pub fn new(
        schema: Arc<Schema>,
        mode: Option<OutputCheckMode>,
        pool: ValidationPool,
    ) -> Option<Self> {
        let only_warns = match mode {
            Some(OutputCheckMode::Off) => return None,
            Some(OutputCheckMode::Warn) => true,
            Some(OutputCheckMode::Fail) => false,
            None => schema.owner().is_foreign(),
        };
        Some(Self {
            schema,
            pool,
            only_warns,
        })
    }

    /// Checks a result. A result that is passed on although it does not fit adds a warning.
    ///
    /// # Errors
    /// The result does not fit, or there was no time to check it.
    pub(super) async fn check(
        &self,
        result: &Arc<ToolResult>,
        until: Instant,
        timeout: Duration,
        warnings: &mut Vec<String>,
    ) -> Result<(), CallError> {
        let fault = if result.structured_content.is_none() {
            "the tool has an output schema, but returned no structured content".to_owned()
        } else {
            match self.find_violation(result, until).await {
                Ok(None) => return Ok(()),
                Ok(Some(first)) => format!("the output violates the output schema: {first}"),
                // The tool has run.
                Err(ValidationError::ShuttingDown) => {
                    return Err(CallError::Cancelled { started: true });
                }
                Err(_) if self.only_warns => {
                    "there was no time to check the output against the output schema".to_owned()
                }
                Err(ValidationError::NoFreeSlot | ValidationError::TimedOut) => {
                    return Err(CallError::AttemptTimedOut { after: timeout });
                }
            }
        };
        if self.only_warns {
            warnings.push(fault);
            return Ok(());
        }
        Err(CallError::BadOutput(fault))
    }

    /// The first violation of the schema in a result's structured content, as a clause. `None` if
    /// there is no violation or no structured content.
    ///
    /// # Errors
    /// When the check did not end before `until`.
    pub(super) async fn find_violation(
        &self,
        result: &Arc<ToolResult>,
        until: Instant,
    ) -> Result<Option<String>, ValidationError> {
        let Some(value) = &result.structured_content else {
            return Ok(None);
        };
        if is_small(value)
            && let Ok(first) = self
                .schema
                .first_violation(value, &Meter::new(INLINE_STEPS, None))
        {
            return Ok(first.map(without_period));
        }
        let (schema, result) = (self.schema.clone(), result.clone());
        let checked = self
            .pool
            .run(until, move |meter| match &result.structured_content {
                Some(value) => schema.first_violation(value, meter),
                None => Ok(None),
            });
        match checked.await? {
            Ok(first) => Ok(first.map(without_period)),
            Err(StopReason::Cancelled) => Err(ValidationError::TimedOut),
            Err(_) => Ok(Some("it takes too much work to check".into())),
        }
    }
}

/// The message of a violation, as a clause of another sentence.
fn without_period(violation: Violation) -> String {
    violation.message.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::SchemaOwner;

    #[tokio::test(start_paused = true)]
    async fn result_that_there_is_no_time_to_check_passes_only_with_a_warning() {
        let schema = json!({"properties": {"numbers": {"items": {"type": "integer"}}}});
        let schema = Arc::new(Schema::compile(Arc::new(schema), SchemaOwner::Own).unwrap());
        let numbers: Vec<u32> = (0..100_000).collect();
        let result = Arc::new(ToolResult::json(json!({"numbers": numbers})));
        for (mode, passes) in [
            (OutputCheckMode::Warn, true),
            (OutputCheckMode::Fail, false),
        ] {
            let pool = ValidationPool::default();
            let check = OutputCheck::new(schema.clone(), Some(mode), pool).unwrap();
            let mut warnings = Vec::new();
            let checked = check
                .check(&result, Instant::now(), Duration::ZERO, &mut warnings)
                .await;
            match checked {
                Ok(()) => assert!(passes && warnings[0].contains("no time"), "{warnings:?}"),
                Err(error) => assert!(
                    !passes && matches!(error, CallError::AttemptTimedOut { .. }),
                    "{error}"
                ),
            }
        }
    }
}
