//! What a foreign schema permits and an own one refuses.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::call::JsonObject;

fn compile(schema: &Value, owner: SchemaOwner) -> Schema {
    Schema::compile_input(Arc::new(schema.clone()), owner).unwrap()
}

/// A schema with one property `x`.
fn of_x(x: &Value) -> Value {
    json!({"type": "object", "properties": {"x": x}})
}

/// The arguments as the tool gets them, or the first message; and a warning.
fn fit(schema: &Schema, arguments: Value) -> (Result<Value, String>, Option<String>) {
    let mut arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    let meter = Meter::new(MAX_STEPS, None);
    let fitted = match schema.fit_arguments(&mut arguments, true, &meter) {
        Ok(_) => Ok(Value::Object(arguments)),
        Err(FitError::Violations(violations)) => Err(violations[0].message.clone()),
        Err(FitError::Stopped(stop)) => panic!("{stop:?}"),
    };
    (fitted, meter.unjudged_warning())
}

fn is_accepted(x: &Value, owner: SchemaOwner, value: Value) -> bool {
    fit(&compile(&of_x(x), owner), json!({"x": value}))
        .0
        .is_ok()
}

#[test]
fn default_that_does_not_fit_is_not_filled_in() {
    for (x, filled) in [
        (json!({"type": "integer", "default": null}), json!({})),
        (
            json!({"type": "array", "items": {"type": "string"}, "default": null}),
            json!({}),
        ),
        (
            json!({"type": "integer", "exclusiveMinimum": 0, "default": 0}),
            json!({}),
        ),
        (
            json!({"type": "object", "properties": {"y": {"type": "string"}}, "default": {"y": 1}}),
            json!({}),
        ),
        (json!({"$ref": "#/$defs/n", "default": "many"}), json!({})),
        (json!({"type": "integer", "default": 3}), json!({"x": 3})),
        (
            json!({"type": ["integer", "null"], "default": null}),
            json!({"x": null}),
        ),
    ] {
        let mut schema = of_x(&x);
        schema["$defs"] = json!({"n": {"type": "integer"}});
        schema["properties"]["other"] = json!({"default": "kept"});
        schema["required"] = json!(["must"]);
        let schema = compile(&schema, SchemaOwner::Foreign);
        let (fitted, _) = fit(&schema, json!({"must": 1}));
        let mut expected = json!({"must": 1, "other": "kept"});
        expected
            .as_object_mut()
            .unwrap()
            .extend(filled.as_object().unwrap().clone());
        assert_eq!(fitted, Ok(expected), "{x}");
        assert_eq!(
            schema.misfit_defaults().is_empty(),
            filled != json!({}),
            "{x}"
        );
    }
}

#[test]
fn one_form_that_fits_is_enough_for_foreign_schemas() {
    let forms = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    let both = json!({"oneOf": [{"type": "integer"}, {"type": "number"}], "anyOf": [{"minimum": 3}, {"maximum": 1}]});
    for (value, foreign, own) in [(5, true, false), (2, false, false)] {
        assert_eq!(
            is_accepted(&both, SchemaOwner::Foreign, json!(value)),
            foreign
        );
        assert_eq!(is_accepted(&both, SchemaOwner::Own, json!(value)), own);
    }
    assert!(is_accepted(&forms, SchemaOwner::Foreign, json!(5)));
    assert!(!is_accepted(&forms, SchemaOwner::Foreign, json!("5")));
    assert!(!is_accepted(&forms, SchemaOwner::Own, json!(5)));
    let named = json!({"type": "object", "properties": {"oneOf": {"type": "string"}}});
    assert!(
        !is_accepted(&named, SchemaOwner::Foreign, json!({"oneOf": 1})),
        "a property may have any name"
    );
}

