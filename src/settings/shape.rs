//! Compares a value with the JSON Schema of a settings type.
//!
//! This reads what schemars makes of a type, not every schema. A keyword that it does not know
//! allows every value: the reader of the type decides then.

use serde_json::{Map, Value};

use super::fault::{SettingFault, SettingFaultKind};
use super::flow::{abbreviate, to_flow};
use super::unknown_key::{suggests_key, unknown_key_message};
use crate::call::units::{HumanDuration, Size};
use crate::text::suggest;

/// Maximum number of faults of one value. Registered tools are read by the same code.
const MAX_FAULTS: usize = 100;
/// Maximum depth of a value, which bounds the stack.
const MAX_DEPTH: usize = 32;

/// Definitions whose values have a reader with words of its own.
const OWN_READERS: [&str; 3] = ["Duration", "Size", "CommandItem"];

/// All faults of a value, in its order.
pub(super) fn find_faults(schema: &Value, value: &Value) -> Vec<SettingFault> {
    let mut check = Check {
        root: schema,
        path: Vec::new(),
        faults: Vec::new(),
    };
    check.value(&Expected::new(schema, schema), value);
    check.faults
}

/// What a schema expects at one position.
struct Expected<'s> {
    /// The alternatives, without null.
    options: Vec<Alternative<'s>>,
    /// Whether the key may be there without a value.
    allows_null: bool,
    /// An example of the right form.
    example: Option<Value>,
}

/// One alternative of a schema.
struct Alternative<'s> {
    /// The name of its definition.
    name: &'s str,
    schema: &'s Value,
}

impl<'s> Expected<'s> {
    fn new(root: &'s Value, schema: &'s Value) -> Self {
        let mut expected = Self {
            options: Vec::new(),
            allows_null: false,
            example: schema.pointer("/examples/0").cloned(),
        };
        expected.add(root, schema, "", 0);
        if expected.example.is_none() {
            let first = expected.options.first();
            expected.example = first.and_then(|option| option.example(root));
        }
        expected
    }

    fn add(&mut self, root: &'s Value, schema: &'s Value, name: &'s str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = reference
                .strip_prefix('#')
                .and_then(|pointer| root.pointer(pointer));
            let name = reference.rsplit('/').next().unwrap_or_default();
            match target {
                Some(schema) if OWN_READERS.contains(&name) => {
                    self.options.push(Alternative { name, schema });
                }
                Some(schema) => self.add(root, schema, name, depth + 1),
                None => {}
            }
            return;
        }
        if let Some(options) = schema.get("anyOf").and_then(Value::as_array) {
            for option in options {
                self.add(root, option, "", depth + 1);
            }
            return;
        }
        let kinds = schema.get("type");
        if kinds.is_some_and(|kind| kind == "null") {
            self.allows_null = true;
            return;
        }
        let kinds = kinds.and_then(Value::as_array);
        self.allows_null |= kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
        self.options.push(Alternative { name, schema });
    }
}

impl<'s> Alternative<'s> {
    /// Its JSON type; `None` if it allows every type.
    fn kind(&self) -> Option<&'s str> {
        let kind = self.schema.get("type")?;
        let kinds = kind
            .as_array()
            .map_or(std::slice::from_ref(kind), Vec::as_slice);
        kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null")
    }

    /// The words, if it is one of several words.
    fn words(&self) -> Option<Vec<&'s str>> {
        if let Some(words) = self.schema.get("enum").and_then(Value::as_array) {
            return Some(words.iter().filter_map(Value::as_str).collect());
        }
        let options = self.schema.get("oneOf")?.as_array()?.iter();
        let words: Vec<&str> = options
            .filter_map(|option| option.get("const")?.as_str())
            .collect();
        Some(words).filter(|words| !words.is_empty())
    }

    fn properties(&self) -> Option<&'s Map<String, Value>> {
        self.schema.get("properties").and_then(Value::as_object)
    }

    fn required(&self) -> Vec<&'s str> {
        let required = self.schema.get("required").and_then(Value::as_array);
        required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    fn takes_type_of(&self, value: &Value) -> bool {
        match self.kind() {
            // Beside words there may be a map, such as `output: {file: PATH}`.
            None => self.words().is_none() || value.is_string() || value.is_object(),
            Some("integer" | "number") => value.is_number(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("array") => value.is_array(),
            Some("object") => value.is_object(),
            Some(_) => true,
        }
    }

    /// An example made of those of its required keys, or of its first key.
    fn example(&self, root: &'s Value) -> Option<Value> {
        if let Some(words) = self.words() {
            return words.first().map(|word| Value::from(*word));
        }
        let properties = self.properties()?;
        let mut keys = self.required();
        if keys.is_empty() {
            keys.push(properties.keys().next()?);
        }
        let entry = |key: &str| {
            let example = Expected::new(root, properties.get(key)?).example?;
            Some((key.to_owned(), example))
        };
        let example: Option<Map<_, _>> = keys.into_iter().map(entry).collect();
        example.map(Value::Object)
    }
}

