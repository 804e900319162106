//! Rewrites a schema for other readers. Either it becomes parts of a larger document (OpenAPI 3.1),
//! where `#` is no longer its own root. Or it becomes a single schema that the APIs of model
//! providers accept.
//!
//! Every target of a reference becomes a part with its own name, because client generators follow
//! only such references. Readers expect JSON Schema 2020-12, so keywords of older drafts are
//! replaced. Keywords are recognized only where a schema may be: a property, a constant or an
//! example may be named `$ref`.

use std::collections::{BTreeMap, HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use url::Url;

use super::keywords::{KeywordKind, REFERENCES, keyword_kind, parts_mut, subschemas};
use crate::call::json::{escape_pointer_token, parse_pointer};
use crate::call::words;

/// Keywords of the schema as a whole. No part contains them.
const ROOT_KEYWORDS: [&str; 9] = words(
    "$schema $id $anchor $dynamicAnchor $recursiveAnchor $vocabulary $comment $defs
     definitions",
);

/// The reader of the parts.
#[derive(Clone, Copy, PartialEq)]
enum Audience {
    /// A generator of clients.
    Document,
    /// The API of a model's provider.
    Provider,
}

impl Audience {
    /// The location of the parts in the document.
    fn reference_prefix(self) -> &'static str {
        match self {
            Self::Document => "#/components/schemas/",
            Self::Provider => "#/$defs/",
        }
    }

    /// Whether a keyword is left out of a part. A document leaves out keywords with another meaning
    /// in OpenAPI, and titles: generators make class names of titles, and two tools may have the
    /// same title. For a provider, descriptive keywords beside a reference are left out ("If a
    /// schema node has $ref set, then only description and default can be set alongside it", error
    /// text of Gemini).
    fn omits(self, word: &str, beside_reference: bool) -> bool {
        let also: &[&str] = match self {
            Self::Document => &["discriminator", "xml", "externalDocs", "title"],
            Self::Provider if beside_reference => {
                &["title", "examples", "deprecated", "readOnly", "writeOnly"]
            }
            Self::Provider => &[],
        };
        ROOT_KEYWORDS.contains(&word) || also.contains(&word)
    }
}

/// The root of the schema and every target of a reference, each with its name in the document. The
/// root is named `root`. The name of another part is `prefix_` and the last token of its pointer;
/// `claim` makes the name unique.
///
/// `None` if some reference leads outside.
pub fn split_components(
    schema: &Value,
    root: &str,
    prefix: &str,
    mut claim: impl FnMut(&str) -> String,
) -> Option<Vec<(String, Value)>> {
    collect_parts(schema, Audience::Document, root, |word| {
        claim(&format!("{prefix}_{}", to_identifier(word)))
    })
}

/// The same schema in basic keywords of 2020-12, for readers that accept no others. References
/// point to its own `$defs`, boolean schemas become objects, and every array has `items`.
///
/// `None` in the same cases as [`split_components`].
pub fn to_standalone(schema: &Value) -> Option<Value> {
    // The next number to try for each word, because many parts may end in the same word.
    let (mut taken, mut next) = (HashSet::new(), HashMap::new());
    let claim = |word: &str| {
        let word = to_identifier(word);
        let number = next.entry(word.clone()).or_insert(1);
        loop {
            let name = if *number == 1 {
                word.clone()
            } else {
                format!("{word}_{number}")
            };
            *number += 1;
            if taken.insert(name.clone()) {
                return name;
            }
        }
    };
    let mut parts = collect_parts(schema, Audience::Provider, "", claim)?.into_iter();
    let (_, mut root) = parts.next()?;
    let definitions: Map<String, Value> = parts.collect();
    if !definitions.is_empty() {
        root.as_object_mut()?
            .insert("$defs".into(), definitions.into());
    }
    Some(root)
}

