//! Explains violations so that a model can correct them: the position, the expected value, and the
//! actual value.

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use serde_json::{Map, Value};

use super::fault::abbreviate;
use super::metered::is_examined;
use crate::call::json::children;
use crate::call::units::Count;
use crate::call::{Violation, json};
use crate::text::suggest;

/// Maximum number of names or options that are shown of a long list.
const MAX_LISTED: usize = 20;
/// Longest string that is quoted as a value that is none of the allowed ones, in bytes.
const MAX_SHORT_TEXT: usize = 40;
/// Bytes of all violations together. Beyond this, no further violation is explained.
const MAX_BYTES: usize = 64 << 10;

/// Collects violations in the order of their errors.
pub(super) struct ViolationCollector<'a> {
    schema: &'a Value,
    violations: Vec<Violation>,
    most: usize,
    bytes: usize,
}

impl<'a> ViolationCollector<'a> {
    /// Collects at most `most` violations of `schema`.
    pub(super) fn new(schema: &'a Value, most: usize) -> Self {
        Self {
            schema,
            violations: Vec::new(),
            most,
            bytes: 0,
        }
    }

    /// Whether no further violation is accepted.
    pub(super) fn is_full(&self) -> bool {
        self.violations.len() >= self.most || self.bytes > MAX_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.violations.is_empty()
    }

    pub(super) fn into_violations(self) -> Vec<Violation> {
        self.violations
    }

    fn push(&mut self, violation: Violation) {
        self.bytes += violation.pointer.len() + violation.message.len();
        self.violations.push(violation);
    }

    /// Adds the violations of one error. Each unexpected property is one violation. `quotes`: the
    /// value may be quoted.
    pub(super) fn add_error(&mut self, error: &ValidationError<'_>, quotes: bool) {
        let schema = self.schema;
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
                let pointer = format!("{at}/{}", json::escape_pointer_token(name));
                let message = format!(
                    "{} is required{}.",
                    describe_position(&pointer),
                    describe_property(error, schema, name)
                );
                self.push(violation(pointer, message));
            }
            Kind::AdditionalProperties { unexpected }
            | Kind::UnevaluatedProperties { unexpected } => {
                let known = known_properties(error, schema).into_iter().flatten();
                let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
                for name in unexpected {
                    if self.is_full() {
                        break;
                    }
                    let pointer = format!("{at}/{}", json::escape_pointer_token(name));
                    let hint = match suggest::near_name(name, known.iter().copied()) {
                        Some(near) => format!("; did you mean `{near}`?"),
                        None if known.is_empty() => "; it takes none.".into(),
                        None => format!(
                            "; there are: {}.",
                            list_first(known.iter().map(|name| (*name).to_owned()))
                        ),
                    };
                    let message =
                        format!("{} is not a parameter{hint}", describe_position(&pointer));
                    self.push(violation(pointer, message));
                }
            }
            _ => {
                let message = format!(
                    "{} {}.",
                    describe_position(&at),
                    describe_demand(error, quotes)
                );
                self.push(violation(at, message));
            }
        }
    }
}

/// A violation of a value for which no error could be kept.
pub(super) fn unexplained() -> Violation {
    let message = format!("{} does not fit the schema.", describe_position(""));
    Violation {
        message,
        ..Violation::default()
    }
}

/// A violation for a value that takes too long to check. `what` describes the value.
pub fn too_costly(what: &str) -> Violation {
    let message =
        format!("{what} takes too much work to check against the schema; send less at once.");
    Violation {
        message,
        ..Violation::default()
    }
}

fn count_properties(number: u64) -> String {
    if number == 1 {
        "1 property".to_owned()
    } else {
        format!("{number} properties")
    }
}

/// The first entries of a list as text, and the number of all entries.
fn list_first(all: impl ExactSizeIterator<Item = String>) -> String {
    let count = all.len();
    let mut words: Vec<String> = all.take(MAX_LISTED).map(|word| abbreviate(&word)).collect();
    if count > words.len() {
        words.push(format!("… ({count} in all)"));
    }
    words.join(", ")
}

/// The position as text: `days`, `tags.1`, or the whole object.
fn describe_position(pointer: &str) -> String {
    if pointer.is_empty() {
        return "the arguments object".into();
    }
    let path: Vec<String> = json::parse_pointer(pointer).collect();
    format!("`{}`", abbreviate(&path.join(".")))
}