struct Check<'s> {
    root: &'s Value,
    path: Vec<String>,
    faults: Vec<SettingFault>,
}

impl<'s> Check<'s> {
    fn fault(&mut self, message: impl Into<String>) {
        self.fault_at(None, SettingFaultKind::Value, message.into());
    }

    /// Adds a fault of the value, or of a key in it.
    fn fault_at(&mut self, key: Option<&str>, kind: SettingFaultKind, message: String) {
        if self.faults.len() < MAX_FAULTS {
            let key = key.map(str::to_owned);
            self.faults.push(SettingFault {
                path: self.path.iter().cloned().chain(key).collect(),
                message,
                kind,
            });
        }
    }

    /// Checks the value at a key or position.
    fn below(&mut self, token: String, schema: &'s Value, value: &Value) {
        self.path.push(token);
        if self.path.len() < MAX_DEPTH {
            self.value(&Expected::new(self.root, schema), value);
        }
        self.path.pop();
    }

    fn value(&mut self, expected: &Expected<'s>, value: &Value) {
        if value.is_null() && expected.allows_null {
            return;
        }
        let mut options = expected.options.iter();
        let fitting = options.find(|option| option.takes_type_of(value));
        let Some(option) = fitting.or(expected.options.first()) else {
            return;
        };
        // A reader of its own has the better words, also for values of other types.
        let text = || value.as_str().map_or_else(|| to_flow(value), str::to_owned);
        let own_fault = match option.name {
            "Duration" => HumanDuration::parse(&text()).err(),
            "Size" => Size::parse(&text()).err(),
            "CommandItem" => None,
            _ => return self.fitting_value(expected, option, fitting.is_some(), value),
        };
        own_fault
            .into_iter()
            .for_each(|message| self.fault(message));
    }

    fn fitting_value(
        &mut self,
        expected: &Expected<'s>,
        option: &Alternative<'s>,
        fits_type: bool,
        value: &Value,
    ) {
        if !fits_type {
            let message = self.wrong_type_message(expected, option, value);
            let has_keys = |option: &Alternative<'_>| option.properties().is_some();
            let kind = match value.is_array() && expected.options.iter().any(has_keys) {
                true => SettingFaultKind::ListForMap,
                false => SettingFaultKind::Value,
            };
            return self.fault_at(None, kind, message);
        }
        match (option.words(), value) {
            (Some(words), Value::String(word)) if !words.contains(&word.as_str()) => {
                let known = words.iter().copied();
                self.fault(
                    match suggest::closest_name(word, known, suggest::MIN_HINT_RATIO) {
                        Some(near) => format!("`{word}` is not known here, did you mean {near}?"),
                        None => {
                            format!("`{word}` is not known here; there are {}", words.join(", "))
                        }
                    },
                );
            }
            (_, Value::Object(entries)) => self.entries(option, entries),
            (_, Value::Array(items)) => {
                let Some(schema) = option.schema.get("items") else {
                    return;
                };
                for (at, item) in items.iter().enumerate() {
                    self.below(at.to_string(), schema, item);
                }
            }
            (_, Value::Number(_)) => self.number(expected, option, value),
            _ => {}
        }
    }

    fn entries(&mut self, option: &Alternative<'s>, entries: &Map<String, Value>) {
        let properties = option.properties();
        let others = option.schema.get("additionalProperties");
        let known = properties.into_iter().flat_map(Map::keys);
        let known: Vec<&str> = known.map(String::as_str).collect();
        // What the messages about unknown keys advise to write.
        let mut advice = Vec::new();
        for (key, value) in entries {
            let own = properties.and_then(|properties| properties.get(key));
            match (own.or(others.filter(|others| others.is_object())), others) {
                (Some(schema), _) => self.below(key.clone(), schema, value),
                (None, Some(Value::Bool(false))) => {
                    let message = unknown_key_message(key, &known);
                    advice.push(message.clone());
                    self.fault_at(Some(key), SettingFaultKind::UnknownKey, message);
                }
                _ => {}
            }
        }
        // A key that is there under another name is reported already.
        let is_absent = |key: &&str| {
            !entries.contains_key(*key) && !advice.iter().any(|message| suggests_key(message, key))
        };
        for key in option.required().into_iter().filter(is_absent) {
            let schema = properties.and_then(|properties| properties.get(key));
            let example = schema.and_then(|schema| Expected::new(self.root, schema).example);
            let example = example.map(|example| format!(", e.g. `{key}: {}`", to_flow(&example)));
            let message = format!("is missing{}", example.unwrap_or_default());
            self.fault_at(Some(key), SettingFaultKind::MissingKey, message);
        }
    }