#[test]
fn enum_of_another_type_takes_both_spellings() {
    for (x, good, bad) in [
        (
            json!({"type": "string", "enum": [4.1, 4]}),
            vec![json!("4.1"), json!(4.1), json!("4"), json!(4)],
            json!("5"),
        ),
        (
            json!({"type": "integer", "enum": ["1", "2"]}),
            vec![json!(1), json!("2")],
            json!(3),
        ),
        (
            json!({"type": "boolean", "enum": ["true"]}),
            vec![json!(true), json!("true")],
            json!(false),
        ),
        (
            json!({"type": "string", "enum": ["a", null]}),
            vec![json!("a")],
            json!(null),
        ),
    ] {
        for value in good {
            assert!(
                is_accepted(&x, SchemaOwner::Foreign, value.clone()),
                "{x} {value}"
            );
        }
        assert!(!is_accepted(&x, SchemaOwner::Foreign, bad), "{x}");
    }
    let x = json!({"type": "string", "enum": [4.1]});
    assert!(!is_accepted(&x, SchemaOwner::Own, json!("4.1")));
}

#[test]
fn time_without_an_offset_is_for_python_and_others() {
    let (moment, day) = (
        json!({"type": "string", "format": "date-time"}),
        json!({"type": "string", "format": "date"}),
    );
    for (owner, is_permitted) in [
        (SchemaOwner::Own, false),
        (SchemaOwner::Derived, true),
        (SchemaOwner::Foreign, true),
    ] {
        assert_eq!(
            is_accepted(&moment, owner, json!("2024-05-05T10:00:00")),
            is_permitted
        );
        assert!(is_accepted(&moment, owner, json!("2024-05-05T10:00:00Z")));
        assert!(!is_accepted(&moment, owner, json!("soon")));
        assert!(!is_accepted(&day, owner, json!("soon")));
        let output = Schema::compile_output(Arc::new(moment.clone()), owner).unwrap();
        assert_eq!(
            output.violations(&json!("soon")).is_empty(),
            owner.is_foreign()
        );
    }
}

#[test]
fn patterns_may_look_around() {
    let password = json!({"type": "string", "pattern": r"^(?=.*[A-Z])(?=.*\d).{8,}$"});
    for owner in [SchemaOwner::Own, SchemaOwner::Foreign] {
        assert!(is_accepted(&password, owner, json!("Abcdefg1")));
        let (fitted, warning) = fit(&compile(&of_x(&password), owner), json!({"x": "abcdefg1"}));
        assert_eq!(
            fitted,
            Err(r"`x` must match the pattern ^(?=.*[A-Z])(?=.*\d).{8,}$.".into())
        );
        assert_eq!(warning, None);
        assert!(
            !is_accepted(&password, owner, json!("Abcdefg١")),
            "\\d is 0 to 9 in ECMA-262"
        );
    }
    // Beside it, a pattern of the other kind, and the other places of a pattern.
    let more = json!({"type": "object", "propertyNames": {"pattern": "^(?!_)"}, "properties": {
        "a": {"pattern": "^(?<q>['\"]).*\\k<q>$"}, "b": {"pattern": "^[a-z/]+$"}, "c": {"not": {"pattern": "^(?!x)"}}}});
    for (value, is_good) in [
        (json!({"a": "'x'", "b": "a/b", "c": "x"}), true),
        (json!({"a": "'x\""}), false),
        (json!({"b": "A"}), false),
        (json!({"c": "y"}), false),
        (json!({"_d": 1}), false),
    ] {
        assert_eq!(
            is_accepted(&more, SchemaOwner::Own, value.clone()),
            is_good,
            "{value}"
        );
    }
}

/// Patterns that zod writes: `z.email()` of 3.25 and early 4.x, `z.hostname()`, `z.iso.duration()`
/// and `z.emoji()` of 4.6. Before the last, the one of pydantic 2.10 to 2.12 for Decimal.
#[test]
fn patterns_of_zod_and_pydantic_are_judged() {
    for (pattern, good, bad) in [
        (
            r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
            "ann@shop.example",
            "ann..b@shop.example",
        ),
        (
            r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$",
            "shop.example",
            "-shop.example",
        ),
        (
            r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
            "P1DT2H",
            "P1DT",
        ),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "1.50", "-"),
        (
            r"^(\p{Extended_Pictographic}|\p{Emoji_Component})+$",
            "🦀",
            "crab",
        ),
    ] {
        let x = json!({"type": "string", "pattern": pattern});
        for owner in [SchemaOwner::Own, SchemaOwner::Foreign] {
            let (fitted, warning) = fit(&compile(&of_x(&x), owner), json!({"x": good}));
            assert_eq!((fitted.is_ok(), warning), (true, None), "{pattern}");
            assert!(!is_accepted(&x, owner, json!(bad)), "{pattern}");
        }
    }
}

