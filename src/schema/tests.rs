use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::call::{Coercion, JsonObject, Violation};
use crate::secrets::REDACTED;

fn schema(value: Value) -> Schema {
    Schema::compile_input(Arc::new(value), SchemaOwner::Own).unwrap()
}

#[derive(Debug)]
struct FitResult {
    arguments: JsonObject,
    coercions: Vec<Coercion>,
}

fn fit_lenient(schema: &Schema, arguments: Value) -> Result<FitResult, Vec<Violation>> {
    fit_as(schema, arguments, false)
}

fn fit_as(schema: &Schema, arguments: Value, strict: bool) -> Result<FitResult, Vec<Violation>> {
    let mut arguments = arguments.as_object().unwrap().clone();
    match schema.fit_arguments(&mut arguments, strict, &Meter::new(MAX_STEPS, None)) {
        Ok(coercions) => Ok(FitResult {
            arguments,
            coercions,
        }),
        Err(FitError::Violations(violations)) => Err(violations),
        Err(FitError::Stopped(stop)) => panic!("{stop:?}"),
    }
}

#[test]
fn every_violation_is_reported_with_its_pointer() {
    let schema = schema(json!({
        "type": "object", "additionalProperties": false, "required": ["city", "when"],
        "properties": {
            "city": {"type": "string"}, "when": {"type": "string", "format": "date"},
            "days": {"type": "integer", "minimum": 1}, "units": {"enum": ["c", "f"]},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}}
        }
    }));
    let bad =
        json!({"when": "soon", "days": 0, "units": "k", "tags": ["ok", "NO"], "ctiy": "Oslo"});
    let mut found: Vec<_> = fit_lenient(&schema, bad)
        .unwrap_err()
        .into_iter()
        .map(|v| (v.pointer, v.keyword, v.message))
        .collect();
    found.sort();
    let places: Vec<_> = found
        .iter()
        .map(|(pointer, keyword, _)| (pointer.as_str(), keyword.as_str()))
        .collect();
    assert_eq!(
        places,
        [
            ("/city", "required"),
            ("/ctiy", "additionalProperties"),
            ("/days", "minimum"),
            ("/tags/1", "pattern"),
            ("/units", "enum"),
            ("/when", "format")
        ]
    );
    assert!(
        found[1].2.contains("did you mean `city`?"),
        "{}",
        found[1].2
    );
}

#[test]
fn violations_describe_the_expected_value() {
    let long: Vec<String> = (0..25).map(|n| format!("o{n}")).collect();
    let schema = schema(json!({
        "type": "object", "additionalProperties": false, "required": ["must"],
        "properties": {
            "must": {"type": "integer", "description": "How many."},
            "one": {"enum": ["c", 1]}, "many": {"enum": long}, "same": {"const": {"a": [1]}},
            "min": {"minimum": 2}, "max": {"maximum": 2}, "more": {"exclusiveMinimum": 2}, "less": {"exclusiveMaximum": 2},
            "third": {"multipleOf": 3}, "long": {"minLength": 2}, "short": {"maxLength": 2},
            "few": {"minItems": 2}, "lot": {"maxItems": 2}, "thin": {"minProperties": 2}, "wide": {"maxProperties": 1},
            "set": {"uniqueItems": true}, "word": {"pattern": "^[a-z]+$"}, "day": {"format": "date"},
            "holds": {"contains": {"type": "integer"}}, "never": false, "type": {"type": ["object", "string"]},
            "form": {"anyOf": [{"type": "integer", "maximum": 1}, {"type": "array"}]},
            "two": {"oneOf": [{"type": "integer"}, {"minimum": 1}]}, "not": {"not": {"type": "null"}},
            "flag": {"type": "integer"}, "map": {"type": "string"}, "list": {"type": "string"}
        }
    }));
    let bad = json!({
        "one": "k", "many": "k", "same": {}, "min": 1, "max": 3, "more": 2, "less": 2.5, "third": 4, "long": "a", "short": "abc",
        "few": [1], "lot": [1, 2, 3], "thin": {"a": 1}, "wide": {"a": 1, "b": 2}, "set": [1, 1], "word": "A", "day": "soon",
        "holds": ["a"], "never": 1, "type": [1], "form": "x", "two": 3, "not": null, "flag": true, "map": {}, "list": null
    });
    let mut messages: Vec<String> = fit_as(&schema, bad, true)
        .unwrap_err()
        .into_iter()
        .map(|v| v.message)
        .collect();
    messages.sort_unstable();
    let options: Vec<String> = (0..20).map(|n| format!("\"o{n}\"")).collect();
    let many = format!(
        "`many` must be one of {}, … (25 in all), not \"k\".",
        options.join(", ")
    );
    assert_eq!(
        messages,
        [
            "`day` must be a valid date.",
            "`few` must have at least 2 items, not 1.",
            "`flag` must be an integer, not true.",
            "`form` fits none of the allowed forms (it must be an integer, not this string; or it must be an array, not this \
             string).",
            "`holds` must contain an item of the described form.",
            "`less` must be less than 2, not 2.5.",
            "`list` must be a string, not null.",
            "`long` must have at least 2 characters.",
            "`lot` must have at most 2 items, not 3.",
            &many,
            "`map` must be a string, not an object.",
            "`max` must be at most 2, not 3.",
            "`min` must be at least 2, not 1.",
            "`more` must be more than 2, not 2.",
            "`must` is required (integer: How many).",
            "`never` is not allowed here.",
            "`not` {\"type\":\"null\"} is not allowed for value.",
            "`one` must be one of \"c\", 1, not \"k\".",
            "`same` must be {\"a\":[1]}, not an object.",
            "`set` must not hold the same item twice.",
            "`short` must have at most 2 characters.",
            "`thin` must have at least 2 properties, not 1.",
            "`third` must be a multiple of 3, not 4.",
            "`two` fits more than one of the allowed forms; it must fit exactly one.",
            "`type` must be a string or an object, not an array.",
            "`wide` must have at most 1 property, not 2.",
            "`word` must match the pattern ^[a-z]+$.",
        ]
    );
}

