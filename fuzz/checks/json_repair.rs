//! Arguments as models write them. What is read is JSON, has one meaning, and is not changed again.

use serde_json::Value;
use toolcrib::dialect::{
    Mended, RawArguments, parse_foreign, parse_result, parse_strict, read_arguments,
};

pub(crate) fn check(text: &str) {
    let raw = RawArguments::Text(text.to_owned());
    let strict = parse_strict(text.as_bytes());
    let read = read_arguments(&raw, false, false);
    if let Ok(Value::Object(object)) = &strict {
        let read = read.as_ref().expect("strict JSON is read");
        assert_eq!(&read.arguments, object);
        assert!(read.repairs.is_empty(), "{:?}", read.repairs);
    }
    assert!(
        read_arguments(&raw, true, false).is_err(),
        "cut off, and may have effects"
    );
    let lenient = read_arguments(&raw, false, true);
    if let Ok(read) = &read {
        assert_eq!(
            lenient.as_ref().ok(),
            Some(read),
            "closing changes what is complete"
        );
    }
    if let Ok(lenient) = lenient {
        let written = serde_json::to_string(&lenient.arguments).unwrap();
        let again = read_arguments(&RawArguments::Text(written), false, false).unwrap();
        assert_eq!(again.arguments, lenient.arguments);
        assert!(again.repairs.is_empty(), "{:?}", again.repairs);
        lenient.arguments.iter().for_each(|(key, value)| {
            assert_is_in(text, key);
            assert_comes_from(text, value);
        });
    }
    for (value, _) in [
        parse_foreign(text.as_bytes()),
        parse_result(text.as_bytes()),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(parse_strict(value.to_string().as_bytes()).unwrap(), value);
    }
    let mended = Mended::of_result(text.as_bytes());
    let again = Mended::of_result(&mended.text);
    assert_eq!(again.changes, Default::default());
    assert_eq!(again.text, mended.text);
    let is_json = |text: &[u8]| serde_json::from_slice::<Value>(text).is_ok();
    assert!(!is_json(text.as_bytes()) || is_json(&mended.text));
}

/// Nothing is made up: each text and number of the arguments stands in the text, apart from
/// escaped characters.
fn assert_comes_from(text: &str, value: &Value) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            assert_is_in(text, key);
            assert_comes_from(text, value);
        }),
        Value::Array(items) => items.iter().for_each(|item| assert_comes_from(text, item)),
        Value::String(content) => assert_is_in(text, content),
        Value::Bool(value) => {
            assert!(
                text.to_lowercase()
                    .contains(if *value { "true" } else { "false" })
            );
        }
        Value::Null | Value::Number(_) => {}
    }
}

fn assert_is_in(text: &str, content: &str) {
    if text.contains("\\u") {
        return;
    }
    let escaped = ['\\', '"', '\'', '\n', '/', '\t', '\r', '\u{8}', '\u{c}'];
    for part in content.split(escaped) {
        assert!(
            text.contains(part),
            "{part:?} of {content:?} is not in the text"
        );
    }
}
