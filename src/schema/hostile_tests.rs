//! Tests with schemas and values that are designed to be expensive.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::call::Coercion;

/// `levels` definitions. Each refers to the next one twice, through `link`.
fn doubling(levels: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}});
    for level in 0..levels {
        schema["$defs"][format!("d{level}")] =
            link(json!({"$ref": format!("#/$defs/d{}", level + 1)}));
    }
    schema["$defs"][format!("d{levels}")] = json!({"type": "integer"});
    schema
}

fn compile_error(schema: Value) -> String {
    let fault = Schema::compile_input(Arc::new(schema), SchemaOwner::Own)
        .err()
        .unwrap();
    assert!(fault.is_too_large, "{fault}");
    fault.to_string()
}

fn compiled(schema: Value) -> Schema {
    Schema::compile_input(Arc::new(schema), SchemaOwner::Own).unwrap()
}

/// The result of fitting arguments, and the steps that it took.
fn fit_counting(
    schema: &Schema,
    arguments: &Value,
    steps: u64,
) -> (Result<Vec<Coercion>, FitError>, u64) {
    let meter = Meter::new(steps, None);
    let fitted = schema.fit_arguments(&mut arguments.as_object().unwrap().clone(), false, &meter);
    (fitted, steps - meter.remaining())
}

fn violations(schema: &Schema, arguments: &Value, steps: u64) -> Vec<crate::call::Violation> {
    match fit_counting(schema, arguments, steps) {
        (Err(FitError::Violations(violations)), _) => violations,
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn doubling_schemas_are_refused() {
    type Link = fn(Value) -> Value;
    let links: [Link; 7] = [
        |next| json!({"allOf": [next, next]}),
        |next| json!({"anyOf": [next, next]}),
        |next| json!({"oneOf": [next, next], "not": {"const": 7}}),
        |next| json!({"properties": {"x": next, "y": next}}),
        |next| json!({"items": next, "contains": next}),
        |next| json!({"if": next, "else": next}),
        |next| json!({"unevaluatedProperties": next, "patternProperties": {"^x": next}}),
    ];
    for link in links {
        let message = compile_error(doubling(25, link));
        assert!(
            message.starts_with("/$defs/d") && message.contains("50000 subschemas"),
            "{message}"
        );
        assert!(Schema::compile_input(Arc::new(doubling(10, link)), SchemaOwner::Own).is_ok());
    }
}

#[test]
fn doubling_through_anchors_is_refused() {
    let mut anchored = json!({"type": "object", "$ref": "#n0"});
    let mut identified = json!({"type": "object", "$id": "https://example.com/root", "$ref": "n0"});
    let mut dynamic = json!({"type": "object", "$dynamicRef": "#n0"});
    for level in 0..25 {
        let next = level + 1;
        let place = format!("d{level}");
        anchored["$defs"][&place] = json!({"$anchor": format!("n{level}"),
            "allOf": [{"$ref": format!("#n{next}")}, {"$ref": format!("#n{next}")}]});
        identified["$defs"][&place] = json!({"$id": format!("https://example.com/n{level}"),
            "allOf": [{"$ref": format!("n{next}")}, {"$ref": format!("https://example.com/n{next}#")}]});
        dynamic["$defs"][&place] = json!({"$dynamicAnchor": format!("n{level}"),
            "allOf": [{"$dynamicRef": format!("#n{next}")}, {"$ref": format!("#n{next}")}]});
    }
    // The spelling of drafts 4 and 7.
    for word in ["id", "$id"] {
        let mut older = json!({"type": "object", "$ref": "#n0", "$defs": {"last": {word: "#n25"}}});
        for level in 0..25 {
            older["$defs"][format!("d{level}")] = json!({word: format!("#n{level}"),
                "allOf": [{"$ref": format!("#n{}", level + 1)}, {"$ref": format!("#n{}", level + 1)}]});
        }
        compile_error(older);
    }
    anchored["$defs"]["last"] = json!({"$anchor": "n25"});
    identified["$defs"]["last"] = json!({"$id": "https://example.com/n25"});
    dynamic["$defs"]["last"] = json!({"$dynamicAnchor": "n25"});
    for schema in [anchored, identified, dynamic] {
        compile_error(schema);
    }
}

#[test]
fn recursion_counts_once() {
    let mut schema = json!({"type": "object", "properties": {"node": {"$ref": "#/$defs/n0"}}});
    for node in 0..40 {
        let kinds: Vec<Value> = (0..40)
            .map(|other| json!({"$ref": format!("#/$defs/n{other}")}))
            .collect();
        schema["$defs"][format!("n{node}")] = json!({"type": "object", "required": [format!("k{node}")],
            "properties": {format!("k{node}"): {"type": "array", "items": {"anyOf": kinds}}}});
    }
    // Forty kinds of nodes that may contain each other. The order in which they are visited decides
    // how each is counted.
    if let Err(fault) = Schema::compile_input(Arc::new(schema), SchemaOwner::Own) {
        panic!("{fault}");
    }
}

#[test]
fn large_flat_schemas_pass() {
    let leaf = |n: usize| json!({"type": ["string", "null"], "description": "Says what this field is for.".repeat(n % 9)});
    let group = |_: usize| -> Value {
        let fields: serde_json::Map<String, Value> =
            (0..100).map(|n| (format!("field_{n}"), leaf(n))).collect();
        json!({"type": "object", "properties": fields, "additionalProperties": false})
    };
    let groups: serde_json::Map<String, Value> =
        (0..60).map(|n| (format!("group_{n}"), group(n))).collect();
    let schema = compiled(json!({"type": "object", "properties": groups}));
    let found = violations(&schema, &json!({"group_3": {"field_7": 1}}), INLINE_STEPS);
    assert_eq!(found[0].pointer, "/group_3/field_7");
}

#[test]
fn loops_for_one_value_are_refused() {
    let mut schema = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/n0"}}});
    for node in 0..14 {
        let others: Vec<Value> = (0..14)
            .map(|other| json!({"$ref": format!("#/$defs/n{other}")}))
            .collect();
        schema["$defs"][format!("n{node}")] = json!({"allOf": others});
    }
    compile_error(schema);
}

#[test]
fn long_chains_are_refused_or_harmless() {
    let chain = |links: usize, link: fn(Value) -> Value| {
        let mut schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}});
        for level in 0..links {
            schema["$defs"][format!("d{level}")] =
                link(json!({"$ref": format!("#/$defs/d{}", level + 1)}));
        }
        schema["$defs"][format!("d{links}")] = json!({"type": "integer"});
        schema
    };
    assert!(compile_error(chain(5000, |next| json!({"allOf": [next]}))).contains("100 subschemas"));
    let schema = compiled(chain(5000, |next| json!({"properties": {"a": next}})));
    let mut value = json!(1);
    for _ in 0..120 {
        value = json!({"a": value});
    }
    assert!(fit_counting(&schema, &value, INLINE_STEPS).0.is_ok());
    let schema = compiled(chain(45, |next| json!({"allOf": [next]})));
    assert_eq!(
        violations(&schema, &json!({"a": "x"}), INLINE_STEPS).len(),
        1
    );
}

