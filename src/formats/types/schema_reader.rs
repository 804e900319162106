//! Reads JSON Schemas as types.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::kind::{Declared, Field, Object, Rest, Type};
use super::names::{Names, pascal_case};
use crate::call::json::{JsonObject, type_name};
use crate::call::words;
use crate::schema::to_standalone;

/// The types of JSON values.
const ALL_TYPES: [&str; 6] = ["object", "array", "string", "number", "boolean", "null"];

/// The keywords that say something about a value itself. The others combine schemas.
const OWN_KEYWORDS: [&str; 10] = words(
    "type const enum nullable properties required additionalProperties patternProperties items
     prefixItems",
);

/// The types of one schema. The first has the given name and the others, which it refers to, follow.
pub(super) fn declare(
    schema: &Value,
    name: String,
    is_argument: bool,
    names: &mut Names,
) -> Vec<Declared> {
    // A reference that leads outside leaves nothing that could be relied on.
    let standalone = to_standalone(schema).unwrap_or_else(|| json!({}));
    let mut claimed = HashMap::from([("#".to_owned(), name.clone())]);
    let mut parts = Vec::new();
    for (word, part) in standalone["$defs"].as_object().into_iter().flatten() {
        let part_name = names.claim(&format!("{name}{}", pascal_case(word)));
        claimed.insert(format!("#/$defs/{word}"), part_name.clone());
        parts.push((part_name, part));
    }
    let draft = schema["$schema"].as_str().unwrap_or_default();
    let is_old = draft.contains("draft-0");
    let reader = Reader { claimed, is_old };
    // Arguments are an object, whether their schema says so or not.
    let is_object = is_argument && !standalone.to_string().contains(r##""$ref":"#""##);
    let kinds = if is_object { 1 } else { ALL_TYPES.len() };
    let mut root = reader.read(&standalone, &ALL_TYPES[..kinds]);
    if is_argument && let Type::Object(object) = &mut root {
        // The service fills in the defaults of parameters.
        for field in &mut object.fields {
            let default = &standalone["properties"][&field.name]["default"];
            field.is_required &= default.is_null();
        }
    }
    let parts = parts.into_iter();
    let parts = parts.map(|(name, part)| (name, reader.read(part, &ALL_TYPES), part));
    let all = std::iter::once((name, root, &standalone)).chain(parts);
    let declared = all.map(|(name, kind, schema)| Declared {
        name,
        kind,
        description: description_of(schema),
        is_argument,
    });
    break_circles(declared.collect())
}

fn description_of(schema: &Value) -> String {
    let text = schema["description"].as_str();
    text.unwrap_or_default().to_owned()
}

/// A type that consists of itself, without an object or a list between, says nothing. No language
/// permits it.
fn break_circles(mut declared: Vec<Declared>) -> Vec<Declared> {
    for at in 0..declared.len() {
        let (mut open, mut seen) = (vec![at], HashSet::new());
        while let Some(next) = open.pop() {
            let names = declared[next].kind.direct_names();
            let is_named = |one: &Declared| names.contains(&one.name.as_str());
            let found = (0..declared.len()).filter(|to| is_named(&declared[*to]));
            open.extend(found.filter(|to| seen.insert(*to)));
        }
        if seen.contains(&at) {
            declared[at].kind = Type::Unknown;
        }
    }
    declared
}

struct Reader {
    /// The names of declared types by the references to them.
    claimed: HashMap<String, String>,
    /// Whether the draft ignores what stands beside a reference.
    is_old: bool,
}

impl Reader {
    /// The type of the values of these kinds that fit the schema.
    fn read(&self, schema: &Value, outer: &[&'static str]) -> Type {
        let Some(keywords) = schema.as_object() else {
            return Type::any((*schema != json!(false)).then_some(Type::Unknown));
        };
        if schema.get("not") == Some(&json!({})) {
            return Type::Never;
        }
        let target = schema["$ref"].as_str().and_then(|to| self.claimed.get(to));
        let target = target.cloned().map(Type::Named);
        if let Some(target) = target.clone().filter(|_| self.is_old) {
            return target;
        }
        let kinds = intersect_kinds(outer, schema);
        let list = |word: &str| schema.get(word).and_then(Value::as_array);
        let read_all = |parts: &Vec<Value>| {
            let parts = parts.iter().map(|part| self.read(part, &kinds));
            parts.collect::<Vec<_>>()
        };
        let forms = ["anyOf", "oneOf"].into_iter().filter_map(list);
        let forms = forms.map(|forms| Type::any(read_all(forms)));
        let all = list("allOf").map(read_all).unwrap_or_default();
        let parts: Vec<Type> = target.into_iter().chain(forms).chain(all).collect();
        // The parts know the kinds.
        let is_own = |word: &String| word != "type" && OWN_KEYWORDS.contains(&word.as_str());
        let has_own = parts.is_empty() || keywords.keys().any(is_own);
        let own = has_own.then(|| self.read_own(schema, keywords, &kinds));
        Type::all(own.into_iter().chain(parts))
    }

    /// What the keywords of a schema say about the value itself.
    fn read_own(&self, schema: &Value, keywords: &JsonObject, kinds: &[&'static str]) -> Type {
        let is_own = |word: &String| OWN_KEYWORDS.contains(&word.as_str());
        if kinds.len() == ALL_TYPES.len() && !keywords.keys().any(is_own) {
            return Type::Unknown;
        }
        let constant = keywords.get("const").map(std::slice::from_ref);
        let stated = constant.or(schema["enum"].as_array().map(Vec::as_slice));
        let fits = |value: &Value| match value {
            Value::Number(_) => kinds.contains(&"number") || kinds.contains(&"integer"),
            other => kinds.contains(&type_name(other)),
        };
        let by_kind = kinds.iter().map(|kind| match *kind {
            "object" => self.read_object(schema),
            "array" => self.read_array(schema),
            "string" => Type::Text,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Null,
        });
        match stated {
            None => Type::any(by_kind),
            Some(values) if values.iter().all(fits) => Type::any(values.iter().map(read_value)),
            // A foreign schema may list the numbers 1 and 2 as texts. Both spellings are accepted.
            Some(values) => Type::any(values.iter().map(read_value).chain(by_kind)),
        }
    }

    fn read_object(&self, schema: &Value) -> Type {
        let map = |word: &str| schema[word].as_object().into_iter().flatten();
        let required = schema["required"].as_array().into_iter().flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        let field = |name: &str, part: &Value| Field {
            name: name.to_owned(),
            is_required: required.contains(&name),
            kind: self.read(part, &ALL_TYPES),
            description: description_of(part),
        };
        let fields = map("properties").map(|(name, part)| field(name, part));
        let mut fields: Vec<Field> = fields.collect();
        for name in &required {
            if !fields.iter().any(|known| known.name == *name) {
                fields.push(field(name, &Value::Bool(true)));
            }
        }
        let others = schema.get("additionalProperties");
        let patterns = map("patternProperties").map(|(_, part)| part);
        let stated: Vec<&Value> = patterns.chain(others).collect();
        let rest = match stated.as_slice() {
            [] => Rest::Unstated,
            [Value::Bool(false)] => Rest::Nothing,
            stated => {
                let unstated = others.is_none().then_some(Type::Unknown);
                let stated = stated.iter().map(|part| self.read(part, &ALL_TYPES));
                Rest::Of(Box::new(Type::any(stated.chain(unstated))))
            }
        };
        Type::Object(Object { fields, rest })
    }

    fn read_array(&self, schema: &Value) -> Type {
        let items = schema.get("items");
        let rest = items.map_or(Type::Unknown, |items| self.read(items, &ALL_TYPES));
        let first = schema["prefixItems"].as_array().into_iter().flatten();
        let items: Vec<Type> = first.map(|item| self.read(item, &ALL_TYPES)).collect();
        if items.is_empty() {
            return Type::List(Box::new(rest));
        }
        let least = schema["minItems"].as_u64().unwrap_or_default();
        Type::Tuple {
            required: items.len().min(usize::try_from(least).unwrap_or(0)),
            items,
            rest: (rest != Type::Never).then(|| Box::new(rest)),
        }
    }
}

/// The kinds of values that both allow. A word that is no type allows every kind.
fn intersect_kinds(outer: &[&'static str], schema: &Value) -> Vec<&'static str> {
    let words = match &schema["type"] {
        Value::Array(words) => words.as_slice(),
        Value::Null => return outer.to_vec(),
        word => std::slice::from_ref(word),
    };
    let has = |word: &str| outer.contains(&word);
    let mut kinds = Vec::new();
    for word in words.iter().map(|word| word.as_str().unwrap_or_default()) {
        match ALL_TYPES.iter().find(|known| **known == word) {
            Some(known) if has(known) => kinds.push(*known),
            Some(_) if word == "number" && has("integer") => kinds.push("integer"),
            Some(_) => {}
            None if word != "integer" => return outer.to_vec(),
            None if has("number") || has("integer") => kinds.push("integer"),
            None => {}
        }
    }
    let is_nullable = schema["nullable"] == json!(true) && !kinds.contains(&"null");
    kinds.extend(is_nullable.then_some("null"));
    kinds
}

/// The type with only this value, or of its kind.
fn read_value(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        // Whole lists and objects as constants are rare.
        Value::Array(_) => Type::List(Box::new(Type::Unknown)),
        Value::Object(_) => Type::Object(Object {
            fields: Vec::new(),
            rest: Rest::Unstated,
        }),
        plain => Type::Literal(plain.clone()),
    }
}
