//! What the types accept, and how the two languages write them.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::kind::{Declared, Object, Rest, Type};
use super::names::Names;
use super::schema_reader::declare;
use super::{Language, render_types};

/// The types of a schema for arguments or for results.
fn types_of(schema: &Value, is_argument: bool) -> Vec<Declared> {
    declare(schema, "T".to_owned(), is_argument, &mut Names::default())
}

/// Whether a value has a type.
fn accepts(kind: &Type, value: &Value, named: &HashMap<String, Type>) -> bool {
    let fits = |kind: &Type, value: &Value| accepts(kind, value, named);
    match kind {
        Type::Unknown => true,
        Type::Never => false,
        Type::Null => value.is_null(),
        Type::Boolean => value.is_boolean(),
        Type::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Type::Number => value.is_number(),
        Type::Text => value.is_string(),
        Type::Literal(literal) => match literal.as_f64() {
            Some(number) => value.as_f64() == Some(number),
            None => literal == value,
        },
        Type::List(item) => {
            let items = value.as_array();
            items.is_some_and(|items| items.iter().all(|one| fits(item, one)))
        }
        Type::Tuple {
            items,
            required,
            rest,
        } => value.as_array().is_some_and(|values| {
            values.len() >= *required
                && values
                    .iter()
                    .enumerate()
                    .all(|(at, value)| match items.get(at) {
                        Some(item) => fits(item, value),
                        None => rest.as_ref().is_some_and(|rest| fits(rest, value)),
                    })
        }),
        Type::Object(Object { fields, rest }) => value.as_object().is_some_and(|members| {
            let field_of = |name: &str| fields.iter().find(|field| field.name == name);
            let present = fields
                .iter()
                .all(|field| !field.is_required || members.contains_key(&field.name));
            present
                && members.iter().all(|(name, value)| match field_of(name) {
                    Some(field) => fits(&field.kind, value),
                    None => match rest {
                        Rest::Nothing => false,
                        Rest::Unstated => true,
                        Rest::Of(rest) => fits(rest, value),
                    },
                })
        }),
        Type::Any(forms) => forms.iter().any(|form| fits(form, value)),
        Type::All(parts) => parts.iter().all(|part| fits(part, value)),
        Type::Named(name) => fits(&named[name], value),
    }
}

fn schema_accepts(schema: &Value, is_argument: bool, value: &Value) -> bool {
    let declared = types_of(schema, is_argument);
    let kinds = declared.into_iter().map(|one| (one.name, one.kind));
    accepts(&Type::Named("T".to_owned()), value, &kinds.collect())
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-1..3_i64).prop_map(Value::from),
        Just(json!(1.0)),
        Just(json!(1.5)),
        "[ab]{0,1}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[abx]", inner, 0..3)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Schemas of all keywords that the reader knows, and of some that it does not.
fn any_schema() -> impl Strategy<Value = Value> {
    let word = || {
        prop::sample::select(vec![
            "object", "array", "string", "number", "integer", "boolean", "null",
        ])
    };
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        Just(json!({})),
        word().prop_map(|word| json!({"type": word})),
        (word(), word()).prop_map(|(one, other)| match one == other {
            true => json!({"type": one}),
            false => json!({"type": [one, other]}),
        }),
        any_value().prop_map(|value| json!({"const": value})),
        (word(), prop::collection::vec(any_value(), 1..3))
            .prop_map(|(word, values)| json!({"type": word, "enum": values})),
        prop::sample::select(vec!["#", "#/$defs/A", "#/$defs/B"])
            .prop_map(|target| json!({"$ref": target})),
        Just(json!({"required": ["a"]})),
        Just(json!({"type": "object", "required": ["x"], "additionalProperties": false})),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..3);
        let keyword = |word: &'static str| inner.clone().prop_map(move |one| json!({word: one}));
        prop_oneof![
            (some(), any::<bool>()).prop_map(|(all, is_closed)| json!({"type": "object", "required": ["a"],
                "properties": all.into_iter().zip(["a", "b"]).map(|(one, name)| (name.to_owned(), one)).collect::<Value>(),
                "additionalProperties": !is_closed})),
            (some(), keyword("additionalProperties")).prop_map(|(all, rest)| merge(
                json!({"properties": {"a": all[0]}, "patternProperties": {"^b": all.last()}}),
                rest
            )),
            (some(), inner.clone(), 0..4_u64).prop_map(|(first, rest, least)| json!({"type": "array", "prefixItems": first,
                "items": rest, "minItems": least})),
            keyword("items"),
            keyword("not"),
            keyword("contains"),
            keyword("unevaluatedProperties"),
            (prop::sample::select(vec!["anyOf", "oneOf", "allOf"]), some(), inner.clone())
                .prop_map(|(word, forms, base)| merge(base, json!({word: forms}))),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(one, two, three)| json!({"if": one, "then": two, "else": three})),
        ]
    })
}

