//! The filters and tests of expressions. Most return a number, a boolean or a part of their input.
//!
//! Filters that copy text or lists (`lower`, `map`, …) share a budget for the whole evaluation.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters, tests};

/// Names of all filters.
#[rustfmt::skip]
pub(super) const FILTERS: &[&str] = &[
    "abs", "attr", "bool", "count", "d", "default", "first", "float", "int", "last", "length", "lower", "map", "max",
    "min", "reject", "rejectattr", "round", "select", "selectattr", "string", "sum", "trim", "upper",
];
/// The filters that return a number or fail, if they have no arguments.
pub(super) const NUMERIC: &[&str] = &["abs", "count", "float", "int", "length", "round", "sum"];
/// Names of all tests.
#[rustfmt::skip]
pub(super) const TESTS: &[&str] = &[
    "!=", "<", "<=", "==", ">", ">=", "boolean", "defined", "divisibleby", "endingwith", "eq", "equalto", "even",
    "false", "float", "ge", "greaterthan", "gt", "in", "int", "integer", "iterable", "le", "lessthan", "lower", "lt",
    "mapping", "ne", "none", "number", "odd", "sameas", "sequence", "startingwith", "string", "true", "undefined",
    "upper",
];

/// The budget of one evaluation for all copies, in bytes: several copies of the largest result (4
/// MiB).
const MAX_COPIED_BYTES: usize = 32 << 20;
/// The key of the used budget in the state of an evaluation. No expression can contain this name.
const SPENT_KEY: &str = "bytes copied";

/// Adds all filters and tests.
pub(super) fn add_all(environment: &mut Environment<'_>) {
    add_filters(environment);
    add_tests(environment);
}

fn add_filters(environment: &mut Environment<'_>) {
    environment.add_filter("abs", filters::abs);
    environment.add_filter("attr", filters::attr);
    environment.add_filter("bool", filters::bool);
    environment.add_filter("count", filters::length);
    environment.add_filter("d", filters::default);
    environment.add_filter("default", filters::default);
    environment.add_filter("first", filters::first);
    environment.add_filter("float", filters::float);
    environment.add_filter("int", filters::int);
    environment.add_filter("last", filters::last);
    environment.add_filter("length", filters::length);
    environment.add_filter("max", filters::max);
    environment.add_filter("min", filters::min);
    environment.add_filter("round", filters::round);
    environment.add_filter("string", to_text);
    environment.add_filter("sum", sum_numbers);
    environment.add_filter("lower", |state: &mut State<'_, '_>, value: &Value| {
        copy_text(state, value, str::to_lowercase)
    });
    environment.add_filter("upper", |state: &mut State<'_, '_>, value: &Value| {
        copy_text(state, value, str::to_uppercase)
    });
    environment.add_filter("trim", |state: &mut State<'_, '_>, value: &Value| {
        copy_text(state, value, |text| text.trim().to_owned())
    });
    environment.add_filter(
        "map",
        |state: &mut State<'_, '_>, value: Value, rest: Rest<_>| {
            spend_items(state, &value)?;
            filters::map(state, value, rest)
        },
    );
    environment.add_filter(
        "select",
        |state: &mut State<'_, '_>, value: Value, test: Option<Cow<'_, str>>, rest: Rest<_>| {
            spend_items(state, &value)?;
            filters::select(state, value, test, rest)
        },
    );
    environment.add_filter(
        "reject",
        |state: &mut State<'_, '_>, value: Value, test: Option<Cow<'_, str>>, rest: Rest<_>| {
            spend_items(state, &value)?;
            filters::reject(state, value, test, rest)
        },
    );
    environment.add_filter(
        "selectattr",
        |state: &mut State<'_, '_>,
         value: Value,
         name: Cow<'_, str>,
         test: Option<Cow<'_, str>>,
         rest: Rest<_>| {
            spend_items(state, &value)?;
            filters::selectattr(state, value, name, test, rest)
        },
    );
    environment.add_filter(
        "rejectattr",
        |state: &mut State<'_, '_>,
         value: Value,
         name: Cow<'_, str>,
         test: Option<Cow<'_, str>>,
         rest: Rest<_>| {
            spend_items(state, &value)?;
            filters::rejectattr(state, value, name, test, rest)
        },
    );
}

fn add_tests(environment: &mut Environment<'_>) {
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("none", tests::is_none);
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("even", tests::is_even);
    environment.add_test("divisibleby", tests::is_divisibleby);
    environment.add_test("number", tests::is_number);
    environment.add_test("integer", tests::is_integer);
    environment.add_test("int", tests::is_integer);
    environment.add_test("float", tests::is_float);
    environment.add_test("string", tests::is_string);
    environment.add_test("sequence", tests::is_sequence);
    environment.add_test("iterable", tests::is_iterable);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("startingwith", tests::is_startingwith);
    environment.add_test("endingwith", tests::is_endingwith);
    environment.add_test("lower", tests::is_lower);
    environment.add_test("upper", tests::is_upper);
    environment.add_test("sameas", tests::is_sameas);
    environment.add_test("in", tests::is_in);
    environment.add_test("true", tests::is_true);
    environment.add_test("false", tests::is_false);
    for name in ["eq", "equalto", "=="] {
        environment.add_test(name, tests::is_eq);
    }
    for name in ["ne", "!="] {
        environment.add_test(name, tests::is_ne);
    }
    for name in ["lt", "lessthan", "<"] {
        environment.add_test(name, tests::is_lt);
    }
    for name in ["le", "<="] {
        environment.add_test(name, tests::is_le);
    }
    for name in ["gt", "greaterthan", ">"] {
        environment.add_test(name, tests::is_gt);
    }
    for name in ["ge", ">="] {
        environment.add_test(name, tests::is_ge);
    }
}

/// A changed copy of a text. An undefined value counts as an empty text, as everywhere in
/// expressions.
fn copy_text(
    state: &mut State<'_, '_>,
    value: &Value,
    change: fn(&str) -> String,
) -> Result<String, Error> {
    if value.is_undefined() {
        return Ok(String::new());
    }
    let text = value.as_str().ok_or_else(|| type_error("a text", value))?;
    spend_bytes(state, text.len())?;
    Ok(change(text))
}

/// A number or boolean as text. That is enough to compare it with a text.
fn to_text(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.clone()),
        ValueKind::Bool | ValueKind::Number => Ok(Value::from(value.to_string())),
        _ => Err(type_error("a text, a number or a boolean", value)),
    }
}

/// The sum of a list of numbers. The filter of minijinja would also join texts and lists.
fn sum_numbers(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    if let Some(item) = value.try_iter()?.find(|item| !item.is_number()) {
        return Err(type_error("a list of numbers", &item));
    }
    filters::sum(
        state,
        value,
        None,
        None,
        Kwargs::from_iter(std::iter::empty::<(String, Value)>()),
    )
}

fn type_error(expected: &str, found: &Value) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("the filter takes {expected}, not {}", found.kind()),
    )
}

/// Charges the budget for a list with an entry for each item.
fn spend_items(state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    spend_bytes(
        state,
        value.len().unwrap_or(0).saturating_mul(size_of::<Value>()),
    )
}

fn spend_bytes(state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
    let before = state
        .get_temp(SPENT_KEY)
        .and_then(|spent| spent.as_usize())
        .unwrap_or(0);
    let spent = before.saturating_add(bytes);
    if spent > MAX_COPIED_BYTES {
        let message = format!("the filters of an expression copy at most {MAX_COPIED_BYTES} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    state.set_temp(SPENT_KEY, Value::from(spent));
    Ok(())
}
