//! `cache.when`: an expression over `args` and `result` in Jinja's language, compiled once.
//!
//! It sees nothing else: no functions, no templates, no files, no environment. It has no loops, so it costs what its
//! length and the result's size cost. What has no value is false rather than an error, so that
//! `result.temperature > 0` may be asked of any result.

use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

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
    let mut environment = Environment::new();
    let globals: Vec<String> = environment.globals().map(|(name, _)| name.to_owned()).collect();
    globals.iter().for_each(|name| environment.remove_global(name));
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    let parsed = environment.compile_expression(text).map_err(|error| {
        let why = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        format!("not an expression: {why}; one is, e.g. `result.temperature is defined`")
    })?;
    let mut unknown: Vec<String> = parsed.undeclared_variables(false).into_iter().collect();
    unknown.retain(|name| !NAMES.contains(&name.as_str()));
    unknown.sort_unstable();
    if let Some(name) = unknown.first() {
        return Err(format!("there is no `{name}`: an expression knows {}", NAMES.join(" and ")));
    }
    drop(parsed);
    for called in called(text) {
        check(&environment, &called)?;
    }
    // An expression borrows its environment; a template lives in it, and both can be kept together. What is an
    // expression can end no block.
    let template = format!("{{% if ({text}) %}}yes{{% endif %}}");
    environment.add_template_owned(ONLY, template).map_err(|error| error.to_string())?;
    Ok(environment)
}

/// A name that minijinja looks up only when the expression is evaluated.
#[derive(Debug, PartialEq)]
enum Called<'a> {
    Filter(&'a str),
    Test(&'a str),
    Method(&'a str),
}

/// Whether there is such a filter or test; asked by using it.
fn check(environment: &Environment<'_>, called: &Called<'_>) -> Result<(), String> {
    let (probe, missing, what) = match called {
        Called::Filter(name) => (format!("none|{name}"), ErrorKind::UnknownFilter, format!("filter `{name}`")),
        Called::Test(name) => (format!("none is {name}"), ErrorKind::UnknownTest, format!("test `{name}`")),
        Called::Method(name) => return Err(format!("values have no methods, and so no `{name}()`: use a filter")),
    };
    let used = environment.compile_expression(&probe).and_then(|probe| probe.eval(()));
    match used {
        Err(error) if error.kind() == missing => {
            Err(format!("there is no {what} (minijinja.rs lists those there are)"))
        }
        _ => Ok(()),
    }
}

/// Filters (`x|name`), tests (`x is not name`) and methods (`x.name(…)`) of an expression that parses.
fn called(text: &str) -> Vec<Called<'_>> {
    let tokens = tokens(text);
    let at = |at: usize| tokens.get(at).copied().unwrap_or_default();
    let mut found = Vec::new();
    for (here, token) in tokens.iter().enumerate() {
        match *token {
            "|" if is_name(at(here + 1)) => found.push(Called::Filter(at(here + 1))),
            "is" if here > 0 && at(here - 1) != "." => {
                let name = if at(here + 1) == "not" { at(here + 2) } else { at(here + 1) };
                found.extend(is_name(name).then_some(Called::Test(name)));
            }
            "." if is_name(at(here + 1)) && at(here + 2) == "(" => found.push(Called::Method(at(here + 1))),
            _ => {}
        }
    }
    found
}

/// Words, texts in quotes, and single characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' => quoted(rest, first),
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}

/// Length of the quoted text that `rest` begins with.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + quote.len_utf8())
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| word(c) && !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn holds(text: &str, result: Json) -> Result<bool, String> {
        let arguments = json!({"city": "Oslo", "days": 3});
        compile(text).unwrap().holds(arguments.as_object().unwrap(), &ToolResult::json(result))
    }

    #[test]
    fn a_condition_is_about_arguments_and_result() {
        let weather =
            json!({"temperature": 0, "place": {"name": "Oslo"}, "list": [1, 2], "id": 9_007_199_254_740_993_u64});
        for (text, keeps) in [
            ("result.temperature is defined", true),
            ("result.temprature is defined", false),
            ("result.temperature", false),
            ("result.temperature == 0 and result.place.name == args.city", true),
            ("result.no.such.thing > 3", false),
            ("result.list|length == 2", true),
            ("result['list'][1] == 2 and 2 in result.list", true),
            ("result.id == 9007199254740993 and result.id != 9007199254740992", true),
            ("args.days is not number", false),
            ("not args.nothing", true),
            ("'%} is|no(' != result.place.name", true),
            ("true", true),
        ] {
            assert_eq!(holds(text, weather.clone()), Ok(keeps), "{text}");
        }
        assert_eq!(holds("result is string and 'sun' in result", json!("a sunny day")), Ok(true));
        assert_eq!(holds("result.temperature is defined", json!("a text has no fields")), Ok(false));
        assert_eq!(holds("result", Json::Null), Ok(false));
    }

    #[test]
    fn what_is_no_condition_is_refused_with_what_there_is() {
        for (text, says) in [
            ("", "not an expression"),
            ("result.", "not an expression"),
            ("result.temperature is", "not an expression"),
            ("true) %}{{ result }}{% if (true", "not an expression"),
            ("temperature > 3", "there is no `temperature`: an expression knows args and result"),
            ("range(3)", "there is no `range`"),
            ("debug()", "there is no `debug`"),
            ("result|lenght > 1", "there is no filter `lenght`"),
            ("result is not definde", "there is no test `definde`"),
            ("result.items()", "no methods"),
        ] {
            let said = compile(text).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
        assert!(compile(&format!("'{}' == result", "x".repeat(LONGEST))).is_err());
    }

    #[test]
    fn what_fails_says_why_and_grows_no_further_than_it_may() {
        let said = holds("result|abs > 1", json!({"a": 1})).unwrap_err();
        assert!(said.contains("abs"), "{said}");
        let most = ["result.a == 1"; 200].join(" and ");
        assert_eq!(holds(&most, json!({"a": 1})), Ok(true));
        assert!(holds("'x' * 1000000000000 == result", json!("x")).unwrap_err().contains("too large"));
        let deep = format!("{}result{}", "(".repeat(1000), ")".repeat(1000));
        assert!(compile(&deep).is_err());
    }

    #[test]
    fn words_in_quotes_are_no_names() {
        assert_eq!(
            called(r#"result|first is string and "a|b is c" != 'it\'s|d' and args.is"#),
            [Called::Filter("first"), Called::Test("string"),]
        );
    }
}
