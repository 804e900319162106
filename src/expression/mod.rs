//! `cache.when`: an expression over `args` and `result` in the language of Jinja, compiled once.
//!
//! It has no access to anything else: no functions, no templates, no files, no environment. A
//! missing value is false rather than an error, so `result.temperature > 0` is allowed for any
//! result.
//!
//! Arguments come from callers and results from upstreams, so no value may grow far beyond them.
//! The syntax tree is checked before compilation: expressions never join or repeat texts and lists.
//! The few filters that copy share a budget. The language has no loops, so time is bounded by the
//! length of the expression and the size of the values.

mod filters;
mod language;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};

use crate::call::{CacheWhen, JsonObject, ToolResult};

/// The longest expression, in bytes. It is a condition, not a program.
const MAX_EXPRESSION_LEN: usize = 4096;
/// Instructions of one evaluation, in case the language ever gets loops. The longest expression
/// needs fewer.
const MAX_INSTRUCTIONS: u64 = 50_000;
/// The name of the only template in an environment.
const TEMPLATE_NAME: &str = "when";

/// Compiles an expression. `result` is the structured content if there is one, else the text.
///
/// # Errors
/// A sentence about what is invalid or unknown, and what is allowed.
pub fn compile_predicate(text: &str) -> Result<CacheWhen, String> {
    let environment = build_environment(text)?;
    let holds = move |arguments: &JsonObject, result: &ToolResult| {
        let result = match &result.structured_content {
            Some(value) => Value::from(Serde(value)),
            None => Value::from(result.as_text()),
        };
        let variables = context! { args => Value::from(Serde(arguments)), result => result };
        let template = environment
            .get_template(TEMPLATE_NAME)
            .map_err(|error| error.to_string())?;
        template
            .render(variables)
            .map(|output| !output.is_empty())
            .map_err(|error| error.to_string())
    };
    Ok(CacheWhen::from_expression(text, holds))
}

fn build_environment(text: &str) -> Result<Environment<'static>, String> {
    if text.len() > MAX_EXPRESSION_LEN {
        return Err(format!(
            "an expression has at most {MAX_EXPRESSION_LEN} bytes"
        ));
    }
    // The check must come before compilation: the compiler evaluates constants, such as a text
    // times a large number.
    language::check_syntax(text)?;
    let mut environment = Environment::empty();
    filters::add_all(&mut environment);
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(MAX_INSTRUCTIONS));
    environment
        .compile_expression(text)
        .map(drop)
        .map_err(|error| language::syntax_error(&error))?;
    // An expression borrows its environment, so the two cannot be kept together. A template is
    // stored inside the environment. A valid expression cannot end the block around it.
    let template = format!("{{% if ({text}) %}}yes{{% endif %}}");
    environment
        .add_template_owned(TEMPLATE_NAME, template)
        .map_err(|error| error.to_string())?;
    Ok(environment)
}

#[cfg(test)]
mod tests;
