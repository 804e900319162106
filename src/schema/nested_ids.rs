//! Rewrites a schema so that all references lead from its root by JSON Pointers. Readers of such a
//! schema need to know neither `$id` nor `$anchor`.

use std::collections::HashMap;

use serde_json::Value;
use url::Url;

use super::keywords::{REFERENCES, parts_mut, subschemas};

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
