//! Checks structured content against the tool's output schema.

use std::sync::Arc;

use tokio::time::Instant;

use super::validation_pool::{ValidationError, ValidationPool, is_small};
use crate::call::ToolResult;
use crate::schema::{INLINE_STEPS, Meter, Schema, StopReason};

/// An output schema, and the pool that checks large results against it.
#[derive(Clone)]
pub struct OutputCheck {
    schema: Arc<Schema>,
    pool: ValidationPool,
}

impl OutputCheck {
    /// Checks results against `schema`.
    pub fn new(schema: Arc<Schema>, pool: ValidationPool) -> Self {
        Self { schema, pool }
    }

    /// The first violation of the schema in a result's structured content, as a message. `None` if
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
            return Ok(first.map(|first| first.message));
        }
        let (schema, result) = (self.schema.clone(), result.clone());
        let checked = self
            .pool
            .run(until, move |meter| match &result.structured_content {
                Some(value) => schema.first_violation(value, meter),
                None => Ok(None),
            });
        match checked.await? {
            Ok(first) => Ok(first.map(|first| first.message)),
            Err(StopReason::Cancelled) => Err(ValidationError::TimedOut),
            Err(_) => Ok(Some("it takes too much work to check".into())),
        }
    }
}
