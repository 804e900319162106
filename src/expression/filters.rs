//! The filters and tests of expressions. Most return a number, a boolean or a part of their input.
//!
//! Filters that copy text or lists (`lower`, `map`, …) share a budget for the whole evaluation.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

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

/// Replaces the filters that build more than their input. Expressions cannot name a filter of minijinja
/// that is not in [`FILTERS`].
pub(super) fn replace_filters(environment: &mut Environment<'_>) {
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
        |state: &mut State<'_, '_>, value: Value, rest: Rest<ValueOrKwargs>| {
            let filter = rest.first().and_then(|name| name.as_str());
            check_name(filter, FILTERS, ErrorKind::UnknownFilter)?;
            spend_items(state, &value)?;
            filters::map(state, value, rest)
        },
    );
    environment.add_filter(
        "select",
        |state: &mut State<'_, '_>, value: Value, test: Option<Cow<'_, str>>, rest: Rest<_>| {
            spend_tested_items(state, &value, test.as_deref())?;
            filters::select(state, value, test, rest)
        },
    );
    environment.add_filter(
        "reject",
        |state: &mut State<'_, '_>, value: Value, test: Option<Cow<'_, str>>, rest: Rest<_>| {
            spend_tested_items(state, &value, test.as_deref())?;
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
            spend_tested_items(state, &value, test.as_deref())?;
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
            spend_tested_items(state, &value, test.as_deref())?;
            filters::rejectattr(state, value, name, test, rest)
        },
    );
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

/// Refuses the name of a filter or test in an argument, which the check of the syntax does not see.
fn check_name(name: Option<&str>, known: &[&str], unknown: ErrorKind) -> Result<(), Error> {
    match name.is_none_or(|name| known.contains(&name)) {
        true => Ok(()),
        false => Err(unknown.into()),
    }
}

/// [`spend_items`] for a list whose items the named test chooses.
fn spend_tested_items(
    state: &mut State<'_, '_>,
    value: &Value,
    test: Option<&str>,
) -> Result<(), Error> {
    check_name(test, TESTS, ErrorKind::UnknownTest)?;
    spend_items(state, value)
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