#[test]
fn deep_recursion_does_not_overflow() {
    // Forty combinations for each level of the value, and 120 levels.
    let mut node = json!({"properties": {"a": {"$ref": "#/$defs/n"}}});
    for _ in 0..40 {
        node = json!({"allOf": [node]});
    }
    let schema = compiled(json!({"type": "object", "$ref": "#/$defs/n", "$defs": {"n": node}}));
    let mut value = json!({});
    for _ in 0..120 {
        value = json!({"a": value});
    }
    let (fitted, _) = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || fit_counting(&schema, &value, MAX_STEPS))
        .unwrap()
        .join()
        .unwrap();
    assert!(
        matches!(fitted, Ok(_) | Err(FitError::Stopped(StopReason::Work))),
        "{fitted:?}"
    );
}

fn forms() -> Schema {
    let form = |names: [&str; 2]| {
        json!({"type": "object", "required": names, "additionalProperties": false,
            "properties": {names[0]: {"type": "integer"}, names[1]: {"type": "string"}}})
    };
    compiled(
        json!({"type": "object", "properties": {"items": {"type": "array",
        "items": {"anyOf": [form(["a", "b"]), form(["c", "d"]), {"type": "null"}]}}}}),
    )
}

#[test]
fn validation_stops_after_enough_violations() {
    let schema = forms();
    let few = violations(&schema, &json!({"items": [{}, null, {}]}), INLINE_STEPS);
    let many = json!({"items": vec![json!({}); 300_000]});
    let (found, steps) = fit_counting(&schema, &many, MAX_STEPS);
    let Err(FitError::Violations(found)) = found else {
        panic!("{found:?}")
    };
    assert_eq!((found.len(), &found[0]), (50, &few[0]));
    assert_eq!(found[49].pointer, "/items/49");
    assert!(steps < 400_000, "{steps}");
}

#[test]
fn unknown_names_are_bounded() {
    let schema = compiled(
        json!({"type": "object", "additionalProperties": false, "properties": {"city": {}}}),
    );
    let names: serde_json::Map<String, Value> =
        (0..70_000).map(|n| (format!("cit{n}"), json!(1))).collect();
    let found = violations(&schema, &Value::Object(names), MAX_STEPS);
    assert_eq!((found.len(), found[0].pointer.as_str()), (50, "/cit0"));
}

