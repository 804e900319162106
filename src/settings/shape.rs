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
            example: None,
        };
        expected.add(root, schema, "", 0);
        let own = schema
            .get("examples")
            .and_then(|examples| examples.get(0))
            .cloned();
        expected.example = own.or_else(|| {
            expected
                .options
                .first()
                .and_then(|option| option.example(root))
        });
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
            if OWN_READERS.contains(&name) {
                return self
                    .options
                    .extend(target.map(|schema| Alternative { name, schema }));
            }
            return target
                .into_iter()
                .for_each(|target| self.add(root, target, name, depth + 1));
        }
        match (
            schema.get("anyOf").and_then(Value::as_array),
            schema.get("type"),
        ) {
            (Some(options), _) => options
                .iter()
                .for_each(|option| self.add(root, option, "", depth + 1)),
            (None, Some(Value::String(word))) if word == "null" => self.allows_null = true,
            (None, kinds) => {
                let kinds = kinds.and_then(Value::as_array);
                self.allows_null |=
                    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
                self.options.push(Alternative { name, schema });
            }
        }
    }
}

impl<'s> Alternative<'s> {
    /// Its JSON type; `None` if it allows every type.
    fn kind(&self) -> Option<&'s str> {
        match self.schema.get("type") {
            Some(Value::Array(kinds)) => kinds
                .iter()
                .filter_map(Value::as_str)
                .find(|kind| *kind != "null"),
            kind => kind.and_then(Value::as_str),
        }
    }

    /// The words, if it is one of several words.
    fn words(&self) -> Option<Vec<&'s str>> {
        if let Some(words) = self.schema.get("enum").and_then(Value::as_array) {
            return Some(words.iter().filter_map(Value::as_str).collect());
        }
        let options = self.schema.get("oneOf")?.as_array()?;
        let words: Vec<&str> = options
            .iter()
            .filter_map(|option| option.get("const")?.as_str())
            .collect();
        Some(words).filter(|words| !words.is_empty())
    }

    fn properties(&self) -> Option<&'s Map<String, Value>> {
        self.schema.get("properties").and_then(Value::as_object)
    }

    fn required(&self) -> Vec<&'s str> {
        self.schema
            .get("required")
            .and_then(Value::as_array)
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
        let (required, first) = (self.required(), properties.keys().next()?.as_str());
        let keys = if required.is_empty() {
            vec![first]
        } else {
            required
        };
        let entry = |key: &str| {
            Some((
                key.to_owned(),
                Expected::new(root, properties.get(key)?).example?,
            ))
        };
        keys.into_iter()
            .map(entry)
            .collect::<Option<Map<_, _>>>()
            .map(Value::Object)
    }
}

struct Check<'s> {
    root: &'s Value,
    path: Vec<String>,
    faults: Vec<SettingFault>,
}

impl<'s> Check<'s> {
    fn fault(&mut self, message: impl Into<String>) {
        self.fault_of_kind(SettingFaultKind::Value, message.into());
    }

    fn fault_of_kind(&mut self, kind: SettingFaultKind, message: String) {
        if self.faults.len() < MAX_FAULTS {
            let path = self.path.clone();
            self.faults.push(SettingFault {
                path,
                message,
                kind,
            });
        }
    }

    /// Checks the value at a key or position.
    fn below(&mut self, token: String, expected: &Expected<'s>, value: &Value) {
        self.path.push(token);
        if self.path.len() < MAX_DEPTH {
            self.value(expected, value);
        }
        self.path.pop();
    }

