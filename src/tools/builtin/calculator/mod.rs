//! `calculator`: one expression, one number.

mod expression;
mod number;

use std::sync::Arc;

use async_trait::async_trait;

use self::expression::evaluate;
use super::NoSettings;
use crate::call::{Effect, JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::{Runner, Tool};

/// Longest expression, in bytes; nobody writes more by hand.
const MAX_LEN: usize = 1000;

struct Calculator;

pub(super) fn tool(name: &str, _: NoSettings) -> Tool {
    Tool::new(
        name,
        "Evaluates one arithmetic expression exactly and returns the number. Use it for any calculation instead of \
         doing it in your head. Knows + - * / // % ** ( ), pi, e, and functions such as sqrt, round, min, max, log.",
    )
    .param("expression", "string", "What to calculate, e.g. (137 * 48) / 2 ** 3, sqrt(2), round(2 / 3, 4)")
    .effect(Effect::Read)
    .with_runner(Arc::new(Calculator))
}

#[async_trait]
impl Runner for Calculator {
    async fn call(&self, arguments: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
        let text = arguments.get("expression").and_then(serde_json::Value::as_str).unwrap_or_default();
        if text.len() > MAX_LEN {
            return Err(format!("The expression is longer than {MAX_LEN} bytes; calculate it in parts.").into());
        }
        Ok(ToolResult::text(evaluate(text)?.to_string()))
    }
}
