//! Tests the values of expressions, refused expressions, and bounds on cost.

use serde_json::{Value as Json, json};

use super::*;

fn holds(text: &str, result: Json) -> Result<bool, String> {
    let arguments = json!({"city": "Oslo", "days": 3});
    compile_predicate(text)
        .unwrap()
        .evaluate(arguments.as_object().unwrap(), &ToolResult::json(result))
}

#[test]
fn condition_sees_arguments_and_result() {
    let weather = json!({"temperature": 0, "place": {"name": "Oslo"}, "list": [1, 2], "id": 9_007_199_254_740_993_u64});
    for (text, expected) in [
        ("result.temperature is defined", true),
        ("result.temprature is defined", false),
        ("result.temperature", false),
        (
            "result.temperature == 0 and result.place.name == args.city",
            true,
        ),
        ("result.no.such.thing > 3", false),
        ("result.list|length == 2", true),
        ("result['list'][1] == 2 and 2 in result.list", true),
        (
            "result.id == 9007199254740993 and result.id != 9007199254740992",
            true,
        ),
        ("args.days is not number", false),
        ("not args.nothing", true),
        ("'%} is|no(' != result.place.name", true),
        ("true", true),
    ] {
        assert_eq!(holds(text, weather.clone()), Ok(expected), "{text}");
    }
    assert_eq!(
        holds("result is string and 'sun' in result", json!("a sunny day")),
        Ok(true)
    );
    assert_eq!(
        holds(
            "result.temperature is defined",
            json!("a text has no fields")
        ),
        Ok(false)
    );
    assert_eq!(holds("result", Json::Null), Ok(false));
}