/// The root and every target of a reference, each with its name.
fn collect_parts(
    schema: &Value,
    audience: Audience,
    root: &str,
    mut name: impl FnMut(&str) -> String,
) -> Option<Vec<(String, Value)>> {
    let schema = &resolve_references(schema)?;
    let mut found = KnownReferences {
        schema,
        audience,
        names: BTreeMap::new(),
    };
    // If the root only refers to a part (as pydantic writes a recursive model), that part is the
    // root.
    let start = found.final_pointer("#")?;
    found.names.insert(start.clone(), root.to_owned());
    let (mut open, mut seen) = (vec![start], HashSet::new());
    let mut at = 0;
    while let Some(pointer) = open.get(at) {
        let mut targets = Vec::new();
        collect_references(schema.pointer(pointer)?, &mut targets, &mut seen);
        for target in targets {
            let pointer = found.final_pointer(target)?;
            if !found.names.contains_key(&pointer) {
                let word = parse_pointer(&pointer).last().unwrap_or_default();
                found.names.insert(pointer.clone(), name(&word));
                open.push(pointer);
            }
        }
        at += 1;
    }
    let parts = open.into_iter().map(|pointer| {
        let part = found.rewrite_part(schema.pointer(&pointer)?, &pointer)?;
        Some((found.names.get(&pointer)?.clone(), part))
    });
    parts.collect()
}

/// The text with `_` in place of every character that an identifier cannot contain.
pub fn to_identifier(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

/// The target of a schema that contains only a reference.
fn sole_reference(schema: &Value) -> Option<&str> {
    let object = schema.as_object()?;
    let silent = |word: &String| word == "$ref" || Audience::Document.omits(word, true);
    object
        .get("$ref")?
        .as_str()
        .filter(|_| object.keys().all(silent))
}

/// The JSON Pointer of a reference's target.
fn target_pointer(reference: &str) -> Option<String> {
    let fragment = percent_decode_str(reference.strip_prefix('#')?);
    let pointer = fragment.decode_utf8().ok()?.into_owned();
    (pointer.is_empty() || pointer.starts_with('/')).then_some(pointer)
}

fn may_be_array(schema: &Map<String, Value>) -> bool {
    let is_array = |word: &Value| word == "array";
    schema.get("type").is_some_and(|word| {
        is_array(word) || word.as_array().is_some_and(|all| all.iter().any(is_array))
    })
}

/// Collects every reference of a part. Definitions without a reference to them do not belong to the
/// part. Schemas in `seen` were visited as parts of another part and are skipped.
fn collect_references<'a>(
    schema: &'a Value,
    targets: &mut Vec<&'a str>,
    seen: &mut HashSet<*const Value>,
) {
    if !seen.insert(std::ptr::from_ref(schema)) {
        return;
    }
    targets.extend(
        REFERENCES
            .iter()
            .filter_map(|word| schema.get(word)?.as_str()),
    );
    for (pointer, subschema) in subschemas(schema) {
        if !pointer.starts_with("/$defs/") && !pointer.starts_with("/definitions/") {
            collect_references(subschema, targets, seen);
        }
    }
}

/// The references and names of a schema.
struct KnownReferences<'a> {
    schema: &'a Value,
    audience: Audience,
    /// Maps JSON Pointers to names in the document.
    names: BTreeMap<String, String>,
}