#[test]
fn unknown_parameters_get_a_hint() {
    let known: serde_json::Map<String, Value> =
        (0..20).map(|n| (format!("p{n:02}"), json!({}))).collect();
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    for (properties, hint) in [
        (json!({}), "; it takes none.".to_owned()),
        (json!(known), format!("; there are: {}.", names.join(", "))),
        (json!({"city": {}}), "; did you mean `city`?".to_owned()),
    ] {
        let schema = schema(
            json!({"type": "object", "additionalProperties": false, "properties": properties}),
        );
        let violations = fit_lenient(&schema, json!({"ctiy": 1})).unwrap_err();
        assert_eq!(
            violations[0].message,
            format!("`ctiy` is not a parameter{hint}")
        );
    }
}

#[test]
fn write_only_scalars_are_not_quoted() {
    let schema = schema(
        json!({"type": "object", "properties": {"pin": {"type": "string", "writeOnly": true}}}),
    );
    for (pin, messages) in [(json!(true), "this boolean"), (json!(7), "this number")] {
        let violations = fit_lenient(&schema, json!({"pin": pin})).unwrap_err();
        assert_eq!(
            violations[0].message,
            format!("`pin` must be a string, not {messages}.")
        );
    }
    assert!(schema.has_write_only());
}

#[test]
fn violations_end_after_64_kib() {
    let options: Vec<String> = (0..20).map(|n| format!("{n}").repeat(100)).collect();
    let schema = schema(
        json!({"type": "object", "properties": {"n": {"type": "array", "items": {"enum": options}}}}),
    );
    let violations = fit_lenient(&schema, json!({"n": vec!["x"; 40]})).unwrap_err();
    let sizes: Vec<usize> = violations
        .iter()
        .map(|v| v.pointer.len() + v.message.len())
        .collect();
    let (bytes, last) = (sizes.iter().sum::<usize>(), sizes.last().unwrap());
    assert!(
        bytes > 64 << 10 && bytes - last <= 64 << 10,
        "{} violations, {bytes} bytes",
        violations.len()
    );
}

#[test]
fn coercion_stops_above_ten_thousand_misfits() {
    let schema = schema(
        json!({"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}),
    );
    let numbers = |count: usize| json!({"n": vec!["1"; count]});
    assert_eq!(
        fit_lenient(&schema, numbers(10_000))
            .unwrap()
            .coercions
            .len(),
        10_000
    );
    assert_eq!(fit_lenient(&schema, numbers(10_001)).unwrap_err().len(), 50);
}

#[test]
fn json_strings_are_coerced_by_type() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "text": {"type": "string"}
        }
    }));
    let fitting = fit_lenient(
        &schema,
        json!({"n": "5", "list": "[1, \"2\"]", "maybe": "true", "text": "5"}),
    )
    .unwrap();
    assert_eq!(
        Value::Object(fitting.arguments),
        json!({"n": 5, "list": [1, 2], "maybe": true, "text": "5"})
    );
    let pointers: Vec<_> = fitting
        .coercions
        .iter()
        .map(|c| (c.pointer.as_str(), c.to.as_str()))
        .collect();
    assert_eq!(
        pointers,
        [
            ("/list", "array"),
            ("/list/1", "integer"),
            ("/maybe", "boolean"),
            ("/n", "integer")
        ]
    );
}