    fn value(&mut self, expected: &Expected<'s>, value: &Value) {
        if value.is_null() && expected.allows_null {
            return;
        }
        let fitting = expected
            .options
            .iter()
            .find(|option| option.takes_type_of(value));
        let Some(option) = fitting.or(expected.options.first()) else {
            return;
        };
        // A reader of its own has the better words, also for values of other types.
        match option.name {
            "Duration" => return self.scalar(value, |text| HumanDuration::parse(text).err()),
            "Size" => return self.scalar(value, |text| Size::parse(text).err()),
            "CommandItem" => return,
            _ => {}
        }
        if fitting.is_none() {
            let message = self.wrong_type_message(expected, option, value);
            let has_keys = |option: &Alternative<'_>| option.properties().is_some();
            let kind = match value.is_array() && expected.options.iter().any(has_keys) {
                true => SettingFaultKind::ListForMap,
                false => SettingFaultKind::Value,
            };
            return self.fault_of_kind(kind, message);
        }
        match (option.words(), value) {
            (Some(words), Value::String(word)) => self.word(word, &words),
            (_, Value::Object(entries)) => self.entries(option, entries),
            (_, Value::Array(items)) => {
                let Some(schema) = option.schema.get("items") else {
                    return;
                };
                for (at, item) in items.iter().enumerate() {
                    self.below(at.to_string(), &Expected::new(self.root, schema), item);
                }
            }
            (_, Value::Number(_)) => self.number(expected, option, value),
            _ => {}
        }
    }

    fn scalar(&mut self, value: &Value, parse: impl FnOnce(&str) -> Option<String>) {
        let text = value.as_str().map_or_else(|| to_flow(value), str::to_owned);
        parse(&text)
            .into_iter()
            .for_each(|message| self.fault(message));
    }

    fn word(&mut self, word: &str, words: &[&str]) {
        if words.contains(&word) {
            return;
        }
        let message =
            match suggest::closest_name(word, words.iter().copied(), suggest::MIN_HINT_RATIO) {
                Some(near) => format!("`{word}` is not known here, did you mean {near}?"),
                None => format!("`{word}` is not known here; there are {}", words.join(", ")),
            };
        self.fault(message);
    }

    fn entries(&mut self, option: &Alternative<'s>, entries: &Map<String, Value>) {
        let properties = option.properties();
        let others = option.schema.get("additionalProperties");
        let known: Vec<&str> = properties
            .into_iter()
            .flat_map(|map| map.keys().map(String::as_str))
            .collect();
        // What the messages about unknown keys advise to write.
        let mut advice = Vec::new();
        for (key, value) in entries {
            match (
                properties.and_then(|properties| properties.get(key)),
                others,
            ) {
                (Some(schema), _) => {
                    self.below(key.clone(), &Expected::new(self.root, schema), value);
                }
                (None, Some(Value::Bool(false))) if self.faults.len() < MAX_FAULTS => {
                    let path = self.path.iter().chain([key]).cloned().collect();
                    let message = unknown_key_message(key, &known);
                    advice.push(message.clone());
                    self.faults.push(SettingFault {
                        path,
                        message,
                        kind: SettingFaultKind::UnknownKey,
                    });
                }
                (None, Some(schema @ Value::Object(_))) => {
                    self.below(key.clone(), &Expected::new(self.root, schema), value);
                }
                _ => {}
            }
        }
        // A key that is there under another name is reported already.
        let is_absent = |key: &&str| {
            !entries.contains_key(*key) && !advice.iter().any(|message| suggests_key(message, key))
        };
        for key in option.required().into_iter().filter(is_absent) {
            let example =
                properties.and_then(|map| Expected::new(self.root, map.get(key)?).example);
            let example = example
                .map(|example| format!(", e.g. `{key}: {}`", to_flow(&example)))
                .unwrap_or_default();
            self.path.push(key.to_owned());
            let message = format!("is missing{example}");
            self.fault_of_kind(SettingFaultKind::MissingKey, message);
            self.path.pop();
        }
    }