impl KnownReferences<'_> {
    /// The JSON Pointer of a reference's final target: schemas that only refer further are skipped.
    fn final_pointer(&self, reference: &str) -> Option<String> {
        let mut pointer = target_pointer(reference)?;
        let mut passed = Vec::new();
        while let Some(further) = sole_reference(self.schema.pointer(&pointer)?) {
            let next = target_pointer(further)?;
            passed.push(std::mem::replace(&mut pointer, next));
            if passed.contains(&pointer) {
                return None;
            }
        }
        Some(pointer)
    }

    fn reference_to(&self, pointer: &str) -> Option<Value> {
        let name = self.names.get(pointer)?;
        Some(if name.is_empty() {
            "#".into()
        } else {
            format!("{}{name}", self.audience.reference_prefix()).into()
        })
    }

    /// A part in the form for its reader.
    fn rewrite_part(&self, schema: &Value, pointer: &str) -> Option<Value> {
        let object = match schema {
            Value::Object(object) => object,
            // These mean the same as true and false, which some generators cannot read.
            Value::Bool(true) => return Some(json!({})),
            _ => return Some(json!({"not": {}})),
        };
        let tuple = object.get("items").is_some_and(Value::is_array);
        let beside_reference = REFERENCES.iter().any(|word| object.contains_key(*word));
        let is_open = |flag: &str| object.get(flag) == Some(&Value::Bool(true));
        let mut part = Map::new();
        for (keyword, value) in object {
            let keyword = keyword.as_str();
            let (word, value) = match keyword {
                word if self.audience.omits(word, beside_reference) => continue,
                word if REFERENCES.contains(&word) => (
                    "$ref",
                    self.reference_to(&self.final_pointer(value.as_str()?)?)?,
                ),
                "dependencies" => {
                    self.split_dependencies(value, pointer, &mut part)?;
                    continue;
                }
                "items" if tuple => (
                    "prefixItems",
                    self.rewrite_keyword(keyword, value, pointer)?,
                ),
                "additionalItems" if tuple => {
                    ("items", self.rewrite_keyword(keyword, value, pointer)?)
                }
                "additionalItems" => continue,
                // Draft 4 has a flag beside the bound.
                "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => continue,
                "minimum" if is_open("exclusiveMinimum") => ("exclusiveMinimum", value.clone()),
                "maximum" if is_open("exclusiveMaximum") => ("exclusiveMaximum", value.clone()),
                word => (word, self.rewrite_keyword(keyword, value, pointer)?),
            };
            part.insert(word.to_owned(), value);
        }
        // Error text of OpenAI: "array schema missing items". It also applies beside `prefixItems`.
        if self.audience == Audience::Provider && may_be_array(&part) && !part.contains_key("items")
        {
            part.insert("items".into(), json!({}));
        }
        Some(Value::Object(part))
    }

    /// A schema inside another: a reference if it has its own name, otherwise the schema itself.
    fn rewrite_subschema(&self, schema: &Value, pointer: &str) -> Option<Value> {
        match self.reference_to(pointer) {
            Some(reference) => Some(json!({"$ref": reference})),
            None => self.rewrite_part(schema, pointer),
        }
    }

    fn rewrite_keyword(&self, keyword: &str, value: &Value, pointer: &str) -> Option<Value> {
        let pointer = format!("{pointer}/{}", escape_pointer_token(keyword));
        match (keyword_kind(keyword, value.is_array()), value) {
            // Every reader accepts booleans for these keywords, because they are common here.
            (KeywordKind::Schema, Value::Bool(_)) if keyword.ends_with("Properties") => {
                Some(value.clone())
            }
            (KeywordKind::Schema, _) => self.rewrite_subschema(value, &pointer),
            (KeywordKind::List, Value::Array(list)) => {
                let rewritten = list
                    .iter()
                    .enumerate()
                    .map(|(index, one)| self.rewrite_subschema(one, &format!("{pointer}/{index}")));
                rewritten.collect::<Option<Vec<Value>>>().map(Value::Array)
            }
            (KeywordKind::ByName, Value::Object(by_name)) => {
                let rewritten = by_name.iter().map(|(name, one)| {
                    Some((
                        name.clone(),
                        self.rewrite_subschema(
                            one,
                            &format!("{pointer}/{}", escape_pointer_token(name)),
                        )?,
                    ))
                });
                rewritten
                    .collect::<Option<Map<String, Value>>>()
                    .map(Value::Object)
            }
            _ => Some(value.clone()),
        }
    }

    /// Splits `dependencies` of draft 7 and earlier into its two successors.
    fn split_dependencies(
        &self,
        value: &Value,
        pointer: &str,
        part: &mut Map<String, Value>,
    ) -> Option<()> {
        let (mut required, mut schemas) = (Map::new(), Map::new());
        for (name, one) in value.as_object()? {
            let pointer = format!("{pointer}/dependencies/{}", escape_pointer_token(name));
            match one {
                Value::Array(_) => drop(required.insert(name.clone(), one.clone())),
                _ => drop(schemas.insert(name.clone(), self.rewrite_subschema(one, &pointer)?)),
            }
        }
        let split = [
            ("dependentRequired", required),
            ("dependentSchemas", schemas),
        ];
        part.extend(
            split
                .into_iter()
                .filter(|(_, map)| !map.is_empty())
                .map(|(word, map)| (word.into(), map.into())),
        );
        Some(())
    }
}

