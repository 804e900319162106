//! Conditions in the language of Jinja, compiled once: `cache.when` over `args` and `result`, and
//! `approval.when` and `deny_when` over `args`, `caller` and `run`.
//!
//! A condition has no access to anything else: no functions, no templates, no files, no
//! environment. In `cache.when`, a missing value is false rather than an error, so
//! `result.temperature > 0` is allowed for any result. In a condition on a call, a missing value is
//! an error, and then the condition holds.
//!
//! Arguments come from callers and results from upstreams, so no value may grow far beyond them.
//! The syntax tree is checked before compilation: expressions never join or repeat texts and lists.
//! The few filters that copy share a budget. The language has no loops, so time is bounded by the
//! length of the expression and the size of the values.

mod filters;
mod language;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};

pub use self::language::Names;
use crate::call::{CacheWhen, CallCondition, CallFacts, JsonObject, ToolResult};

/// The longest expression, in bytes. It is a condition, not a program.
const MAX_EXPRESSION_LEN: usize = 4096;
/// Instructions of one evaluation, in case the language ever gets loops. The longest expression
/// needs fewer.
const MAX_INSTRUCTIONS: u64 = 50_000;
/// The name of the only template in an environment.
const TEMPLATE_NAME: &str = "when";

/// The variables of a condition on a call.
const CALL_VARIABLES: &[&str] = &["args", "caller", "run"];

/// Any name is a variable.
const ANY_NAMES: &[&str] = &[];

/// Compiles an expression. `result` is the structured content if there is one, else the text.
///
/// # Errors
/// A sentence about what is invalid or unknown, and what is allowed.
pub fn compile_predicate(text: &str) -> Result<CacheWhen, String> {
    let environment = build_environment(text, &["args", "result"], UndefinedBehavior::Chainable)?;
    let holds = move |arguments: &JsonObject, result: &ToolResult| {
        let result = match &result.structured_content {
            Some(value) => Value::from(Serde(value)),
            None => Value::from(result.as_text()),
        };
        let variables = context! { args => Value::from(Serde(arguments)), result => result };
        evaluate(&environment, variables)
    };
    Ok(CacheWhen::from_expression(text, holds))
}

/// Compiles a condition on a call. `caller` and `run` are names; `run` is undefined without a run.
///
/// # Errors
/// A sentence about what is invalid or unknown, and what is allowed.
pub fn compile_call_condition(text: &str) -> Result<CallCondition, String> {
    let environment = build_environment(text, CALL_VARIABLES, UndefinedBehavior::Strict)?;
    let holds = move |call: CallFacts<'_>| {
        let variables = context! {
            args => Value::from(Serde(call.arguments)),
            caller => call.caller,
            run => call.run.map_or(Value::UNDEFINED, Value::from),
        };
        evaluate(&environment, variables)
    };
    Ok(CallCondition::new(text, holds))
}

/// Compiles a condition on the items of a list. Its names are the fields of an item, and `item` for an item
/// without fields. It is an error for an item that lacks a field, or to which the condition does not apply.
///
/// # Errors
/// A sentence about what is invalid, and what is allowed.
pub fn compile_item_condition(
    text: &str,
) -> Result<impl Fn(&serde_json::Value) -> Result<bool, String>, String> {
    let environment = build_environment(text, ANY_NAMES, UndefinedBehavior::Strict)?;
    Ok(move |item: &serde_json::Value| {
        let variables = match item.is_object() {
            true => Value::from(Serde(item)),
            false => context! { item => Value::from(Serde(item)) },
        };
        evaluate(&environment, variables)
    })
}

/// The names in a condition on a call; none if it is invalid.
pub fn condition_names(text: &str) -> Names {
    language::check_syntax(text, CALL_VARIABLES).unwrap_or_default()
}

fn evaluate(environment: &Environment<'_>, variables: Value) -> Result<bool, String> {
    let template = environment
        .get_template(TEMPLATE_NAME)
        .map_err(|error| error.to_string())?;
    template
        .render(variables)
        .map(|output| !output.is_empty())
        .map_err(|error| error.to_string())
}

fn build_environment(
    text: &str,
    variables: &'static [&'static str],
    missing: UndefinedBehavior,
) -> Result<Environment<'static>, String> {
    if text.len() > MAX_EXPRESSION_LEN {
        return Err(format!(
            "an expression has at most {MAX_EXPRESSION_LEN} bytes"
        ));
    }
    // The check must come before compilation: the compiler evaluates constants, such as a text
    // times a large number.
    language::check_syntax(text, variables)?;
    let mut environment = Environment::new();
    filters::replace_filters(&mut environment);
    environment.set_undefined_behavior(missing);
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
