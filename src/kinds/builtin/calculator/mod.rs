//! Evaluates arithmetic, because models calculate poorly.
//!
//! This evaluator is our own. The libraries lack `//` and `**`, read `-2**2` as 4, or have a
//! license that we cannot use.
//!
//! - `parse`: parses and evaluates in one pass, and knows the constants and functions;
//! - `number`: arithmetic on numbers.

mod number;
mod parse;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;

use super::arguments::text_argument;
use crate::call::{Effect, JsonObject, ToolContext, ToolError, ToolResult};
use crate::kinds::{Runner, Tool, ToolOutcome};

/// The longest expression, in characters.
const MAX_EXPRESSION_CHARS: usize = 1000;

/// The tool, registered as `name`.
pub(super) fn tool(name: &str) -> Tool {
    let description = "Evaluates an arithmetic expression and answers with the number: whole numbers exactly, others to 15 digits. Use it for every \
        calculation, however simple. Understands + - * / // (rounded down) % (remainder) ** or ^ (power), \
        parentheses, numbers such as 1_000, 2.5 and 1e-3, the names pi, e and tau, and the functions sqrt, abs, \
        round(x, digits), floor, ceil, min, max, sin, cos, tan, asin, acos, atan (in radians), log(x, base) (natural \
        without a base), ln, log2, log10, exp, factorial and pow(x, y).";
    let schema = json!({
        "type": "object",
        "properties": {"expression": {
            "type": "string",
            "description": "The expression, e.g. (17.5 + 4) * 3 ** 2",
            "maxLength": MAX_EXPRESSION_CHARS,
        }},
        "required": ["expression"],
        "additionalProperties": false,
    });
    let example = json!({"expression": "6 * 7"});
    Tool::new(name, description)
        .input_schema(schema)
        .example(example)
        .effect(Effect::Read)
        .with_runner(Arc::new(Calculator))
}

struct Calculator;

#[async_trait]
impl Runner for Calculator {
    async fn call(&self, arguments: Arc<JsonObject>, _context: ToolContext) -> ToolOutcome {
        let expression = text_argument(&arguments, "expression");
        if expression.chars().count() > MAX_EXPRESSION_CHARS {
            return Err(ToolError::ErrorResult(format!(
                "the expression is longer than {MAX_EXPRESSION_CHARS} characters"
            )));
        }
        let number = parse::evaluate(expression)
            .map_err(|error| ToolError::ErrorResult(error.to_string()))?;
        Ok(ToolResult::text(number.to_string()))
    }
}

#[cfg(test)]
mod tests;