/// The base of a schema without an absolute `$id`.
const NO_BASE: &str = "schema://root/";

/// The JSON Pointers of the parts that an `$id` names, and of the plain names within them.
type Resources = HashMap<String, String>;

/// The schema with references from its root, and without any `$id` below the root. A reference that
/// leads outside stays as it is.
pub(super) fn resolve_references(schema: &Value) -> Option<Value> {
    let base = Url::parse(NO_BASE).ok()?;
    let mut resources = Resources::new();
    collect(schema, &base, &mut String::new(), &mut resources);
    let mut rewritten = schema.clone();
    rewrite(&mut rewritten, &base, true, &resources);
    Some(rewritten)
}

/// The base of the references in a schema. In draft 7 and earlier, `#name` is a plain name.
fn base_of(schema: &Value, outer: &Url) -> Option<Url> {
    let id = schema.get("$id")?.as_str()?;
    match id.starts_with('#') {
        true => None,
        false => outer.join(id.trim_end_matches('#')).ok(),
    }
}

fn collect(schema: &Value, outer: &Url, pointer: &mut String, resources: &mut Resources) {
    let own = base_of(schema, outer);
    let base = own.as_ref().unwrap_or(outer);
    if own.is_some() || pointer.is_empty() {
        resources.insert(base.to_string(), pointer.clone());
    }
    let text = |word: &str| schema.get(word).and_then(Value::as_str);
    let names = ["$anchor", "$dynamicAnchor"].into_iter().filter_map(text);
    for name in names.chain(text("$id").and_then(|id| id.strip_prefix('#'))) {
        resources.insert(format!("{base}#{name}"), pointer.clone());
    }
    for (token, subschema) in subschemas(schema) {
        let length = pointer.len();
        pointer.push_str(&token);
        collect(subschema, base, pointer, resources);
        pointer.truncate(length);
    }
}

fn rewrite(schema: &mut Value, outer: &Url, is_root: bool, resources: &Resources) {
    let own = base_of(schema, outer);
    let base = own.as_ref().unwrap_or(outer);
    let Value::Object(fields) = schema else {
        return;
    };
    if own.is_some() && !is_root {
        fields.shift_remove("$id");
    }
    for (keyword, value) in fields.iter_mut() {
        if REFERENCES.contains(&keyword.as_str())
            && let Some(reference) = value.as_str()
            && let Some(from_root) = root_reference(reference, base, resources)
        {
            *value = from_root.into();
        }
        for part in parts_mut(keyword, value) {
            rewrite(part, base, false, resources);
        }
    }
}