#[test]
fn misfit_conversions_are_not_made() {
    let schema =
        schema(json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 10}}}));
    let violations = fit_lenient(&schema, json!({"n": "5"})).unwrap_err();
    assert_eq!(
        (violations[0].keyword.as_str(), violations.len()),
        ("type", 1)
    );
    assert!(fit_as(&schema, json!({"n": "15"}), true).is_err());
}

#[test]
fn defaults_are_filled_in() {
    let schema =
        schema(json!({"type": "object", "properties": {"units": {"default": "c"}, "x": {}}}));
    assert_eq!(
        Value::Object(fit_lenient(&schema, json!({})).unwrap().arguments),
        json!({"units": "c"})
    );
}

#[test]
fn write_only_values_are_not_recorded() {
    let schema = schema(json!({"type": "object", "properties": {
        "user": {"type": "string"}, "password": {"type": "string", "writeOnly": true},
        "keys": {"type": "array", "items": {"type": "object", "properties": {"secret": {"writeOnly": true}}}}
    }}));
    let arguments = json!({"user": "ann", "password": "x", "keys": [{"id": 1, "secret": [2]}]});
    let recorded = schema.redact_write_only(arguments.as_object().unwrap());
    let expected =
        json!({"user": "ann", "password": REDACTED, "keys": [{"id": 1, "secret": REDACTED}]});
    assert_eq!(Value::Object((*recorded).clone()), expected);
}

#[test]
fn write_only_follows_references_and_json_strings() {
    let schema = schema(json!({"type": "object",
        "properties": {"login": {"$ref": "#/$defs/login"}, "note": {"type": "string"}, "tree": {"$ref": "#/$defs/tree"}},
        "additionalProperties": {"anyOf": [{"type": "null"}, {"writeOnly": true}]},
        "$defs": {
            "login": {"type": "object", "properties": {"user": {}, "password": {"writeOnly": true}}},
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "pin": {"writeOnly": true}}}
        }
    }));
    for (given, kept) in [
        (
            json!({"login": {"user": "a", "password": "x"}}),
            json!({"login": {"user": "a", "password": REDACTED}}),
        ),
        (
            json!({"login": "{\"password\": \"x\"}", "note": "n"}),
            json!({"login": REDACTED, "note": "n"}),
        ),
        (json!({"other": "x"}), json!({"other": REDACTED})),
        (
            json!({"tree": {"left": {"left": {"pin": 1}}}}),
            json!({"tree": {"left": {"left": {"pin": REDACTED}}}}),
        ),
    ] {
        let recorded = schema.redact_write_only(given.as_object().unwrap());
        assert_eq!(Value::Object((*recorded).clone()), kept);
    }
}

#[test]
fn only_write_only_values_are_unquoted() {
    let schema = schema(json!({"type": "object", "properties": {
        "user": {"type": "integer", "minimum": 1}, "pin": {"type": "integer", "minimum": 100_000, "writeOnly": true},
        "code": {"anyOf": [{"maximum": 5, "writeOnly": true}, {"type": "null"}]}}}));
    let violations =
        fit_lenient(&schema, json!({"user": -7, "pin": 4711, "code": 9321})).unwrap_err();
    let mut messages: Vec<&str> = violations
        .iter()
        .map(|violation| violation.message.as_str())
        .collect();
    messages.sort_unstable();
    assert_eq!(
        messages,
        [
            "`code` fits none of the allowed forms (it must be at most 5, not this number; or it must be null, not this number).",
            "`pin` must be at least 100000, not this number.",
            "`user` must be at least 1, not -7.",
        ]
    );
}

#[test]
fn redaction_ends_for_cyclic_schemas() {
    let schema = schema(
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}, "pin": {"writeOnly": true}},
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
    );
    let given = json!({"x": {"y": 1}, "pin": 2});
    let recorded = schema.redact_write_only(given.as_object().unwrap());
    assert_eq!(recorded["pin"], REDACTED);
}