/// Both schemas in one, unless the first is a boolean.
fn merge(base: Value, more: Value) -> Value {
    match (base, more) {
        (Value::Object(mut base), Value::Object(more)) => {
            base.extend(more);
            base.into()
        }
        (_, more) => more,
    }
}

proptest! {
    #[test]
    fn types_are_never_narrower_than_their_schema(
        root in any_schema(), one in any_schema(), two in any_schema(), values in prop::collection::vec(any_value(), 24),
    ) {
        let schema = merge(json!({"$defs": {"A": one, "B": two}}), root);
        let Ok(validator) = jsonschema::validator_for(&schema) else { return Ok(()) };
        for value in values {
            // A schema that refers to itself without end has no answer.
            let is_valid = !refers_to_itself(&schema) && validator.is_valid(&value);
            if is_valid {
                prop_assert!(schema_accepts(&schema, false, &value), "{value} by {schema}");
                if value.is_object() {
                    prop_assert!(schema_accepts(&schema, true, &value), "arguments {value} by {schema}");
                }
            }
        }
    }

    #[test]
    fn every_schema_becomes_a_file(root in any_schema(), one in any_schema(), output in any_schema()) {
        let schema = merge(json!({"$defs": {"A": one, "B": {}}}), root);
        let tools = [json!({"name": "t", "input_schema": schema, "output_schema": output})];
        for language in [Language::Typescript, Language::Python] {
            let text = render_types(language, &tools);
            prop_assert_eq!(&text, &render_types(language, &tools));
            prop_assert!(text.contains("TArguments") && text.contains("TResult"));
        }
    }
}

/// Whether a reference may lead back to its own schema for the same value.
fn refers_to_itself(schema: &Value) -> bool {
    schema.to_string().contains("$ref\":\"#\"") || {
        let text = schema["$defs"].to_string();
        text.contains("$ref")
    }
}

fn typescript(input: Value, output: Value) -> String {
    let tool =
        json!({"name": "t", "description": "", "input_schema": input, "output_schema": output});
    render_types(Language::Typescript, &[tool])
}

fn python(input: Value, output: Value) -> String {
    let tool =
        json!({"name": "t", "description": "", "input_schema": input, "output_schema": output});
    render_types(Language::Python, &[tool])
}

fn assert_lines(text: &str, lines: &[&str]) {
    let found = text.lines().map(str::trim).collect::<Vec<_>>();
    for line in lines {
        assert!(found.contains(line), "`{line}` is not in\n{text}");
    }
}

#[test]
fn parameters_with_a_default_may_be_missing() {
    let schema = json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
        "properties": {"a": {"type": "integer", "default": 3}, "b": {"type": "string"}}});
    assert_lines(
        &typescript(schema.clone(), Value::Null),
        &["a?: number;", "b: string;"],
    );
    assert_lines(
        &typescript(json!({}), schema.clone()),
        &["a: number;", "b: string;"],
    );
    assert_lines(
        &python(schema, Value::Null),
        &["\"a\": NotRequired[int],", "\"b\": str,"],
    );
}

#[test]
fn open_objects_are_as_open_as_the_language_permits() {
    let unstated = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let mut stated = unstated.clone();
    stated["additionalProperties"] = json!({"type": "integer"});
    let unknown = "[key: string]: unknown;";
    assert_lines(&typescript(unstated.clone(), Value::Null), &[unknown]);
    assert!(
        !typescript(json!({"additionalProperties": false}), unstated.clone()).contains(unknown)
    );
    let numbers = "[key: string]: number | string | undefined;";
    assert_lines(&typescript(stated.clone(), Value::Null), &[numbers]);
    assert_lines(
        &python(unstated, Value::Null),
        &["\"a\": NotRequired[str],"],
    );
    assert_lines(
        &python(stated, Value::Null),
        &["TArguments: TypeAlias = Mapping[str, Any]"],
    );
}