/// A reference as one from the root of the schema.
fn root_reference(reference: &str, base: &Url, resources: &Resources) -> Option<String> {
    let mut url = base.join(reference).ok()?;
    let fragment = url.fragment().unwrap_or_default().to_owned();
    url.set_fragment(None);
    let (name, below) = match fragment.is_empty() || fragment.starts_with('/') {
        true => (url.to_string(), &*fragment),
        false => (format!("{url}#{fragment}"), ""),
    };
    // In a fragment (RFC 6901, 6), only `%` would change the meaning of a JSON Pointer.
    let pointer = resources.get(&name)?.replace('%', "%25");
    Some(format!("#{pointer}{below}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The parts by name, as `{family}_arguments` and `{family}_…`.
    fn parts_by_name(schema: &Value) -> BTreeMap<String, Value> {
        let mut taken = Vec::new();
        let claim = |wanted: &str| {
            let name = if taken.contains(&wanted.to_owned()) {
                format!("{wanted}_2")
            } else {
                wanted.to_owned()
            };
            taken.push(name.clone());
            name
        };
        split_components(schema, "t_arguments", "t", claim)
            .unwrap()
            .into_iter()
            .collect()
    }

    /// Checks that the document and the standalone schema judge these values like the original
    /// schema: `fit` is valid, `misfit` is not.
    fn assert_equivalent(schema: &Value, fit: &[Value], misfit: &[Value]) {
        let document = json!({
            "$ref": "#/components/schemas/t_arguments",
            "components": {"schemas": Value::Object(parts_by_name(schema).into_iter().collect())},
        });
        let as_it_is = jsonschema::validator_for(schema).unwrap();
        for rewritten in [document, to_standalone(schema).unwrap()] {
            let there = jsonschema::draft202012::new(&rewritten).unwrap();
            for (instances, yes) in [(fit, true), (misfit, false)] {
                for instance in instances {
                    assert_eq!(as_it_is.is_valid(instance), yes, "{instance} as it is");
                    assert_eq!(there.is_valid(instance), yes, "{instance} by {rewritten:#}");
                }
            }
        }
    }

    #[test]
    fn definitions_become_named_parts() {
        let schema = json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/a%20node"}, "self": {"$ref": "#"}, "again": {"$ref": "#/properties/n"},
                "n": {"type": "integer"}},
            "$defs": {
                "a node": {"type": "object", "properties": {
                    "value": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/a%20node"}}}},
                "unused": {"$ref": "#/$defs/unused"},
            },
        });
        let found = parts_by_name(&schema);
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            ["t_a_node", "t_arguments", "t_n"]
        );
        assert_eq!(
            found["t_arguments"]["properties"]["n"],
            json!({"$ref": "#/components/schemas/t_n"})
        );
        assert_equivalent(
            &schema,
            &[json!({"tree": {"value": 1, "kids": [{"kids": []}]}, "self": {"again": 1}})],
            &[
                json!({"tree": {"kids": [{"value": "x"}]}}),
                json!({"self": {"n": "x"}}),
                json!({"again": "x"}),
            ],
        );
    }

    #[test]
    fn doubling_references_stay_references() {
        let mut schema = json!({"type": "object", "$ref": "#/$defs/d0"});
        for level in 0..25 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            schema["$defs"][format!("d{level}")] = json!({"allOf": [next, next]});
        }
        schema["$defs"]["d25"] = json!({"type": "object"});
        assert!(to_standalone(&schema).unwrap().to_string().len() < 4000);
        assert_eq!(parts_by_name(&schema).len(), 27);
    }

    #[test]
    fn property_names_and_data_are_not_keywords() {
        let schema = json!({
            "type": "object",
            "properties": {"$ref": {"type": "string"}, "$id": {"const": {"$ref": "#/nowhere", "$defs": 1}}, "$defs": true,
                "properties": {"properties": {"$schema": {"type": "integer"}}}},
            "default": {"$ref": "#/nowhere"},
        });
        let part = &parts_by_name(&schema)["t_arguments"];
        assert_eq!(
            part["properties"]["$id"]["const"],
            json!({"$ref": "#/nowhere", "$defs": 1})
        );
        assert_eq!(part["properties"]["$defs"], json!({}));
        assert_eq!(part["default"], schema["default"]);
        assert_equivalent(
            &schema,
            &[json!({"$ref": "x", "$defs": 3})],
            &[json!({"$ref": 1}), json!({"properties": {"$schema": ""}})],
        );
    }

    #[test]
    fn older_drafts_are_translated() {
        assert_equivalent(
            &json!({
                "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/t.json", "type": "object",
                "properties": {
                    "pair": {"items": [{"type": "integer"}, {"$ref": "#/definitions/word"}], "additionalItems": false},
                    "word": {"$ref": "https://example.com/t.json#/definitions/word"},
                },
                "definitions": {"word": {"type": "string", "minLength": 1}},
                "dependencies": {"pair": ["word"], "word": {"required": ["pair"]}},
            }),
            &[json!({}), json!({"pair": [1, "a"], "word": "b"})],
            &[
                json!({"pair": [1]}),
                json!({"word": "a"}),
                json!({"pair": [1, ""], "word": "a"}),
                json!({"pair": [1, "a", 2], "word": "a"}),
            ],
        );
        assert_equivalent(
            &json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 3, "exclusiveMinimum": true}}}),
            &[json!({"n": 4})],
            &[json!({"n": 3})],
        );
    }

    #[test]
    fn anchors_and_root_references_are_followed() {
        let schema = json!({
            "$ref": "#node", "title": "Node",
            "$defs": {"Alias": {"$ref": "#node"}, "Node": {"$anchor": "node", "type": "object", "properties": {"next": {"$dynamicRef": "#/$defs/Alias"}}}},
        });
        assert_eq!(
            parts_by_name(&schema).keys().collect::<Vec<_>>(),
            ["t_arguments"]
        );
        assert_equivalent(
            &schema,
            &[json!({"next": {"next": {}}})],
            &[json!({"next": {"next": 1}}), json!(1)],
        );
    }

    #[test]
    fn unresolvable_references_give_none() {
        let nested = json!({"type": "object", "properties": {"a": {"$id": "https://example.com/a", "$ref": "#/x"}}});
        let relative = json!({"type": "object", "properties": {"a": {"$ref": "other.json"}}});
        let nowhere = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}});
        let endless = json!({"$ref": "#"});
        for schema in [nested, relative, nowhere, endless] {
            assert_eq!(
                split_components(&schema, "r", "p", str::to_owned),
                None,
                "{schema}"
            );
            assert_eq!(to_standalone(&schema), None, "{schema}");
        }
    }

    #[test]
    fn references_are_followed_below_every_keyword() {
        let to = json!({"$ref": "#/definitions/a"});
        let moved = json!({"$ref": "#/$defs/a"});
        for keyword in [
            "additionalProperties",
            "contains",
            "contentSchema",
            "else",
            "if",
            "items",
            "not",
            "propertyNames",
            "then",
            "unevaluatedItems",
            "unevaluatedProperties",
        ] {
            let rewritten =
                to_standalone(&json!({keyword: to, "definitions": {"a": {"type": "string"}}}))
                    .unwrap();
            assert_eq!(
                rewritten,
                json!({keyword: moved, "$defs": {"a": {"type": "string"}}})
            );
        }
        for keyword in ["allOf", "anyOf", "oneOf", "prefixItems"] {
            let rewritten =
                to_standalone(&json!({keyword: [to, true], "definitions": {"a": {}}})).unwrap();
            assert_eq!(rewritten, json!({keyword: [moved, {}], "$defs": {"a": {}}}));
        }
        for keyword in ["dependentSchemas", "patternProperties", "properties"] {
            let rewritten =
                to_standalone(&json!({keyword: {"x": to, "y": false}, "definitions": {"a": {}}}))
                    .unwrap();
            assert_eq!(
                rewritten,
                json!({keyword: {"x": moved, "y": {"not": {}}}, "$defs": {"a": {}}})
            );
        }
    }

    #[test]
    fn older_keywords_are_replaced_by_meaning() {
        for (schema, rewritten) in [
            (
                json!({"additionalProperties": false, "not": true}),
                json!({"additionalProperties": false, "not": {}}),
            ),
            (
                json!({"items": {}, "additionalItems": {"type": "null"}}),
                json!({"items": {}}),
            ),
            (
                json!({"maximum": 3, "exclusiveMaximum": true}),
                json!({"exclusiveMaximum": 3}),
            ),
            (
                json!({"minimum": 3, "exclusiveMinimum": false}),
                json!({"minimum": 3}),
            ),
            (
                json!({"minimum": 3, "maximum": 4}),
                json!({"minimum": 3, "maximum": 4}),
            ),
            (
                json!({"exclusiveMinimum": 3, "exclusiveMaximum": 4}),
                json!({"exclusiveMinimum": 3, "exclusiveMaximum": 4}),
            ),
            (
                json!({"$id": "https://example.com/t", "not": {"$ref": "https://example.com/t"}}),
                json!({"not": {"$ref": "#"}}),
            ),
        ] {
            assert_eq!(to_standalone(&schema), Some(rewritten));
        }
        assert_eq!(
            to_standalone(
                &json!({"properties": {"a": {"$id": "https://example.com/a", "type": "string"}}})
            ),
            Some(json!({"properties": {"a": {"type": "string"}}}))
        );
    }

    #[test]
    fn standalone_schema_is_self_contained() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/t.json", "type": "object",
            "title": "Arguments",
            "properties": {
                "anything": true,
                "nothing": false,
                "all": {"$ref": "#"},
                "word": {"$ref": "https://example.com/t.json#/definitions/a~1word", "title": "W", "description": "A word"},
                "other": {"$ref": "#/definitions/deep/definitions/a.word"},
                "list": {"type": ["array", "null"]},
                "pair": {"type": "array", "items": [{"type": "integer"}]},
            },
            "definitions": {
                "a/word": {"type": "string"},
                "deep": {"definitions": {"a.word": {"type": "integer", "title": "Deep"}}},
                "unused": {"type": "string"},
            },
        });
        let rewritten = json!({
            "type": "object",
            "title": "Arguments",
            "properties": {
                "anything": {},
                "nothing": {"not": {}},
                "all": {"$ref": "#"},
                "word": {"$ref": "#/$defs/a_word", "description": "A word"},
                "other": {"$ref": "#/$defs/a_word_2"},
                "list": {"type": ["array", "null"], "items": {}},
                "pair": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {}},
            },
            "$defs": {"a_word": {"type": "string"}, "a_word_2": {"type": "integer", "title": "Deep"}},
        });
        assert_eq!(to_standalone(&schema), Some(rewritten.clone()));
        assert_eq!(
            to_standalone(&rewritten),
            Some(rewritten),
            "what is plain already stays as it is"
        );
    }

    #[test]
    fn references_within_a_named_part_lead_from_the_root() {
        let schema = json!({
            "$id": "https://shop.example/order", "properties": {"a": {"$ref": "address"}, "b": {"$ref": "address#/properties/city"},
            "c": {"$ref": "https://shop.example/address#town"}, "d": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$id": "address", "properties": {"city": {"$anchor": "town"}, "of": {"$ref": "#"}, "to": {"$ref": "#/properties/city"}}}}
        });
        let expected = json!({
            "$id": "https://shop.example/order", "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/$defs/a/properties/city"},
            "c": {"$ref": "#/$defs/a/properties/city"}, "d": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"properties": {"city": {"$anchor": "town"}, "of": {"$ref": "#/$defs/a"}, "to": {"$ref": "#/$defs/a/properties/city"}}}}
        });
        assert_eq!(resolve_references(&schema), Some(expected));
    }

    #[test]
    fn plain_names_become_pointers() {
        let schema = json!({"$id": "https://shop.example/order", "properties": {"$id": {"$ref": "#town"}},
        "$defs": {"a": {"$id": "#name"}, "b": {"$anchor": "town"}}, "$ref": "#name"});
        let expected = json!({"$id": "https://shop.example/order", "properties": {"$id": {"$ref": "#/$defs/b"}},
        "$defs": {"a": {"$id": "#name"}, "b": {"$anchor": "town"}}, "$ref": "#/$defs/a"});
        assert_eq!(resolve_references(&schema), Some(expected));
    }

    #[test]
    fn reference_that_leads_outside_stays() {
        let schema = json!({"properties": {"a": {"$ref": "elsewhere"}}});
        assert_eq!(resolve_references(&schema), Some(schema));
    }
}
