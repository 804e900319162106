use std::time::Instant;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn repair(text: &str, may_close: bool) -> Result<Repaired, UnreadableArguments> {
    read_arguments(&RawArguments::Text(text.to_owned()), false, may_close)
}

#[track_caller]
fn assert_reads_as(text: &str, expected: Value) -> Vec<String> {
    let repaired =
        repair(text, false).unwrap_or_else(|refused| panic!("{text}: {}", refused.detail));
    assert_eq!(Value::Object(repaired.arguments), expected, "{text}");
    repaired.repairs
}

#[test]
fn strict_json_needs_no_repair() {
    for (text, expected) in [
        (r#"{"a": 1}"#, json!({"a": 1})),
        (" {} ", json!({})),
        ("", json!({})),
        (" \n", json!({})),
        ("null", json!({})),
        (
            r#"{"a": "it's \"so\" // no comment # none, True"}"#,
            json!({"a": "it's \"so\" // no comment # none, True"}),
        ),
    ] {
        assert_eq!(
            assert_reads_as(text, expected),
            Vec::<String>::new(),
            "{text}"
        );
    }
}

#[test]
fn unambiguous_json_is_repaired_and_reported() {
    for (text, expected, expected_repair) in [
        ("{'a': 'b \"c\"'}", json!({"a": "b \"c\""}), "single quotes"),
        (
            "{'it': \"it's\", 'that': 'it\\'s'}",
            json!({"it": "it's", "that": "it's"}),
            "single quotes",
        ),
        (r#"{"a": "it\'s"}"#, json!({"a": "it's"}), "was read as '"),
        (
            r#"{"a": [1, 2,], "b": {"c": 3,},}"#,
            json!({"a": [1, 2], "b": {"c": 3}}),
            "before closing brackets",
        ),
        (
            "{\"a\": 1, // one\n \"b\": /* two */ 2 # done\n}",
            json!({"a": 1, "b": 2}),
            "comments",
        ),
        (
            "{a: 1, b_2: 'x', $c-d: null, 'e f': 2}",
            json!({"a": 1, "b_2": "x", "$c-d": null, "e f": 2}),
            "keys without",
        ),
        (
            r#"{"a": True, "b": [False, None]}"#,
            json!({"a": true, "b": [false, null]}),
            "True, False or None",
        ),
        (
            "{\"a\": \"one\ntwo\tthree\"}",
            json!({"a": "one\ntwo\tthree"}),
            "line ends or tabs",
        ),
        ("```json\n{\"a\": 1}\n```", json!({"a": 1}), "around"),
        (
            "Here are the arguments:\n```\n{\"a\": 1}\n```\nShall I?",
            json!({"a": 1}),
            "around",
        ),
        ("arguments: {\"a\": 1}", json!({"a": 1}), "around"),
        (
            r#""{\"a\": \"b\\n\"}""#,
            json!({"a": "b\n"}),
            "inside a JSON string",
        ),
        (r#"'{"a": 1}'"#, json!({"a": 1}), "inside a JSON string"),
        (
            "{“a”: “b \"c\" d”}",
            json!({"a": "b \"c\" d"}),
            "curly quotes",
        ),
        (
            r#"{"a": 1 "b": true "c": {} "d": [{} {}]}"#,
            json!({"a": 1, "b": true, "c": {}, "d": [{}, {}]}),
            "missing commas",
        ),
        (
            r#"{"a": {"b": 1}}}"#,
            json!({"a": {"b": 1}}),
            "after the end",
        ),
        (
            "{'smile': '\\ud83d\\ude00 \\u00e9'}",
            json!({"smile": "😀 é"}),
            "single quotes",
        ),
        (
            "{'url': 'http://x/y#z', 'c': 'a, b: {c}'}",
            json!({"url": "http://x/y#z", "c": "a, b: {c}"}),
            "single quotes",
        ),
    ] {
        let repairs = assert_reads_as(text, expected);
        assert!(
            repairs
                .iter()
                .any(|sentence| sentence.contains(expected_repair)),
            "{text}: {repairs:?}"
        );
    }
}

#[test]
fn each_repair_is_reported_separately() {
    let repairs = assert_reads_as("{'a': True,}", json!({"a": true}));
    assert_eq!(repairs.len(), 3, "{repairs:?}");
}

#[test]
fn ambiguous_json_is_refused_with_its_position() {
    for (text, position) in [
        (r#"{"a": "he said "hi" there"}"#, "line 1, column 17"),
        (r#"{"a": "x" "b": "y"}"#, "line 1, column 11"),
        (r#"{"a": "never ends}"#, "line 1, column 7"),
        ("{\n  \"a\": 1,\n  \"b\"\n}", "line 4, column 1"),
        (r#"{"a": 1, "b":}"#, "line 1, column 14"),
        (r#"{"a": 12e}"#, "line 1, column 7"),
        (r#"{"a": 007}"#, "line 1, column 7"),
        (r#"{"a": +1}"#, "line 1, column 7"),
        (r#"{"a": 0x1F}"#, "line 1, column 7"),
        (r#"{"a": NaN}"#, "line 1, column 7"),
        (r#"{"a": undefined}"#, "line 1, column 7"),
        (r#"{"a": yes}"#, "line 1, column 7"),
        (r#"{"a": 1} {"b": 2}"#, "line 1, column 10"),
        (r#"{"a": 1}, "b": 2"#, "line 1, column 9"),
        (r#"[{"a": 1}] {"b": 2}"#, "line 1, column 1"),
        (r#"filter: {"a": 1}"#, "line 1, column 7"),
        (r#""filter": {"a": 1}"#, "line 1, column 9"),
        (r#"{"path": "C:\dir"}"#, "line 1, column 13"),
        (r#"{"regex": '\d+'}"#, "line 1, column 12"),
        ("{'a': 'don't'}", "line 1, column 12"),
        ("{‘a’: ‘don’t’}", "line 1, column 12"),
        (r#"{"a": """b"""}"#, "line 1, column 9"),
        (r#"{"a": (1, 2)}"#, "line 1, column 7"),
        (r#"{"a", "b"}"#, "line 1, column 5"),
        (r#"{"a" "b"}"#, "line 1, column 6"),
        (r#"{"a": [1 2]}"#, "line 1, column 10"),
        (r#"{"a": [1,, 2]}"#, "line 1, column 10"),
        (r#"{"a": 1,,}"#, "line 1, column 9"),
        (r#"{,"a": 1}"#, "line 1, column 2"),
        (r#"{"a": "b" + "c"}"#, "line 1, column 11"),
        (r#"{"a": [1, 2}"#, "line 1, column 13"),
        (r#"{"a": 1, ...}"#, "line 1, column 10"),
        (r#"{"say": "",no: "", "to": ""}"#, "line 1, column 12"),
        ("{\"a\": \"\u{1}\"}", "line 1, column 8"),
        ("{\"a\": 1 /* b", "line 1, column 9"),
        (r#"{"a": {"b": 1}"#, "line 1, column 15"),
    ] {
        let refused = repair(text, false).expect_err(text);
        assert!(
            refused.detail.contains(position),
            "{text}: {}",
            refused.detail
        );
        assert!(
            refused.correction.contains("Send the whole call again"),
            "{}",
            refused.correction
        );
        assert!(
            repair(text, true).is_err() || text.ends_with("1}"),
            "{text}"
        );
    }
}

#[test]
fn duplicate_keys_and_large_numbers_are_refused() {
    for (text, what) in [
        (r#"{"a": 1, "a": 2}"#, "duplicate key"),
        ("{a: 1, 'b': 2, a: 2,}", "no quotes"),
        ("{'a': 18446744073709551616}", "64 bits"),
        (r#"{"a": 18446744073709551616}"#, "64 bits"),
    ] {
        let refused = repair(text, true).expect_err(text);
        assert!(refused.detail.contains(what), "{text}: {}", refused.detail);
    }
}

#[test]
fn non_object_is_refused_with_its_type() {
    for (written, kind) in [
        (RawArguments::Text("[1, 2]".to_owned()), "array"),
        (RawArguments::Text("7".to_owned()), "integer"),
        (RawArguments::Text("\"Oslo\"".to_owned()), "string"),
        (RawArguments::Other(json!([])), "array"),
        (RawArguments::Other(json!(1.5)), "number"),
    ] {
        assert!(
            read_arguments(&written, false, true)
                .unwrap_err()
                .detail
                .contains(kind),
            "{written:?}"
        );
    }
    assert!(
        repair("Oslo", true)
            .unwrap_err()
            .detail
            .contains("no JSON object in `Oslo`")
    );
    for written in [
        RawArguments::Missing,
        RawArguments::Other(Value::Null),
        RawArguments::Object(JsonObject::new()),
    ] {
        assert_eq!(
            read_arguments(&written, false, false).unwrap().arguments,
            JsonObject::new()
        );
    }
}

#[test]
fn missing_brackets_are_added_only_if_allowed() {
    for text in [
        r#"{"a": {"b": "c""#,
        r#"{"a": [{"b": 1}"#,
        r#"{"a": "b""#,
        r#"{'a': ["x""#,
    ] {
        let repaired =
            repair(text, true).unwrap_or_else(|refused| panic!("{text}: {}", refused.detail));
        assert!(
            repaired
                .repairs
                .iter()
                .any(|sentence| sentence.contains("missing at the end")),
            "{text}"
        );
        assert!(repair(text, false).is_err(), "{text}");
    }
    for text in [
        r#"{"a": 1"#,
        r#"{"a": tru"#,
        r#"{"a": true"#,
        r#"{"a": "b"#,
        r#"{"a": "b","#,
        r#"{"a""#,
        r#"{"a":"#,
        r#"{"a": {"#,
        r#"{"a": ["#,
        r#"{"a": "b", "c""#,
        r#"{"a": "b" // c }"#,
        "{",
    ] {
        assert!(repair(text, true).is_err(), "{text}");
    }
}

#[test]
fn cut_off_arguments_are_refused_for_writes() {
    let object = json!({"a": 1}).as_object().cloned().unwrap();
    for written in [
        RawArguments::Object(object),
        RawArguments::Text(r#"{"a": 1}"#.to_owned()),
        RawArguments::Missing,
    ] {
        let refused = read_arguments(&written, true, false).unwrap_err();
        assert!(
            refused.correction.contains("cut off"),
            "{}",
            refused.correction
        );
        assert!(read_arguments(&written, true, true).is_ok());
    }
}

#[test]
fn large_and_deep_garbage_is_read_quickly() {
    let n = 1 << 18;
    for unit in [
        "{", "[", "\"", "'", "{'a':", "}", ",", "x ", "\\", "/*", "//", "#\n", "{\"a\": ", "“",
        "```", "{} ", ": ",
    ] {
        for text in [
            unit.repeat(n / unit.len()),
            format!("{{'a': 1, {}", unit.repeat(n / unit.len())),
        ] {
            let start = Instant::now();
            assert!(
                repair(&text, true).is_err() || (unit == "}" && text.starts_with('{')),
                "{unit}"
            );
            assert!(
                start.elapsed().as_secs() < 10,
                "{unit}: {:?}",
                start.elapsed()
            );
        }
    }
    for text in [
        format!("{{'a': [{}]}}", "'x', ".repeat(n / 5)),
        format!("{{'a': [{}]}}", "{'x': True, }, ".repeat(n / 15)),
        format!("{{'a': '{}'}}", "x, \"y\": ".repeat(n / 8)),
        format!("{{'a': '{}'}}", "\\\"".repeat(n / 2)),
        format!("{{'a': [{}]}}", "{} ".repeat(n / 3)),
    ] {
        let start = Instant::now();
        assert!(repair(&text, false).is_ok());
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }
    let (open, close) = (r#"{"a":"#.repeat(200), "}".repeat(200));
    assert!(
        repair(&format!("{open}1,{close}"), true)
            .unwrap_err()
            .detail
            .contains("128")
    );
}

/// Values whose texts are plain words, so that each word shows where it came from in the input.
fn plain_value() -> impl Strategy<Value = Value> {
    let word = "[a-z]{1,6}( [a-z]{1,4})?";
    let leaf = prop_oneof![
        word.prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null)
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(word, inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

fn object(value: Value) -> JsonObject {
    std::iter::once(("root".to_owned(), value)).collect()
}

/// Every key, text, number and literal.
fn contents(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            into.push(key.clone());
            contents(value, into);
        }),
        Value::Array(items) => items.iter().for_each(|item| contents(item, into)),
        Value::String(text) => into.push(text.clone()),
        other => into.push(other.to_string()),
    }
}

/// The same value in the sloppy style of a Python or JavaScript programmer.
fn sloppy(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let members: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("'{key}': {}", sloppy(value)))
                .collect();
            format!("{{{},}} // object\n", members.join(" ,\n")).replace("{,}", "{}")
        }
        Value::Array(items) => format!(
            "[{}, ]",
            items.iter().map(sloppy).collect::<Vec<_>>().join(",")
        )
        .replace("[, ]", "[]"),
        Value::String(text) => format!("'{text}'"),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        Value::Number(number) => number.to_string(),
    }
}

proptest! {
    /// Texts with unescaped quotes are refused, unless the result is strict JSON with another
    /// meaning.
    #[test]
    fn quotes_inside_strings_never_become_structure(
        texts in proptest::collection::vec(proptest::collection::vec(
            prop::sample::select(vec!["a", "\"", ",", ":", " ", "{", "}", "1", "true", "\n", "b: ", "[", "]", "//", "'"]), 0..6), 2),
        quote in prop::sample::select(vec!['"', '\'']),
    ) {
        let (k, l) = (texts[0].concat(), texts[1].concat());
        let text = format!("{{{quote}k{quote}: {quote}{k}{quote}, {quote}l{quote}: {quote}{l}{quote}}}");
        if let (Err(_), Ok(repaired)) = (crate::strict_json::parse_strict(text.as_bytes()), repair(&text, false)) {
            prop_assert_eq!(Value::Object(repaired.arguments), json!({"k": k, "l": l}));
        }
    }

    #[test]
    fn valid_json_is_never_changed(text in "\\PC{0,40}", key in "\\PC{0,8}", number in any::<i64>(), value in plain_value()) {
        let mut object = object(value);
        object.insert(key, json!([text, number]));
        for written in [serde_json::to_string(&object).unwrap(), serde_json::to_string_pretty(&object).unwrap()] {
            let repaired = repair(&written, false).unwrap();
            prop_assert_eq!(&repaired.arguments, &object);
            prop_assert!(repaired.repairs.is_empty());
        }
    }

    #[test]
    fn sloppy_json_keeps_its_meaning(value in plain_value()) {
        let object = object(value);
        let repaired = repair(&sloppy(&Value::Object(object.clone())), false).unwrap();
        prop_assert_eq!(repaired.arguments, object);
    }

    #[test]
    fn repaired_json_adds_no_content(
        value in plain_value(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), "[{}\\[\\],:\"' \\\\a1/#\n“]{0,2}", 0_usize..3), 1..4),
        may_close: bool,
    ) {
        let written = serde_json::to_string(&object(value.clone())).unwrap();
        for mut text in [written, sloppy(&Value::Object(object(value)))] {
            for (at, insert, delete) in &edits {
                let starts: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
                let at = at.index(starts.len());
                let end = starts[(at + delete).min(starts.len() - 1)];
                text.replace_range(starts[at]..end, insert);
            }
            let Ok(repaired) = repair(&text, may_close) else { continue };
            let mut repaired_contents = Vec::new();
            contents(&Value::Object(repaired.arguments), &mut repaired_contents);
            for content in repaired_contents {
                let python = match content.as_str() { "true" => "True", "false" => "False", "null" => "None", other => other };
                let plain = content.split(['\\', '"', '\'', '\n', '/', '\t', '\r', '\u{8}', '\u{c}']).all(|part| text.contains(part));
                prop_assert!(plain || text.contains(python), "{:?} is not in {}", content, text);
            }
        }
    }

    #[test]
    fn no_arguments_panic(text in "[{}\\[\\],:\"'\\\\a-c0-3 \n/*#`“”‘’ué.-]{0,60}", may_close: bool, cut_off: bool) {
        let _ = read_arguments(&RawArguments::Text(text), cut_off, may_close);
    }
}

#[test]
fn brackets_may_nest_128_levels() {
    let read =
        |depth: usize| super::tokens::Tokens::new(&"[".repeat(depth)).all(|token| token.is_ok());
    assert!(read(128) && !read(129));
}

#[test]
fn invalid_bare_keys_are_named() {
    for word in ["true", "false", "null", "True", "None", "1"] {
        let refused = repair(&format!("{{{word}: 1}}"), true).unwrap_err();
        assert!(
            refused
                .detail
                .contains(&format!("{word} is neither in quotes")),
            "{}",
            refused.detail
        );
    }
    assert!(
        repair("{\"a\": \"\u{1}\"}", true)
            .unwrap_err()
            .detail
            .contains("control character")
    );
}

#[test]
fn valid_escapes_are_not_a_repair() {
    let repairs = assert_reads_as(r#"{"a": "\u00e9\ud83d\ude00",}"#, json!({"a": "é😀"}));
    assert_eq!(repairs.len(), 1, "{repairs:?}");
}

#[test]
fn text_possibly_within_object_is_refused() {
    for before in [
        "see [1] then ",
        "\"k\": v then ",
        "'k': v then ",
        "one, ",
        "a \" ",
    ] {
        assert!(
            repair(&format!("{before}{{\"a\": 1}}"), true).is_err(),
            "{before}"
        );
    }
    for after in [" and [2]", " then \"k\": 2", " then 'k': 2", " = 2", " , 2"] {
        assert!(
            repair(&format!("{{\"a\": 1}}{after}"), true).is_err(),
            "{after}"
        );
    }
    assert!(repair("Here it is: {\"a\": 1} as you asked.", true).is_ok());
}