#[test]
fn invalid_condition_error_lists_valid_names() {
    for (text, expected) in [
        ("", "not an expression"),
        ("result.", "not an expression"),
        ("result.temperature is", "not an expression"),
        ("true) %}{{ result }}{% if (true", "not an expression"),
        (
            "temperature > 3",
            "there is no `temperature`: an expression knows args and result",
        ),
        ("range(3)", "there is no `range`"),
        ("debug()", "there is no `debug`"),
        ("result|lenght > 1", "there is no filter `lenght`"),
        ("result is not definde", "there is no test `definde`"),
        ("result.items()", "no methods"),
        ("'result.temperature > 3'", "leave the quotes around it out"),
    ] {
        let error = compile_predicate(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert!(compile_predicate(&format!("'{}' == result", "x".repeat(MAX_EXPRESSION_LEN))).is_err());
}

#[test]
fn field_of_a_caller_or_run_is_an_error() {
    for text in ["caller.name == 'alice'", "args.n > 3 and run.id == 'r'"] {
        let error = compile_call_condition(text).unwrap_err();
        assert!(
            error.contains("are texts without fields"),
            "{text}: {error}"
        );
    }
    assert!(compile_call_condition("caller == 'alice' and run is defined").is_ok());
}

#[test]
fn failing_expression_gives_a_reason() {
    let error = holds("result|abs > 1", json!({"a": 1})).unwrap_err();
    assert!(error.contains("abs"), "{error}");
    let most = ["result.a == 1"; 200].join(" and ");
    assert_eq!(holds(&most, json!({"a": 1})), Ok(true));
    let deep = format!("{}result{}", "(".repeat(1000), ")".repeat(1000));
    assert!(compile_predicate(&deep).is_err());
}

#[test]
fn arithmetic_accepts_only_numbers() {
    let result = json!({"a": 3, "b": 4, "list": [{"price": 2, "ok": true}, {"price": 5, "ok": false}], "text": " Yes "});
    for (text, expected) in [
        ("result.a|float + result.b|float == 7", true),
        ("result.a + 1 == 4 and 1 + result.a == 4", true),
        ("result.a|int * 2 == 6", true),
        ("(result.a - 1) * (result.b / 2) == 4", true),
        ("-result.a * 2 == -6", true),
        ("result.a + 1 + result.b == 8", true),
        ("result.list|map(attribute='price')|sum == 7", true),
        (
            "result.list|selectattr('ok')|length == 1 and result.list|rejectattr('ok')|length == 1",
            true,
        ),
        (
            "result.list|map(attribute='price')|select('gt', 3)|first == 5",
            true,
        ),
        (
            "result.list|map(attribute='price')|max == 5 and result.list|map(attribute='price')|min == 2",
            true,
        ),
        (
            "result.text|trim|lower == 'yes' and result.text[1:2] == 'Y'",
            true,
        ),
        (
            "result.a|string == '3' and args.city in ['Oslo', 'Rome'] and args.days not in [-1, (1, 2)]",
            true,
        ),
        (
            "result.nothing|lower == '' and result.nothing|default(1) == 1",
            true,
        ),
    ] {
        assert_eq!(holds(text, result.clone()), Ok(expected), "{text}");
    }
    for text in [
        "result.text + 1 == 2",
        "result.list|sum > 1",
        "result.list|string == ''",
        "result.list|lower == ''",
        "result.list|map('join', 'a')|first",
        "result.list|select('safe')|first",
    ] {
        assert!(holds(text, result.clone()).is_err(), "{text}");
    }
}

#[test]
fn copying_filters_share_a_budget() {
    let text = json!("x".repeat(4 << 20));
    let nested = |times: usize| {
        format!(
            "{}true{}",
            "(result|lower) == (".repeat(times),
            ")".repeat(times)
        )
    };
    assert_eq!(holds(&nested(7), text.clone()), Ok(false));
    assert!(
        holds(&nested(9), text)
            .unwrap_err()
            .contains("copy at most")
    );
    let list = json!(vec![0; 1 << 20]);
    assert!(
        holds("result|map('string')|map('string')|length > 1", list)
            .unwrap_err()
            .contains("copy at most")
    );
}

/// Every filter and test, with values that made others grow. Each must be fast, whatever it
/// returns.
#[test]
fn every_filter_is_bounded() {
    let long = "a".repeat(1 << 16);
    let arguments = json!({"v": long, "n": 2_147_483_647, "name": "lower"});
    let arguments = arguments.as_object().unwrap().clone();
    let results = [
        json!("a".repeat(1 << 16)),
        json!("9".repeat(1 << 14)),
        json!("ΐ".repeat(1 << 14)),
        json!(vec![0; 1 << 13]),
        json!(vec!["a"; 1 << 12]),
        json!({"a": vec![vec!["a"; 16]; 1 << 8]}),
        json!(1e308),
        json!(18_446_744_073_709_551_615_u64),
    ];
    let mut texts = Vec::new();
    for filter in filters::FILTERS {
        for with in [
            "",
            "(args.v)",
            "(args.n)",
            "(args.name)",
            "(attribute=args.v)",
            "(default=args.v)",
            "('a', args.v)",
        ] {
            texts.push(format!("result|{filter}{with} == args.v"));
        }
        texts.push(format!("result{} == 1", format!("|{filter}").repeat(300)));
    }
    for test in filters::TESTS
        .iter()
        .filter(|test| test.starts_with(char::is_alphabetic))
    {
        texts.push(format!("result is {test}"));
        texts.push(format!("result is {test}(args.v)"));
        texts.push(format!("result|select('{test}', args.v)|length > 1"));
    }
    for operator in ["-", "/", "//", "%", "**", "==", "<", "in"] {
        texts.push(format!("result {operator} args.v"));
        texts.push(format!("args.n {operator} args.n {operator} args.n"));
    }
    for text in texts {
        let Ok(when) = compile_predicate(&text) else {
            continue;
        };
        for result in &results {
            let result = ToolResult::json(result.clone());
            let began = std::time::Instant::now();
            let _ = when.evaluate(&arguments, &result);
            // A debug build on a busy machine needs seconds. An unbounded filter would take
            // minutes, or all memory.
            assert!(
                began.elapsed().as_secs() < 20,
                "{text}: {:?}",
                began.elapsed()
            );
        }
    }
}
