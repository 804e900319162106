//! `cache.when`: an expression over `args` and `result` in Jinja's language, compiled once.
//!
//! It sees nothing else: no functions, no templates, no files, no environment. What has no value is false rather than
//! an error, so that `result.temperature > 0` may be asked of any result.
//!
//! Arguments and result are a caller's and an upstream's, so no value may grow far beyond them. The tree of the
//! expression is judged when it is compiled: texts and lists are never joined or repeated. The few filters that copy
//! draw on a budget. The language has no loops, so time is bounded by the expression's length and the values' size.

mod filters;
mod language;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};

use crate::call::{CacheWhen, JsonObject, ToolResult};

/// What an expression may name.
const NAMES: [&str; 2] = ["args", "result"];
/// Longest expression, in bytes: a condition, not a program.
const LONGEST: usize = 4096;
/// Instructions of one evaluation, should the language ever learn to loop: more than the longest expression has.
const FUEL: u64 = 50_000;
/// minijinja's own name for the one template an environment has here.
const ONLY: &str = "when";

/// Compiles an expression. `result` is the structured content if there is one, else the text.
///
/// # Errors
/// A sentence: what cannot be read or is not there, and what is.
pub fn compile(text: &str) -> Result<CacheWhen, String> {
    let environment = environment(text)?;
    let holds = move |arguments: &JsonObject, result: &ToolResult| {
        let result = match &result.structured_content {
            Some(value) => Value::from(Serde(value)),
            None => Value::from(result.as_text()),
        };
        let names = context! { args => Value::from(Serde(arguments)), result => result };
        let template = environment.get_template(ONLY).map_err(|error| error.to_string())?;
        template.render(names).map(|said| !said.is_empty()).map_err(|error| error.to_string())
    };
    Ok(CacheWhen::expression(text, holds))
}

fn environment(text: &str) -> Result<Environment<'static>, String> {
    if text.len() > LONGEST {
        return Err(format!("an expression has at most {LONGEST} bytes"));
    }
    // Before anything is compiled: the compiler works out constants, such as a text times a large number.
    language::check(text)?;
    let mut environment = Environment::empty();
    filters::add(&mut environment);
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    environment.compile_expression(text).map(drop).map_err(|error| language::no_expression(&error))?;
    // An expression borrows its environment; a template lives in it, and both can be kept together. What is an
    // expression can end no block.
    let template = format!("{{% if ({text}) %}}yes{{% endif %}}");
    environment.add_template_owned(ONLY, template).map_err(|error| error.to_string())?;
    Ok(environment)
}

#[cfg(test)]
mod tests;