/// What the value must be, and what it is.
fn describe_demand(error: &ValidationError<'_>, quotes: bool) -> String {
    let found = error.instance();
    let is = describe_value(found, quotes);
    let (parts, items) = (|| children(found).count(), |limit| Count(limit, "item"));
    match error.kind() {
        Kind::Type { kind } => format!("must be {}, not {is}", describe_types(kind)),
        Kind::Enum { options } => {
            let is = short_text(found).filter(|_| quotes).unwrap_or(is);
            format!("must be one of {}, not {is}", describe_options(options))
        }
        Kind::Constant { expected_value } => format!(
            "must be {}, not {is}",
            abbreviate(&expected_value.to_string())
        ),
        Kind::Minimum { limit } => format!("must be at least {limit}, not {is}"),
        Kind::Maximum { limit } => format!("must be at most {limit}, not {is}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}, not {is}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}, not {is}"),
        Kind::MultipleOf { multiple_of } => {
            format!("must be a multiple of {multiple_of}, not {is}")
        }
        Kind::MinLength { limit } => format!("must have at least {}", Count(*limit, "character")),
        Kind::MaxLength { limit } => format!("must have at most {}", Count(*limit, "character")),
        Kind::MinItems { limit } => {
            format!("must have at least {}, not {}", items(*limit), parts())
        }
        Kind::MaxItems { limit } => format!("must have at most {}, not {}", items(*limit), parts()),
        Kind::MinProperties { limit } => {
            format!(
                "must have at least {}, not {}",
                count_properties(*limit),
                parts()
            )
        }
        Kind::MaxProperties { limit } => {
            format!(
                "must have at most {}, not {}",
                count_properties(*limit),
                parts()
            )
        }
        Kind::UniqueItems => "must not hold the same item twice".into(),
        Kind::Pattern { pattern } => format!("must match the pattern {}", abbreviate(pattern)),
        Kind::Format { format } => format!("must be a valid {format}"),
        Kind::Contains => "must contain an item of the described form".into(),
        Kind::FalseSchema => "is not allowed here".into(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let first = context.iter().take(3).filter_map(|branch| branch.first());
            let first = first.filter(|error| is_examined(error.instance()));
            let forms: Vec<String> = first
                .map(|error| format!("it {}", describe_demand(error, quotes)))
                .collect();
            match forms.join("; or ") {
                forms if forms.is_empty() => "fits none of the allowed forms".into(),
                forms => format!("fits none of the allowed forms ({forms})"),
            }
        }
        Kind::OneOfMultipleValid { .. } => {
            "fits more than one of the allowed forms; it must fit exactly one".into()
        }
        Kind::Custom { message, .. } => message.clone(),
        // The other kinds are rare. The library's message is good, and it masks the value.
        _ => error.masked().to_string(),
    }
}

fn describe_types(kind: &TypeKind) -> String {
    let article = |name: &str| match name {
        "integer" | "object" | "array" => format!("an {name}"),
        "null" => name.to_owned(),
        _ => format!("a {name}"),
    };
    match kind {
        TypeKind::Single(one) => article(&one.to_string()),
        TypeKind::Multiple(many) => many
            .iter()
            .map(|one| article(&one.to_string()))
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

/// Numbers, booleans and null are quoted, because that helps. Strings are not quoted, because they
/// may contain anything.
fn describe_value(value: &Value, quotes: bool) -> String {
    match value {
        Value::Number(_) if !quotes => "this number".into(),
        Value::Bool(_) if !quotes => "this boolean".into(),
        Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
        Value::String(_) => "this string".into(),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// A short string without control characters, quoted. Beside the allowed words it shows the slip.
fn short_text(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let is_short = text.len() <= MAX_SHORT_TEXT && !text.contains(char::is_control);
    is_short.then(|| value.to_string())
}

fn describe_options(options: &Value) -> String {
    let list = options.as_array().map(Vec::as_slice).unwrap_or_default();
    list_first(list.iter().map(Value::to_string))
}

/// The properties of the schema that contains the violated keyword.
fn known_properties<'a>(
    error: &ValidationError<'_>,
    schema: &'a Value,
) -> Option<&'a Map<String, Value>> {
    let path = error.schema_path().to_string();
    let (holder, _) = path.rsplit_once('/')?;
    schema.pointer(holder)?.get("properties")?.as_object()
}

/// The type and description of a missing property.
fn describe_property(error: &ValidationError<'_>, schema: &Value, name: &str) -> String {
    let property = known_properties(error, schema).and_then(|all| all.get(name));
    let text = |keyword: &str| property.and_then(|property| property.get(keyword)?.as_str());
    let (kind, description) = (text("type"), text("description"));
    match (kind, description) {
        (Some(kind), Some(text)) => {
            format!(" ({kind}: {})", abbreviate(text.trim_end_matches('.')))
        }
        (Some(kind), None) => format!(" ({kind})"),
        (None, Some(text)) => format!(" ({})", abbreviate(text.trim_end_matches('.'))),
        (None, None) => String::new(),
    }
}