    fn number(&mut self, expected: &Expected<'_>, option: &Alternative<'_>, value: &Value) {
        let least = option.schema.get("minimum").and_then(Value::as_f64);
        let is_uint32 = option
            .schema
            .get("format")
            .is_some_and(|format| format == "uint32");
        if option.kind() == Some("integer") && !value.is_i64() && !value.is_u64() {
            let example = expected.example.as_ref();
            let example = example.map(|example| format!(", e.g. {}", to_flow(example)));
            let example = example.unwrap_or_default();
            self.fault(format!("a whole number is expected here{example}"));
        } else if let (Some(least), Some(number)) = (least, value.as_f64())
            && number < least
        {
            self.fault(format!("{least} or more is expected here"));
        } else if is_uint32
            && value
                .as_u64()
                .is_none_or(|number| u32::try_from(number).is_err())
        {
            self.fault(format!("{} or less is expected here", u32::MAX));
        }
    }

    /// What is expected in place of a value of another type, and how to write this value.
    fn wrong_type_message(
        &self,
        expected: &Expected<'s>,
        option: &Alternative<'s>,
        value: &Value,
    ) -> String {
        // `yes` stands for true or false where that is one of the alternatives.
        let is_flag = |option: &&Alternative<'s>| {
            option.kind() == Some("boolean") && self.corrected(option, "boolean", value).is_some()
        };
        let option = expected.options.iter().find(is_flag).unwrap_or(option);
        let kind = option.kind().unwrap_or("string");
        let noun = match kind {
            "object" => "a map",
            "array" => "a list",
            "boolean" => "true or false",
            "integer" => "a whole number",
            "number" => "a number",
            _ if option.words().is_some() => "a word",
            _ => "a text",
        };
        let advice = match self.corrected(option, kind, value) {
            // The value may be a secret, so it is not shown.
            Some(Value::String(_)) => ": put the value in quotes".to_owned(),
            Some(right) if value.is_object() && self.is_at("env") => {
                let right = self.with_key(&right);
                format!(": write `{right}`; `environment` sets variables of a program")
            }
            Some(right) => format!(": write `{}`", self.with_key(&right)),
            None if kind == "object" && value.as_str().is_some_and(is_missing_space) => {
                let shown = abbreviate(value);
                format!("; a space is missing after the `:` in `{shown}`")
            }
            None => {
                let example = expected.example.as_ref();
                let example = example.map(|example| format!(", e.g. `{}`", self.with_key(example)));
                example.unwrap_or_default()
            }
        };
        let missing = if value.is_null() {
            "the value is missing: "
        } else {
            ""
        };
        format!("{missing}{noun} is expected here{advice}")
    }

    /// Whether the value is under this key.
    fn is_at(&self, key: &str) -> bool {
        self.path.last().is_some_and(|last| last == key)
    }

    /// The value in the right form, if it is obvious.
    fn corrected(&self, option: &Alternative<'s>, kind: &str, value: &Value) -> Option<Value> {
        let fits = |schema: &'s Value| {
            let mut check = Check {
                root: self.root,
                path: Vec::new(),
                faults: Vec::new(),
            };
            check.value(&Expected::new(self.root, schema), value);
            check.faults.is_empty()
        };
        match (kind, value) {
            ("string", Value::Number(_) | Value::Bool(_)) if option.words().is_none() => {
                Some(value.to_string().into())
            }
            ("boolean", Value::String(word)) => match word.to_lowercase().as_str() {
                "yes" | "on" | "true" | "1" => Some(true.into()),
                "no" | "off" | "false" | "0" => Some(false.into()),
                _ => None,
            },
            ("integer" | "number", Value::String(text)) => {
                let number: Value = serde_json::from_str(text.trim()).ok()?;
                (number.is_u64() || kind == "number" && number.is_number()).then_some(number)
            }
            ("array", Value::String(line)) if self.is_at("command") => {
                Some(line.split_whitespace().map(Value::from).collect())
            }
            ("array", Value::Object(map)) if self.is_at("env") => {
                let name = |key: &String| serde_json::json!({"name": key});
                let are_values = map.values().all(|value| !value.is_object());
                (!map.is_empty() && are_values).then(|| map.keys().map(name).collect())
            }
            ("array", _) => fits(option.schema.get("items")?).then(|| vec![value.clone()].into()),
            ("object", Value::Null | Value::Object(_) | Value::Array(_)) => None,
            ("object", _) if !value.as_str().is_some_and(is_missing_space) => {
                let [key] = option.required()[..] else {
                    return None;
                };
                let schema = option.properties()?.get(key)?;
                fits(schema).then(|| serde_json::json!({key: value}))
            }
            _ => None,
        }
    }

    /// The value after its key, unless it is an item of a list.
    fn with_key(&self, value: &Value) -> String {
        match self.path.last().filter(|key| key.parse::<usize>().is_err()) {
            Some(key) => format!("{key}: {}", to_flow(value)),
            None => to_flow(value),
        }
    }
}

/// Whether a text was meant as a map: `kind:http` is a text, because a map needs a space after `:`.
pub(crate) fn is_missing_space(text: &str) -> bool {
    let word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    text.split_once(':').is_some_and(|(key, rest)| {
        word(key)
            && !rest.is_empty()
            && !rest.starts_with("//")
            && !rest.starts_with(char::is_whitespace)
    })
}