#[test]
fn tuples_lists_and_literals_are_written() {
    let schema = json!({"type": "object", "additionalProperties": false, "properties": {
        "pair": {"type": "array", "prefixItems": [{"type": "number"}, {"type": ["string", "null"]}], "items": false, "minItems": 1},
        "words": {"type": "array", "items": {"type": "string"}},
        "kinds": {"type": "array", "items": {"enum": ["a", "b", 1, true, null]}},
        "half": {"const": 0.5},
    }});
    assert_lines(
        &typescript(schema.clone(), Value::Null),
        &[
            "pair?: [number, (string | null)?];",
            "words?: string[];",
            "kinds?: (\"a\" | \"b\" | 1 | true | null)[];",
            "half?: 0.5;",
        ],
    );
    assert_lines(
        &python(schema.clone(), Value::Null),
        &[
            "\"pair\": NotRequired[Sequence[Union[float, str, None]]],",
            "\"words\": NotRequired[list[str]],",
            "\"kinds\": NotRequired[Sequence[Union[Literal[\"a\", \"b\", 1, True], None]]],",
            "\"half\": NotRequired[float],",
        ],
    );
    assert_lines(
        &python(json!({}), schema),
        &["\"pair\": NotRequired[list[Union[float, str, None]]],"],
    );
}

#[test]
fn odd_names_and_descriptions_break_nothing() {
    let input = json!({"type": "object", "additionalProperties": false, "required": ["a-b", "class"], "properties": {
        "a-b": {"type": "string", "description": "Ends */ here\n@ts-ignore"},
        "class": {"type": "string", "description": "type: ignore"},
        "\"\n": {"type": "string"}}});
    let tool = |name: &str| json!({"name": name, "description": "Says \"hi\" */ \\", "input_schema": input});
    let tools = [tool("get-it"), tool("get.it"), tool("1st")];
    let text = render_types(Language::Typescript, &tools);
    assert_lines(
        &text,
        &[
            "\"get-it\": { arguments: GetItArguments; result: unknown };",
            "\"get.it\": { arguments: GetItArguments2; result: unknown };",
            "\"1st\": { arguments: N1stArguments; result: unknown };",
            "/** Says \"hi\" *\\/ \\ */",
            "* Ends *\\/ here",
            "class: string;",
            "\"\\\"\\n\"?: string;",
        ],
    );
    let text = render_types(Language::Python, &tools);
    assert_lines(
        &text,
        &[
            "\"Says \\\"hi\\\" */ \\\\\"",
            "#: type: ignore",
            "\"a-b\": str,",
            "class GetItAnswer2(toolcrib.ToolAnswer):",
        ],
    );
}

#[test]
fn recursive_types_refer_to_themselves() {
    let schema = json!({"$ref": "#/$defs/node", "$defs": {
        "node": {"type": "object", "additionalProperties": false, "properties": {
            "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}, "any": {"$ref": "#/$defs/endless"}}},
        "endless": {"anyOf": [{"$ref": "#/$defs/endless"}, {"type": "string"}]}}});
    assert_lines(
        &typescript(schema.clone(), Value::Null),
        &[
            "kids?: TArguments[];",
            "any?: TArgumentsEndless;",
            "export type TArgumentsEndless = unknown;",
        ],
    );
    assert_lines(
        &python(schema, Value::Null),
        &[
            "\"kids\": NotRequired[Sequence[\"TArguments\"]],",
            "TArgumentsEndless: TypeAlias = Any",
        ],
    );
}

#[test]
fn what_cannot_be_expressed_is_wider() {
    let both = json!({"type": "object", "additionalProperties": false, "properties": {"a": {}, "b": {}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let text = typescript(both.clone(), Value::Null);
    assert!(text.contains("} & ({\n"), "{text}");
    assert_lines(&python(both, Value::Null), &["\"a\": NotRequired[Any],"]);
    let outside =
        json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/other"}}});
    assert_lines(
        &python(outside, Value::Null),
        &["TArguments: TypeAlias = Mapping[str, Any]"],
    );
    let parts = json!({"allOf": [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "integer"}}}]});
    assert_lines(
        &python(parts, Value::Null),
        &[
            "TArguments: TypeAlias = \"TArguments2\"",
            "\"a\": str,",
            "\"b\": NotRequired[int],",
        ],
    );
}

#[test]
fn object_that_contains_itself_merged_with_another_ends() {
    let schema = json!({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {
        "kid": {"allOf": [{"$ref": "#/$defs/t"}, {"type": "object", "properties": {"more": {}}}]}}}}});
    assert_lines(
        &python(schema, Value::Null),
        &["\"kid\": NotRequired[\"TArguments\"],"],
    );
}

#[test]
fn tools_stand_in_the_order_of_their_names() {
    let tools = [json!({"name": "b"}), json!({"name": "a"})];
    let text = render_types(Language::Typescript, &tools);
    assert!(text.find("    a:") < text.find("    b:"), "{text}");
}
