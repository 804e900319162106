//! Saying what is wrong with a value so that a model can put it right: which place, what was expected, what is there.

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

use crate::call::{Violation, json};
use crate::similar;

/// The violations behind one error: unexpected properties are one each. `quotes`: the value may be repeated.
pub(super) fn explain(error: &ValidationError<'_>, schema: &Value, quotes: bool) -> Vec<Violation> {
    let at = error.instance_path().to_string();
    let violation = |pointer: String, message: String| Violation {
        keyword: error.kind().keyword().to_owned(),
        schema_pointer: error.schema_path().to_string(),
        pointer,
        message,
    };
    match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let pointer = format!("{at}/{}", json::pointer_token(name));
            let message = format!("{} is required{}.", label(&pointer), expected(error, schema, name));
            vec![violation(pointer, message)]
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known = known_properties(error, schema);
            let explain_one = |name: &String| {
                let pointer = format!("{at}/{}", json::pointer_token(name));
                let hint = match similar::closest(name, known.iter().map(String::as_str), similar::HINT) {
                    Some(near) => format!("; did you mean `{near}`?"),
                    None if known.is_empty() => "; it takes none.".into(),
                    None => format!("; there are: {}.", known.join(", ")),
                };
                violation(pointer.clone(), format!("{} is not a parameter{hint}", label(&pointer)))
            };
            unexpected.iter().take(super::compiled::MAX_VIOLATIONS).map(explain_one).collect()
        }
        _ => {
            let message = format!("{} {}.", label(&at), demand(error, quotes));
            vec![violation(at, message)]
        }
    }
}

/// The place in words: `days`, `tags.1`, or the whole.
fn label(pointer: &str) -> String {
    if pointer.is_empty() {
        return "the arguments object".into();
    }
    let path: Vec<String> = json::pointer_tokens(pointer).collect();
    format!("`{}`", path.join("."))
}

/// What the value must be, and what it is.
fn demand(error: &ValidationError<'_>, quotes: bool) -> String {
    let found = error.instance();
    let is = found_in_words(found, quotes);
    match error.kind() {
        Kind::Type { kind } => format!("must be {}, not {is}", types(kind)),
        Kind::Enum { options } => format!("must be one of {}, not {is}", options_in_words(options)),
        Kind::Constant { expected_value } => format!("must be {expected_value}, not {is}"),
        Kind::Minimum { limit } => format!("must be at least {limit}, not {is}"),
        Kind::Maximum { limit } => format!("must be at most {limit}, not {is}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}, not {is}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}, not {is}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}, not {is}"),
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit } => format!("must have at least {limit} items, not {}", length(found)),
        Kind::MaxItems { limit } => format!("must have at most {limit} items, not {}", length(found)),
        Kind::MinProperties { limit } => format!("must have at least {limit} properties, not {}", length(found)),
        Kind::MaxProperties { limit } => format!("must have at most {limit} properties, not {}", length(found)),
        Kind::UniqueItems => "must not hold the same item twice".into(),
        Kind::Pattern { pattern } => format!("must match the pattern {pattern}"),
        Kind::Format { format } => format!("must be a valid {format}"),
        Kind::Contains => "must contain an item of the described form".into(),
        Kind::FalseSchema => "is not allowed here".into(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let first = context.iter().take(3).filter_map(|branch| branch.first());
            let forms: Vec<String> = first.map(|error| format!("it {}", demand(error, quotes))).collect();
            format!("fits none of the allowed forms ({})", forms.join("; or "))
        }
        Kind::OneOfMultipleValid { .. } => "fits more than one of the allowed forms; it must fit exactly one".into(),
        // The rest is rare; the library's own words are good, and the value is left out of them.
        _ => error.masked().to_string(),
    }
}

fn types(kind: &TypeKind) -> String {
    let article = |name: &str| match name {
        "integer" | "object" | "array" => format!("an {name}"),
        "null" => name.to_owned(),
        _ => format!("a {name}"),
    };
    match kind {
        TypeKind::Single(one) => article(&one.to_string()),
        TypeKind::Multiple(many) => many.iter().map(|one| article(&one.to_string())).collect::<Vec<_>>().join(" or "),
    }
}

/// Short scalars are repeated, since they help; texts are not, since they may be anything.
fn found_in_words(value: &Value, quotes: bool) -> String {
    match value {
        Value::Number(_) if !quotes => "this number".into(),
        Value::Bool(_) if !quotes => "this boolean".into(),
        Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
        Value::String(_) => "this string".into(),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

fn options_in_words(options: &Value) -> String {
    let list = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut words: Vec<String> = list.iter().take(20).map(Value::to_string).collect();
    if list.len() > words.len() {
        words.push(format!("… ({} in all)", list.len()));
    }
    words.join(", ")
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(object) => object.len(),
        _ => 0,
    }
}

/// The schema object that holds the broken keyword.
fn holder<'a>(error: &ValidationError<'_>, schema: &'a Value) -> Option<&'a Value> {
    let path = error.schema_path().to_string();
    let (parent, _) = path.rsplit_once('/')?;
    schema.pointer(parent)
}

fn known_properties(error: &ValidationError<'_>, schema: &Value) -> Vec<String> {
    let properties = holder(error, schema).and_then(|holder| holder.get("properties")).and_then(Value::as_object);
    properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

/// What a missing property should be: its type and description.
fn expected(error: &ValidationError<'_>, schema: &Value, name: &str) -> String {
    let property = holder(error, schema).and_then(|holder| holder.get("properties")).and_then(|p| p.get(name));
    let kind = property.and_then(|property| property.get("type")).and_then(Value::as_str);
    let description = property.and_then(|property| property.get("description")).and_then(Value::as_str);
    match (kind, description) {
        (Some(kind), Some(text)) => format!(" ({kind}: {})", text.trim_end_matches('.')),
        (Some(kind), None) => format!(" ({kind})"),
        (None, Some(text)) => format!(" ({})", text.trim_end_matches('.')),
        (None, None) => String::new(),
    }
}
