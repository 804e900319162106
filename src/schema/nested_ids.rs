//! Rewrites a schema whose parts have an `$id` of their own, so that all references lead from the
//! root of the schema. Readers of such a schema need not know `$id`.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use url::Url;

use super::keywords::{KeywordKind, REFERENCES, keyword_kind, subschemas};

/// The base of a schema without an absolute `$id`.
const NO_BASE: &str = "schema://root/";

/// The JSON Pointers of the parts that an `$id` names, and of the plain names within them.
type Resources = HashMap<String, String>;

/// The schema without any `$id` below its root. `None` if a reference leads outside.
pub(super) fn resolve_nested_ids(schema: &Value) -> Option<Cow<'_, Value>> {
    let base = Url::parse(NO_BASE).ok()?;
    let (mut resources, mut has_nested) = (Resources::new(), false);
    collect(
        schema,
        &base,
        &mut String::new(),
        &mut resources,
        &mut has_nested,
    );
    if !has_nested {
        return Some(Cow::Borrowed(schema));
    }
    let mut rewritten = schema.clone();
    rewrite(&mut rewritten, &base, true, &resources)?;
    Some(Cow::Owned(rewritten))
}

/// The base of the references in a schema. In draft 7 and earlier, `#name` is a plain name.
fn base_of(schema: &Value, outer: &Url) -> Option<Url> {
    let id = schema.get("$id")?.as_str()?;
    match id.starts_with('#') {
        true => None,
        false => outer.join(id.trim_end_matches('#')).ok(),
    }
}

fn collect(
    schema: &Value,
    outer: &Url,
    pointer: &mut String,
    resources: &mut Resources,
    has_nested: &mut bool,
) {
    let own = base_of(schema, outer);
    if own.is_some() || pointer.is_empty() {
        *has_nested |= !pointer.is_empty();
        let base = own.as_ref().unwrap_or(outer);
        resources.insert(base.to_string(), pointer.clone());
    }
    let base = own.as_ref().unwrap_or(outer);
    for word in ["$anchor", "$dynamicAnchor"] {
        if let Some(name) = schema.get(word).and_then(Value::as_str) {
            resources.insert(format!("{base}#{name}"), pointer.clone());
        }
    }
    for (token, subschema) in subschemas(schema) {
        let length = pointer.len();
        pointer.push_str(&token);
        collect(subschema, base, pointer, resources, has_nested);
        pointer.truncate(length);
    }
}

/// `None` if a reference leads outside.
fn rewrite(schema: &mut Value, outer: &Url, is_root: bool, resources: &Resources) -> Option<()> {
    let own = base_of(schema, outer);
    let base = own.as_ref().unwrap_or(outer);
    let Value::Object(fields) = schema else {
        return Some(());
    };
    if own.is_some() && !is_root {
        fields.shift_remove("$id");
    }
    for (keyword, value) in fields.iter_mut() {
        if REFERENCES.contains(&keyword.as_str()) {
            let reference = value.as_str()?;
            *value = root_reference(reference, base, resources)?.into();
            continue;
        }
        match (keyword_kind(keyword, value), value) {
            (KeywordKind::Schema, part) => rewrite(part, base, false, resources)?,
            (KeywordKind::List, Value::Array(parts)) => parts
                .iter_mut()
                .try_for_each(|part| rewrite(part, base, false, resources))?,
            (KeywordKind::ByName, Value::Object(parts)) => parts
                .values_mut()
                .try_for_each(|part| rewrite(part, base, false, resources))?,
            _ => {}
        }
    }
    Some(())
}

/// A reference as one from the root of the schema.
fn root_reference(reference: &str, base: &Url, resources: &Resources) -> Option<String> {
    let mut url = base.join(reference).ok()?;
    let fragment = url.fragment().unwrap_or_default().to_owned();
    url.set_fragment(None);
    if fragment.is_empty() || fragment.starts_with('/') {
        let pointer = resources.get(url.as_str())?;
        return Some(format!("#{}{fragment}", encode_fragment(pointer)));
    }
    let pointer = resources.get(&format!("{url}#{fragment}"))?;
    Some(format!("#{}", encode_fragment(pointer)))
}

/// A JSON Pointer as a fragment (RFC 6901, 6): only `%` would change its meaning.
fn encode_fragment(pointer: &str) -> String {
    pointer.replace('%', "%25")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolved(schema: &Value) -> Option<Value> {
        resolve_nested_ids(schema).map(Cow::into_owned)
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
        assert_eq!(resolved(&schema), Some(expected));
    }

    #[test]
    fn schema_without_nested_ids_stays() {
        for schema in [
            json!({"$id": "https://shop.example/order", "properties": {"$id": {"type": "string"}}}),
            json!({"$defs": {"a": {"$id": "#name"}}, "$ref": "#name"}),
            json!({"$ref": "other"}),
        ] {
            assert!(
                matches!(resolve_nested_ids(&schema), Some(Cow::Borrowed(_))),
                "{schema}"
            );
        }
    }

    #[test]
    fn reference_that_leads_outside_is_none() {
        let schema = json!({"properties": {"a": {"$id": "a", "$ref": "elsewhere"}}});
        assert_eq!(resolved(&schema), None);
    }
}