    fn number(&mut self, expected: &Expected<'_>, option: &Alternative<'_>, value: &Value) {
        let format = option
            .schema
            .get("format")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let least = option.schema.get("minimum").and_then(Value::as_f64);
        let is_whole = value.is_i64() || value.is_u64();
        if option.kind() == Some("integer") && !is_whole {
            let message = format!("a whole number is expected here{}", example_text(expected));
            self.fault(message);
        } else if let (Some(least), Some(number)) = (least, value.as_f64())
            && number < least
        {
            self.fault(format!("{least} or more is expected here"));
        } else if format == "uint32"
            && value
                .as_u64()
                .is_none_or(|number| number > u64::from(u32::MAX))
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
        let flag = expected.options.iter().find(|option| {
            option.kind() == Some("boolean") && self.corrected(option, "boolean", value).is_some()
        });
        let option = flag.unwrap_or(option);
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
        match self.corrected(option, kind, value) {
            // The value may be a secret, so it is not shown.
            Some(Value::String(_)) => format!("{noun} is expected here: put the value in quotes"),
            Some(right)
                if value.is_object() && self.path.last().is_some_and(|key| key == "env") =>
            {
                let right = self.with_key(&right);
                format!(
                    "{noun} is expected here: write `{right}`; `environment` sets variables of a program"
                )
            }
            Some(right) => format!("{noun} is expected here: write `{}`", self.with_key(&right)),
            None if value.is_null() => {
                format!(
                    "the value is missing: {noun} is expected here{}",
                    self.keyed_example(expected)
                )
            }
            None if kind == "object" && value.as_str().is_some_and(is_missing_space) => {
                format!(
                    "{noun} is expected here; a space is missing after the `:` in `{}`",
                    abbreviate(value)
                )
            }
            None => format!("{noun} is expected here{}", self.keyed_example(expected)),
        }
    }

    /// The value in the right form, if it is obvious.
    fn corrected(&self, option: &Alternative<'s>, kind: &str, value: &Value) -> Option<Value> {
        let fits = |schema: &'s Value, value: &Value| {
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
                let number: Value = serde_json::from_str(text.trim())
                    .ok()
                    .filter(Value::is_number)?;
                (kind == "number" || number.is_u64()).then_some(number)
            }
            ("array", Value::String(line))
                if self.path.last().is_some_and(|key| key == "command") =>
            {
                Some(line.split_whitespace().map(Value::from).collect())
            }
            ("array", Value::Object(map)) if self.path.last().is_some_and(|key| key == "env") => {
                let name = |key: &String| serde_json::json!({"name": key});
                (!map.is_empty() && map.values().all(|value| !value.is_object()))
                    .then(|| map.keys().map(name).collect())
            }
            ("array", _) => {
                let item = option.schema.get("items")?;
                if fits(item, value) {
                    return Some(vec![value.clone()].into());
                }
                // A name in place of a map that needs only a name.
                let (option, kind) = (Expected::new(self.root, item).options.pop()?, "object");
                self.corrected(&option, kind, value)
                    .map(|item| vec![item].into())
            }
            ("object", Value::Null | Value::Object(_)) => None,
            ("object", Value::Array(pairs)) if option.properties().is_none() => {
                let pair = |pair: &Value| {
                    let (name, value) = pair.as_str()?.split_once(['=', ':'])?;
                    Some((name.trim().to_owned(), Value::from(value.trim())))
                };
                let pairs: Option<Map<_, _>> = pairs.iter().map(pair).collect();
                pairs.filter(|pairs| !pairs.is_empty()).map(Value::Object)
            }
            ("object", _) if !value.as_str().is_some_and(is_missing_space) => {
                let [key] = option.required()[..] else {
                    return None;
                };
                let schema = option.properties()?.get(key)?;
                fits(schema, value).then(|| serde_json::json!({key: value}))
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

    fn keyed_example(&self, expected: &Expected<'_>) -> String {
        let example = expected.example.as_ref();
        example
            .map(|example| format!(", e.g. `{}`", self.with_key(example)))
            .unwrap_or_default()
    }
}

fn example_text(expected: &Expected<'_>) -> String {
    expected
        .example
        .as_ref()
        .map(|example| format!(", e.g. {}", to_flow(example)))
        .unwrap_or_default()
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