#[test]
fn pattern_that_takes_too_long_refuses_only_in_own_schemas() {
    let x = json!({"type": "string", "pattern": r"^(a|a)*\1b$"});
    let text = format!("{}!", "a".repeat(60));
    let (fitted, warning) = fit(&compile(&of_x(&x), SchemaOwner::Own), json!({"x": text}));
    assert!(fitted.unwrap_err().contains("takes too long to compare"));
    assert_eq!(warning, None);
    let (fitted, warning) = fit(
        &compile(&of_x(&x), SchemaOwner::Foreign),
        json!({"x": text}),
    );
    assert!(fitted.is_ok());
    assert_eq!(
        warning.unwrap(),
        r"a text takes too long to compare with the pattern ^(a|a)*\1b$, so it is passed on unchecked"
    );
    // A long text is work, too.
    let long = json!({"x": "a".repeat(100_000)});
    let x = json!({"type": "string", "pattern": "^(?!b)"});
    let (fitted, warning) = fit(&compile(&of_x(&x), SchemaOwner::Foreign), long);
    assert!(fitted.is_ok() && warning.is_some());
}

#[test]
fn pattern_that_nothing_can_judge_stands_in_the_description() {
    let nested = json!({"type": "string", "description": "A word", "pattern": "^(?=(?=a)a)"});
    let broken = json!({"type": "string", "pattern": "^[a-z"});
    for (x, owner, description) in [
        (&nested, SchemaOwner::Own, "A word. Pattern: ^(?=(?=a)a)"),
        (
            &nested,
            SchemaOwner::Foreign,
            "A word. Pattern: ^(?=(?=a)a)",
        ),
        (&broken, SchemaOwner::Foreign, "Pattern: ^[a-z"),
    ] {
        assert!(is_accepted(x, owner, json!("b")), "{x}");
        let described = describe_unjudged_patterns(&of_x(x), owner).unwrap();
        assert_eq!(
            described["properties"]["x"],
            json!({"type": "string", "description": description})
        );
    }
    let own = Schema::compile_input(Arc::new(of_x(&broken)), SchemaOwner::Own);
    assert!(
        own.err()
            .unwrap()
            .message
            .contains("is not a regular expression")
    );
    assert_eq!(
        describe_unjudged_patterns(&of_x(&json!({"pattern": "^(?!a)"})), SchemaOwner::Own),
        None
    );
}

#[test]
fn names_whose_pattern_cannot_be_judged_are_all_permitted() {
    let x = json!({"type": "object", "patternProperties": {"^(?!_)": {"type": "integer"}, "^a": {"type": "string"}},
        "additionalProperties": false});
    assert!(is_accepted(
        &x,
        SchemaOwner::Foreign,
        json!({"b": "any", "a": "text"})
    ));
    assert!(!is_accepted(&x, SchemaOwner::Foreign, json!({"a": 1})));
    assert!(Schema::compile_input(Arc::new(of_x(&x)), SchemaOwner::Own).is_err());
}

#[test]
fn texts_below_optional_objects_are_converted() {
    let schema = compile(
        &json!({"type": "object", "$defs": {"m": {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"}}}},
            "properties": {"x": {"anyOf": [{"$ref": "#/$defs/m"}, {"type": "null"}]}}}),
        SchemaOwner::Own,
    );
    let fit = |value: Value| {
        let mut arguments: JsonObject = serde_json::from_value(json!({"x": value})).unwrap();
        let meter = Meter::new(MAX_STEPS, None);
        let fitted = schema.fit_arguments(&mut arguments, false, &meter).is_ok();
        (fitted, arguments["x"].clone())
    };
    assert_eq!(
        fit(json!({"n": "5", "t": "6"})),
        (true, json!({"n": 5, "t": "6"}))
    );
    assert_eq!(fit(json!("{\"n\": \"5\"}")), (true, json!({"n": 5})));
    assert_eq!(fit(json!({"n": "five"})), (false, json!({"n": "five"})));
    assert_eq!(
        fit(json!({"n": "5", "t": 6})),
        (false, json!({"n": "5", "t": 6}))
    );
}