#[test]
fn errors_below_long_names_are_bounded() {
    let schema =
        compiled(json!({"type": "object", "additionalProperties": {"items": {"type": "integer"}}}));
    let found = violations(
        &schema,
        &json!({"k".repeat(100_000): vec![json!("x"); 20_000]}),
        MAX_STEPS,
    );
    let bytes: usize = found
        .iter()
        .map(|violation| violation.pointer.len() + violation.message.len())
        .sum();
    assert!(
        (1..50).contains(&found.len()) && bytes < 300_000,
        "{} {bytes}",
        found.len()
    );
}

#[test]
fn combination_over_long_list_is_one_violation() {
    let list = |kind: &str| json!({"type": "array", "items": {"type": kind}});
    let schema = compiled(
        json!({"type": "object", "properties": {"n": {"anyOf": [list("integer"), list("null")]}}}),
    );
    let found = violations(&schema, &json!({"n": vec![json!({}); 200_000]}), MAX_STEPS);
    assert_eq!(
        (
            found.len(),
            found[0].pointer.as_str(),
            found[0].keyword.as_str()
        ),
        (1, "/n", "anyOf")
    );
    assert!(
        found[0]
            .message
            .starts_with("`n` fits none of the allowed forms (it must be an integer"),
        "{found:?}"
    );
}

#[test]
fn converging_branches_stop_in_time() {
    let branch = json!({"properties": {"a": {"$ref": "#/$defs/n"}}});
    let schema = compiled(
        json!({"type": "object", "properties": {"bad": {"type": "integer"}, "a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"allOf": [branch, branch]}}}),
    );
    let mut value = json!({});
    for _ in 0..100 {
        value = json!({"a": value});
    }
    value["bad"] = json!([]);
    let (found, steps) = fit_counting(&schema, &value, 500_000);
    assert!(found.is_err() && steps <= 500_000, "{found:?} {steps}");
}

#[test]
fn unique_items_take_linear_time() {
    // Lists that differ only in the nesting of empty lists.
    fn shape(number: u32) -> Value {
        let (mut open, mut bits) = (vec![Vec::new()], number);
        for _ in 0..16 {
            if bits % 2 == 0 {
                open.push(Vec::new());
            } else if open.len() > 1 {
                let done = open.pop().unwrap();
                open.last_mut().unwrap().push(Value::Array(done));
            }
            bits /= 2;
        }
        while open.len() > 1 {
            let done = open.pop().unwrap();
            open.last_mut().unwrap().push(Value::Array(done));
        }
        Value::Array(open.pop().unwrap())
    }
    let schema = compiled(json!({"type": "object", "properties": {"l": {"uniqueItems": true}}}));
    let mut shapes: Vec<Value> = (0..40_000).map(shape).collect();
    shapes.sort_by_cached_key(Value::to_string);
    shapes.dedup();
    assert!(
        shapes.len() > 1000
            && fit_counting(&schema, &json!({"l": shapes}), MAX_STEPS)
                .0
                .is_ok()
    );
    shapes.push(shapes[500].clone());
    assert_eq!(
        violations(&schema, &json!({"l": shapes}), MAX_STEPS)[0].keyword,
        "uniqueItems"
    );
    for (list, is_unique) in [
        (json!([1, 1.0]), false),
        (json!([0.0, -0.0]), false),
        (
            json!([
                18_446_744_073_709_551_615_u64,
                18_446_744_073_709_551_614_u64
            ]),
            true,
        ),
        (json!([{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]), false),
        (json!([[1, [2]], [[1], 2], [1, 2]]), true),
        (json!(["1", 1, true, null]), true),
    ] {
        assert_eq!(
            fit_counting(&schema, &json!({"l": list}), INLINE_STEPS)
                .0
                .is_ok(),
            is_unique,
            "{list}"
        );
    }
}

#[test]
fn wide_patterns_and_long_texts_are_stopped() {
    let schema = compiled(
        json!({"type": "object", "properties": {"t": {"pattern": "^(a|b)*a(a|b){2000}c"}}}),
    );
    let (found, _) = fit_counting(&schema, &json!({"t": "ab".repeat(400_000)}), MAX_STEPS);
    assert!(
        matches!(found, Err(FitError::Stopped(StopReason::Work))),
        "{found:?}"
    );
    assert_eq!(
        violations(&schema, &json!({"t": "abc"}), INLINE_STEPS)[0].keyword,
        "pattern"
    );
    let plain = compiled(
        json!({"type": "object", "properties": {"t": {"pattern": "^[a-z ]*$", "minLength": 3}}}),
    );
    assert!(
        fit_counting(&plain, &json!({"t": "ab ".repeat(300_000)}), MAX_STEPS)
            .0
            .is_ok()
    );
}

#[test]
fn large_patterns_are_refused() {
    let of = |pattern: &str| json!({"type": "object", "properties": {"a": {"pattern": pattern}}});
    assert!(compile_error(of("((a{1,100}){1,100}){1,100}")).starts_with("/properties/a/pattern: "));
    assert!(compile_error(of(&"a|".repeat(5000))).contains("8192 are allowed"));
    compiled(of("^[\\w.-]{0,256}$"));
}