#[test]
fn long_lists_take_no_more_validations() {
    let schema = schema(
        json!({"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}),
    );
    let passes = |length: usize| {
        let numbers: Vec<Value> = (0..length).map(|n| n.to_string().into()).collect();
        let meter = Meter::new(MAX_STEPS, None);
        let mut arguments = json!({"n": numbers}).as_object().unwrap().clone();
        let coercions = schema.fit_arguments(&mut arguments, false, &meter).unwrap();
        assert_eq!(
            (coercions.len(), &arguments["n"][length - 1]),
            (length, &json!(length - 1))
        );
        meter.passes()
    };
    assert_eq!((passes(1), passes(5000)), (4, 4));
}

#[test]
fn arguments_survive_an_early_end() {
    let schema = schema(json!({"type": "object", "properties": {
        "n": {"type": "array", "items": {"type": "integer"}}, "o": {"type": "object"}, "s": {"type": "boolean"}}}));
    let given = json!({"n": r#"["1", "2", [], "3"]"#, "o": "{}", "s": "no"});
    let given = given.as_object().unwrap();
    let mut ends = 0;
    for steps in 1.. {
        let mut arguments = given.clone();
        match schema.fit_arguments(&mut arguments, false, &Meter::new(steps, None)) {
            Err(FitError::Stopped(_)) => assert_eq!(&arguments, given, "{steps}"),
            _ => break,
        }
        ends = steps;
    }
    assert!(ends > 20, "{ends}");
}

#[test]
fn null_in_a_string_stays_a_string() {
    let schema =
        schema(json!({"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}));
    let violations = fit_lenient(&schema, json!({"n": "null"})).unwrap_err();
    assert_eq!(
        violations[0].message,
        "`n` must be null or an integer, not this string."
    );
    assert_eq!(
        fit_lenient(&schema, json!({"n": "4"})).unwrap().arguments["n"],
        4
    );
    assert_eq!(
        fit_lenient(&schema, json!({"n": null})).unwrap().arguments["n"],
        Value::Null
    );
}

#[test]
fn unusable_schemas_are_refused() {
    for (bad, expected) in [
        (
            json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
            "/properties/a/type",
        ),
        (json!({"type": "array"}), "type: object"),
        (json!({"type": "object", "$ref": "#"}), "never ends"),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x.json"}}}),
            "example.com",
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}),
            "passwd",
        ),
        (
            json!({"type": "object", "properties": {"a": {"pattern": "(a{1000}){1000}{1000}"}}}),
            "/properties/a/pattern: the patterns",
        ),
        (
            json!({"type": "object", "properties": {"a": {"pattern": "("}}}),
            "(",
        ),
    ] {
        let messages = Schema::compile_input(Arc::new(bad), SchemaOwner::Own)
            .err()
            .unwrap()
            .to_string();
        assert!(messages.contains(expected), "{messages}");
    }
}

#[test]
fn schema_faults_have_pointers() {
    for (bad, place) in [
        (
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x.json"}}}),
            "/properties/a",
        ),
        (
            json!({"type": "object", "allOf": [{}, {"$ref": "https://example.com/x.json"}]}),
            "/allOf/1",
        ),
        (
            json!({"type": "object", "allOf": [{"properties": {"b": {"$ref": "x.json#/a"}}}]}),
            "/allOf/0/properties/b",
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            "/",
        ),
    ] {
        let fault = Schema::compile_input(Arc::new(bad), SchemaOwner::Own)
            .err()
            .unwrap();
        assert!(fault.pointer.starts_with(place), "{fault:?}");
    }
}

#[test]
fn const_and_enum_compare_by_value() {
    let schema = schema(json!({"type": "object", "properties": {
        "text": {"const": "abc"}, "number": {"const": 1}, "list": {"const": [1, {"a": "b"}]}, "null": {"const": null},
        "one": {"enum": ["a", 2, [3], {"b": null}]}}}));
    let fits = |value: Value| fit_as(&schema, value, true).is_ok();
    for good in [
        json!({"text": "abc", "number": 1.0, "list": [1.0, {"a": "b"}], "null": null}),
        json!({"one": "a"}),
        json!({"one": 2.0}),
        json!({"one": [3]}),
        json!({"one": {"b": null}}),
    ] {
        assert!(fits(good.clone()), "{good}");
    }
    for bad in [
        json!({"text": "abd"}),
        json!({"text": 1}),
        json!({"number": "1"}),
        json!({"number": 2}),
        json!({"list": [1, {"a": "c"}]}),
        json!({"list": {}}),
        json!({"null": 0}),
        json!({"one": [4]}),
        json!({"one": {"b": 1}}),
        json!({"one": null}),
    ] {
        assert!(!fits(bad.clone()), "{bad}");
    }
}

#[test]
fn recursive_schemas_work() {
    let tree = schema(json!({
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "name": {"type": "string"}}
    }));
    assert!(fit_lenient(&tree, json!({"children": [{"children": [], "name": "a"}]})).is_ok());
    let violations =
        fit_lenient(&tree, json!({"children": [{"children": [{"name": {}}]}]})).unwrap_err();
    assert_eq!(violations[0].pointer, "/children/0/children/0/name");
}

#[test]
fn backtracking_pattern_runs_in_linear_time() {
    let schema = schema(
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}),
    );
    let began = std::time::Instant::now();
    assert!(fit_lenient(&schema, json!({"a": format!("{}!", "a".repeat(50_000))})).is_err());
    assert!(began.elapsed().as_secs() < 2);
}
