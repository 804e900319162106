use std::time::Instant;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::content::{Content, Resource};
use crate::json_repair;
use crate::message::{MalformedCall, ToolReply};

/// The calls as (name, arguments, cut off), with arguments as they are read for a tool without
/// effects.
#[track_caller]
fn calls(text: &str) -> Vec<(String, Value, bool)> {
    let read = read_text(text);
    assert_eq!(read.dialect, Dialect::Text);
    let call = |call: ParsedCall| {
        let call = call.unwrap_or_else(|malformed| panic!("{text}: {}", malformed.fault));
        assert_eq!(call.id, None);
        let repaired = json_repair::read_arguments(&call.arguments, call.cut_off, true);
        let arguments = repaired.map_or_else(
            |refused| Value::String(refused.detail),
            |repaired| repaired.arguments.into(),
        );
        (call.name, arguments, call.cut_off)
    };
    read.calls.into_iter().map(call).collect()
}

fn weather() -> Vec<(String, Value, bool)> {
    vec![("get_weather".to_owned(), json!({"city": "Oslo"}), false)]
}

#[track_caller]
fn malformed_calls(text: &str) -> Vec<MalformedCall> {
    read_text(text)
        .calls
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

#[test]
fn every_syntax_of_a_call_is_read() {
    for (syntax, text) in [
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{"name": "get_weather", "args": {"city": "Oslo"}}[/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            "Let me see.\n[TOOL_CALL]\n{\"tool\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}\n[/TOOL_CALL]\nWait.",
        ),
        (
            TextSyntax::Marked,
            r#"[tool_call]{"tool_name": "get_weather", "input": {"city": "Oslo"}}[/tool_call]"#,
        ),
        (
            TextSyntax::Marked,
            "[TOOL_CALL]```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n```[/TOOL_CALL]",
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{"name": "get_weather", "args": {"city": "Oslo"}}}[/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{'name': 'get_weather', 'args': {'city': 'Oslo',}}[/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{name: "get_weather", args: {city: "Oslo"}}[/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{"name": "get_weather", "args": "{\"city\": \"Oslo\"}"}[/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{"function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}[/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{'function': {'name': 'get_weather', 'arguments': {'city': 'Oslo'}}}[/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{"name": "get_weather", "args": {"city": "Oslo"}, "why": "asked"}[/TOOL_CALL]"#,
        ),
        // A stop sequence removed the end mark; the call is complete.
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL]{"name": "get_weather", "args": {"city": "Oslo"}}"#,
        ),
        (
            TextSyntax::Marked,
            "I write [TOOL_CALL] now.\n[TOOL_CALL]{\"name\": \"get_weather\", \"args\": {\"city\": \"Oslo\"}}[/TOOL_CALL]",
        ),
        (
            TextSyntax::Marked,
            r#"[TOOL_CALL][TOOL_CALL]{"name": "get_weather", "args": {"city": "Oslo"}}[/TOOL_CALL][/TOOL_CALL]"#,
        ),
        (
            TextSyntax::Marked,
            "<think>\nI could [TOOL_CALL]{\"name\": \"delete\"}[/TOOL_CALL].\n</think>\n[TOOL_CALL]{\"name\": \"get_weather\", \"args\": {\"city\": \"Oslo\"}}[/TOOL_CALL]",
        ),
        (
            TextSyntax::Bare,
            "<think></think>\n\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}",
        ),
        (
            TextSyntax::Tagged,
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
        ),
        (
            TextSyntax::Tagged,
            r#"<tool_call>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]</tool_call>"#,
        ),
        (
            TextSyntax::React,
            "Thought: I look.\nAction: get_weather\nAction Input: {\"city\": \"Oslo\"}",
        ),
        (
            TextSyntax::React,
            "Action: get_weather\nAction Input: {\"city\": \"Oslo\"}\nObservation: 40 degrees\nFinal Answer: hot",
        ),
        (
            TextSyntax::React,
            "**Action:** `get_weather`\n**Action Input:** {\"city\": \"Oslo\"}",
        ),
        (
            TextSyntax::React,
            "Action: get_weather\nAction Input:\n```json\n{\n  \"city\": \"Oslo\"\n}\n```\nObservation:",
        ),
        (
            TextSyntax::React,
            "action: get_weather\naction input: {'city': 'Oslo'}\n\nThat should do.",
        ),
        (
            TextSyntax::React,
            "Action:\n```json\n{\"action\": \"get_weather\", \"action_input\": {\"city\": \"Oslo\"}}\n```\nObservation: x",
        ),
        (
            TextSyntax::Fenced,
            "I call it:\n```json\n{\"tool_name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n```\nThen we see.",
        ),
        (
            TextSyntax::Fenced,
            "```\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}\n```",
        ),
        (
            TextSyntax::Fenced,
            "```tool_call\n[{\"name\": \"get_weather\", \"args\": {\"city\": \"Oslo\"}}]\n```",
        ),
        (
            TextSyntax::Fenced,
            "```json\n{'tool': 'get_weather', 'args': {'city': 'Oslo'}}\n```",
        ),
        (
            TextSyntax::Bare,
            r#"{"tool_name": "get_weather", "arguments": {"city": "Oslo"}}"#,
        ),
        (
            TextSyntax::Bare,
            r#" {"name": "get_weather", "parameters": {"city": "Oslo"}} "#,
        ),
        (
            TextSyntax::Bare,
            r#"[{"name": "get_weather", "arguments": {"city": "Oslo"}}]"#,
        ),
        (
            TextSyntax::Bare,
            r#"{"tool_calls": [{"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]}"#,
        ),
        (
            TextSyntax::Bare,
            r#"{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}"#,
        ),
        (
            TextSyntax::Bare,
            r#"{"action": "get_weather", "action_input": {"city": "Oslo"}}"#,
        ),
        (
            TextSyntax::Bare,
            r#"{'tool_name': 'get_weather', 'arguments': {'city': 'Oslo'}}"#,
        ),
    ] {
        assert_eq!(calls(text), weather(), "{text}");
        assert_eq!(read_text(text).syntax, syntax, "{text}");
    }
}

#[test]
fn tool_name_key_needs_no_arguments() {
    for text in [
        "{\"tool_name\": \"ping\"}",
        " {\"tool_name\": \"ping\", \"id\": 1}\n",
        "```json\n{\"tool_name\": \"ping\"}\n```",
    ] {
        assert_eq!(
            calls(text),
            [("ping".to_owned(), json!({}), false)],
            "{text}"
        );
    }
    for text in [
        "{\"name\": \"ping\"}",
        "{\"tool\": \"ping\"}",
        "{\"action\": \"ping\"}",
        "{\"function\": \"ping\"}",
        "{\"tool_name\": \"ping\", \"description\": \"Pings.\"}",
        "{\"tool_name\": \"ping\", \"name\": \"pong\"}",
    ] {
        assert_eq!(read_text(text).calls, [], "{text}");
    }
}

#[test]
fn calls_keep_their_order_despite_malformed_ones() {
    let names = |text: &str| -> Vec<String> {
        let name = |call: &ParsedCall| {
            call.as_ref()
                .map_or("?".to_owned(), |call| call.name.clone())
        };
        read_text(text).calls.iter().map(name).collect()
    };
    for text in [
        r#"[TOOL_CALL]{"name":"b"}[/TOOL_CALL] and <tool_call>{"name":"a"}</tool_call>[TOOL_CALL]{"name":"c","args":{}}[/TOOL_CALL]"#,
        r#"<tool_call>{"name":"b"}{"name":"a"}</tool_call><tool_call>{"name":"c"}</tool_call>"#,
        "Action: b\nAction Input: {}\nAction: a\nAction Input: {}\nThought: and\nAction: c\nAction Input: {}\nObservation: x\nAction: d\nAction Input: {}",
        "```json\n{\"name\":\"b\",\"args\":{}}\n```\nthen\n```json\n[{\"name\":\"a\",\"args\":{}},\n{\"name\":\"c\",\"args\":{}}]\n```",
        "{\"name\":\"b\",\"args\":{}}\n{\"name\":\"a\",\"args\":{}}\n{\"name\":\"c\",\"args\":{}}",
    ] {
        assert_eq!(names(text), ["b", "a", "c"], "{text}");
    }
    let text = r#"[TOOL_CALL]{"name":"b","args":{"x":"he said "hi""}}[/TOOL_CALL][TOOL_CALL]nothing[/TOOL_CALL][TOOL_CALL]{"name":"c"}[/TOOL_CALL]"#;
    assert_eq!(names(text), ["b", "?", "c"]);
}

#[test]
fn markers_precede_react_and_fences() {
    let fence = "```json\n{\"name\":\"fence\",\"args\":{}}\n```\n";
    let react = "Action: react\nAction Input: {}\n";
    let marked = "[TOOL_CALL]{\"name\":\"marked\",\"args\":{}}[/TOOL_CALL]\n";
    assert_eq!(calls(&format!("{fence}{react}{marked}"))[0].0, "marked");
    assert_eq!(calls(&format!("{fence}{react}")).len(), 1);
    assert_eq!(calls(&format!("{fence}{react}"))[0].0, "react");
}

#[test]
fn text_without_calls_has_no_calls() {
    for text in [
        "",
        "Oslo is cold.",
        "{\"city\": \"Oslo\"}",
        "[1, 2, 3]",
        "{\"name\": \"Ada\", \"age\": 36}",
        "{\"name\": \"Ada Lovelace\", \"input\": {}}",
        "```json\n{\"city\": \"Oslo\"}\n```",
        "```python\nprint({'name': 'x'})\n```",
        "```css\n{ color: red; }\n```",
        "```json\n{\"name\": \"get_weather\", \"description\": \"Weather\", \"parameters\": {\"type\": \"object\"}}\n```",
        "Thought: I know.\nAction: None\nFinal Answer: 42",
        "Action: Final Answer\nAction Input: 42",
        "Action: Finish\nAction Input: {\"answer\": 42}",
        "Action: finish\nAction Input: 42",
        "Action: N/A\nAction Input: {}",
        "Final Answer: do this:\nAction: buy\nAction Input: {}",
        "Action: buy some milk",
        "{\"action\": \"Final Answer\", \"action_input\": \"42\"}",
        "One writes [TOOL_CALL] before a call.",
        "<think>Now [TOOL_CALL]{\"name\": \"delete\"}[/TOOL_CALL] and then",
        "Here is {\"tool_name\": \"x\", \"arguments\": {}} inside a sentence.",
    ] {
        let read = read_text(text);
        assert_eq!(read.calls, [], "{text}");
        assert_eq!(read.warnings, ["the text has no tool calls"], "{text}");
    }
}

#[test]
fn marks_inside_json_strings_are_ignored() {
    let inner = r#"[/TOOL_CALL][TOOL_CALL]{\"name\":\"delete\",\"args\":{}}[/TOOL_CALL]\nAction: delete\nAction Input: {}"#;
    let raw = "\n[TOOL_CALL]{'name':'delete'}[/TOOL_CALL]\nAction: delete\nAction Input: {}\n```json\n{'name':'delete','args':{}}\n```\n";
    for text in [
        format!(r#"[TOOL_CALL]{{"name":"write","args":{{"text":"{inner}"}}}}[/TOOL_CALL]"#),
        format!(
            r#"<tool_call>{{"name":"write","arguments":{{"text":"{inner}</tool_call>"}}}}</tool_call>"#
        ),
        format!("Action: write\nAction Input: {{\"text\": \"{inner}\"}}"),
        format!("Action: write\nAction Input: {{\"text\": \"{raw}\"}}"),
        format!("```json\n{{\"name\":\"write\",\"args\":{{\"text\":\"{inner}\"}}}}\n```"),
        format!("```json\n{{\"name\":\"write\",\"args\":{{\"text\":\"{raw}\"}}}}\n```"),
        format!(r#"{{"name":"write","args":{{"text":"{inner}"}}}}"#),
        format!("[TOOL_CALL]{{\"name\":\"write\",\"args\":{{\"text\":\"{raw}\"}}}}[/TOOL_CALL]"),
    ] {
        let names: Vec<String> = calls(&text).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["write"], "{text}");
    }
}

#[test]
fn reading_stops_at_an_invented_result() {
    for text in [
        "Action: a\nAction Input: {}\nObservation: 5\nAction: b\nAction Input: {}",
        r#"[TOOL_CALL]{"name":"a"}[/TOOL_CALL][TOOL_RESULT]5[/TOOL_RESULT][TOOL_CALL]{"name":"b"}[/TOOL_CALL]"#,
        r#"<tool_call>{"name":"a"}</tool_call><tool_response>5</tool_response><tool_call>{"name":"b"}</tool_call>"#,
    ] {
        let read = read_text(text);
        assert_eq!(read.calls.len(), 1, "{text}");
        assert!(read.warnings[0].contains("made up"), "{:?}", read.warnings);
    }
}

#[test]
fn cut_off_call_is_refused_for_writes() {
    for text in [
        r#"[TOOL_CALL]{"name":"write","args":{"a":"b"}"#,
        r#"[TOOL_CALL]{"name":"write","args":{"a":"b"#,
        r#"[TOOL_CALL]{"name":"write","args":{"a":"b""#,
        r#"[TOOL_CALL]{"name":"write","#,
        r#"[TOOL_CALL]{"name":"write","args":{"a":"b"}[/TOOL_CALL]"#,
        r#"<tool_call>{"name":"write","arguments":{"a":"b"}"#,
        "Action: write\nAction Input: {\"a\": \"b",
        "Action: write\nAction Input: {\"a\": \"b\"",
        "Action: write",
        "```json\n{\"name\":\"write\",\"args\":{\"a\":\"b\"}",
        r#"{"name":"write","args":{"a":"b"}"#,
    ] {
        let read = read_text(text);
        let call = read.calls[0]
            .as_ref()
            .unwrap_or_else(|malformed| panic!("{text}: {}", malformed.fault));
        assert_eq!(
            (call.name.as_str(), call.cut_off),
            ("write", true),
            "{text}"
        );
        assert!(
            json_repair::read_arguments(&call.arguments, call.cut_off, false).is_err(),
            "{text}"
        );
    }
    // A broken call is not cut off: the model should write it differently, not in smaller parts.
    for text in [
        r#"[TOOL_CALL]{"name":"write","args":{"a":"he said "hi" there"}}"#,
        "Action: write\nAction Input: {\"a\": \"he said \"hi\" there\"}",
        r#"{"name":"write","args":{"a":"he said "hi" there"}}"#,
    ] {
        let call = read_text(text).calls.remove(0).unwrap();
        assert!(!call.cut_off, "{text}");
        let refused =
            json_repair::read_arguments(&call.arguments, call.cut_off, false).unwrap_err();
        assert!(
            refused.detail.starts_with("hi is neither in quotes"),
            "{}",
            refused.detail
        );
    }
    // Complete values are read for tools without effects; incomplete values are not.
    assert_eq!(
        calls(r#"[TOOL_CALL]{"name":"find","args":{"a":"b"}"#)[0].1,
        json!({"a": "b"})
    );
    assert_eq!(
        calls(r#"[TOOL_CALL]{"name":"find","args":{"a":"b""#)[0].1,
        json!({"a": "b"})
    );
    assert!(
        calls(r#"[TOOL_CALL]{"name":"find","args":{"a":"b"#)[0]
            .1
            .is_string()
    );
    for text in [
        "So:\n[TOOL_CALL]",
        "[TOOL_CALL]{",
        "[TOOL_CALL]{\"name\":\"wri",
    ] {
        assert_eq!(malformed_calls(text).len(), 1, "{text}");
    }
}

#[test]
fn malformed_call_gets_a_syntax_reminder() {
    for (text, what) in [
        (
            "[TOOL_CALL]get_weather(Oslo)[/TOOL_CALL]",
            "no JSON object after its mark",
        ),
        (
            "[TOOL_CALL]{\"name\": \"a\" \"args\": {}}[/TOOL_CALL]",
            "line 1, column 14",
        ),
        ("[TOOL_CALL]{\"city\": \"Oslo\"}[/TOOL_CALL]", "no key name"),
        (
            "[TOOL_CALL]{\"name\": 7}[/TOOL_CALL]",
            "name is not a tool's name",
        ),
        (
            "[TOOL_CALL]{\"name\": \"a\", \"args\": {}, \"parameters\": {}}[/TOOL_CALL]",
            "arguments twice",
        ),
        (
            "[TOOL_CALL]{\"name\": \"a\", \"tool\": \"b\"}[/TOOL_CALL]",
            "names a tool twice",
        ),
        ("[TOOL_CALL][7][/TOOL_CALL]", "not a JSON object"),
        (
            r#"[TOOL_CALL]{"name":"say","args":{"t":"a"}, x: {"y":"b"}}[/TOOL_CALL]"#,
            "no quotes",
        ),
    ] {
        let malformed = &malformed_calls(text)[0];
        assert!(
            malformed.fault.contains(what),
            "{text}: {}",
            malformed.fault
        );
        assert!(
            malformed.correction.contains("[TOOL_CALL]{\"name\""),
            "{}",
            malformed.correction
        );
    }
    let malformed = &malformed_calls("Action: search[Oslo]\nAction Input: {}")[0];
    assert!(
        malformed.correction.contains("Action Input: {"),
        "{}",
        malformed.correction
    );
    assert!(
        calls("Action: search\nAction Input: Oslo")[0]
            .1
            .as_str()
            .unwrap()
            .contains("no JSON object in `Oslo`")
    );
}

fn tool_reply(content: &[Content], is_error: bool) -> ToolReply<'_> {
    ToolReply {
        content,
        structured: None,
        is_error,
        is_final_answer: false,
        is_invalid_call: false,
    }
}

#[test]
fn replies_use_the_syntax_of_the_calls() {
    let (success, failure) = (
        [Content::text("12 °C\n\"mild\"")],
        [Content::text("no such place")],
    );
    let calls = |marked: &str| read_text(marked);
    let reply_to = |message: &Message| {
        write_reply(
            message,
            &[tool_reply(&success, false), tool_reply(&failure, true)],
        )
    };
    let marked = calls(r#"[TOOL_CALL]{"name":"a"}[/TOOL_CALL][TOOL_CALL]{"name":"b"}[/TOOL_CALL]"#);
    assert_eq!(
        reply_to(&marked),
        [
            json!({"role": "user", "content": "[TOOL_RESULT]{\"name\": \"a\", \"content\": \"12 °C\\n\\\"mild\\\"\"}[/TOOL_RESULT]\n\
                 [TOOL_RESULT]{\"name\": \"b\", \"error\": \"no such place\"}[/TOOL_RESULT]"})
        ]
    );
    let tagged = calls(r#"<tool_call>{"name":"a"}{"name":"b"}</tool_call>"#);
    assert_eq!(
        reply_to(&tagged)[0]["content"],
        "<tool_response>\n{\"name\": \"a\", \"content\": \"12 °C\\n\\\"mild\\\"\"}\n</tool_response>\n\
         <tool_response>\n{\"name\": \"b\", \"error\": \"no such place\"}\n</tool_response>"
    );
    let react = calls("Action: a\nAction Input: {}\nAction: b\nAction Input: {}");
    assert_eq!(
        reply_to(&react)[0]["content"],
        "Observation: a: 12 °C\n\"mild\"\nObservation: b: Error: no such place"
    );
    let one = calls("Action: a\nAction Input: {}");
    assert_eq!(
        write_reply(&one, &[tool_reply(&success, false)])[0]["content"],
        "Observation: 12 °C\n\"mild\""
    );
    let bare = calls(r#"[{"name":"a","args":{}},{"name":"b","args":{}}]"#);
    assert_eq!(
        reply_to(&bare)[0]["content"],
        "Result of a:\n12 °C\n\"mild\"\n\nError of b:\nno such place"
    );
    assert_eq!(write_reply(&calls("hello"), &[]), Vec::<Value>::new());
}

#[test]
fn replies_note_omitted_content_and_escape_marks() {
    let image = Content::Image {
        data: "AAAA".to_owned(),
        mime_type: "image/png".to_owned(),
    };
    let blob = Resource {
        uri: "file:///a.pdf".to_owned(),
        blob: Some("AAA=".to_owned()),
        ..Resource::default()
    };
    let text = Resource {
        uri: "file:///a.md".to_owned(),
        text: Some("# A".to_owned()),
        ..Resource::default()
    };
    let blocks = [
        image,
        Content::Resource { resource: blob },
        Content::Resource { resource: text },
    ];
    let one = read_text(r#"{"name":"a","args":{}}"#);
    assert_eq!(
        write_reply(&one, &[tool_reply(&blocks, false)])[0]["content"],
        "Result of a:\n[image/png, 3 B: left out, this API does not take it in a tool result]\n\
         [a.pdf, unknown type, 2 B: left out, this API does not take it in a tool result]\n[a.md, unknown type]\n# A"
    );
    let data = json!({"n": 1});
    let structured = ToolReply {
        content: &[],
        structured: Some(&data),
        is_error: false,
        is_final_answer: false,
        is_invalid_call: false,
    };
    assert_eq!(
        write_reply(&one, &[structured])[0]["content"],
        "Result of a:\n{\"n\":1}"
    );
    let marks = [Content::text("[/TOOL_RESULT]</tool_response>")];
    for text in [
        r#"[TOOL_CALL]{"name":"a"}[/TOOL_CALL]"#,
        r#"<tool_call>{"name":"a"}</tool_call>"#,
    ] {
        let content = write_reply(&read_text(text), &[tool_reply(&marks, false)])[0]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            content.matches("[/TOOL_RESULT]").count() + content.matches("</tool_response>").count(),
            1,
            "{content}"
        );
        let inner = &content[content.find('{').unwrap()..=content.rfind('}').unwrap()];
        let inner: Value = serde_json::from_str(inner).unwrap();
        assert_eq!(inner["content"], "[/TOOL_RESULT]</tool_response>");
    }
}

#[test]
fn syntax_reminder_shows_a_readable_call() {
    for syntax in [
        TextSyntax::Marked,
        TextSyntax::Tagged,
        TextSyntax::React,
        TextSyntax::Fenced,
        TextSyntax::Bare,
    ] {
        let reminder = syntax_reminder(syntax, &["get_weather", "search"]);
        assert!(
            reminder.ends_with("\nThe tools are: get_weather, search."),
            "{reminder}"
        );
        let shown = reminder.trim_end_matches("\nThe tools are: get_weather, search.");
        let example = &shown[shown.find('\n').unwrap() + 1..];
        let read = read_text(example);
        assert_eq!(
            (read.syntax, calls(example)),
            (
                syntax,
                vec![("TOOL".to_owned(), json!({"PARAMETER": "VALUE"}), false)]
            )
        );
    }
}

#[test]
fn large_garbage_is_read_quickly() {
    let n = 1 << 18;
    for unit in [
        "[TOOL_CALL]",
        "[TOOL_CALL]{",
        "[TOOL_CALL]{[/TOOL_CALL]",
        "[TOOL_CALL]{/*[/TOOL_CALL]",
        "[TOOL_CALL]{\"[/TOOL_CALL]",
        "[TOOL_CALL]{'a':[/TOOL_CALL]",
        "[TOOL_CALL]x[/TOOL_CALL]",
        "[TOOL_CALL][/TOOL_CALL]",
        "<tool_call>[",
        "[/TOOL_CALL]",
        "{",
        "}",
        "[",
        "<",
        "{}",
        "\n",
        "```\n",
        "```\n{/*\n",
        "```\n{'a': [1,\n```\n",
        "```json\n{\"name\": \"a\", \"args\": {\n```\n",
        "Action:\n",
        "Action: a\n",
        "Action: {/*\n",
        "Action: a b\nAction Input: {/*\n",
        "Action: None\nAction Input: {\"\n",
        "Observation: x\n",
        "\"",
        "{\"name\":",
    ] {
        let text = unit.repeat(n / unit.len());
        let start = Instant::now();
        let read = read_text(&text);
        let malformed: usize = read
            .calls
            .iter()
            .flat_map(|call| call.as_ref().err())
            .map(|malformed| malformed.correction.len())
            .sum();
        assert!(
            start.elapsed().as_secs() < 8,
            "{unit}: {:?}",
            start.elapsed()
        );
        assert!(malformed < 20_000, "{unit}: {malformed}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(parts in proptest::collection::vec(prop_oneof![
        "[{}\\[\\],:\"'\\\\a-c0-3 \n`é<>]{0,8}",
        Just("[TOOL_CALL]".to_owned()), Just("[/TOOL_CALL]".to_owned()), Just("<tool_call>".to_owned()), Just("</tool_call>".to_owned()),
        Just("\nAction: ".to_owned()), Just("\nAction Input: ".to_owned()), Just("\nObservation: ".to_owned()), Just("\n```json\n".to_owned()),
        Just("{\"name\": \"a\", \"args\": ".to_owned()), Just("{\"b\": 1}".to_owned()), Just("\n```\n".to_owned()), "\\PC{0,6}",
    ], 0..12)) {
        let read = read_text(&parts.concat());
        let replies = vec![tool_reply(&[], false); read.calls.len()];
        prop_assert_eq!(write_reply(&read, &replies).len(), usize::from(!read.calls.is_empty()));
    }

    #[test]
    fn calls_keep_order_and_arguments(texts in proptest::collection::vec("\\PC{0,20}", 1..6)) {
        let object = |(i, text): (usize, &String)| json!({"name": format!("t{i}"), "args": {"text": text}}).to_string();
        let all = || texts.iter().enumerate();
        let forms = [
            all().map(|call| format!("[TOOL_CALL]{}[/TOOL_CALL]", object(call))).collect::<String>(),
            all().map(|call| format!("so\n<tool_call>\n{}\n</tool_call>\n", object(call))).collect::<String>(),
            all().map(|call| format!("```json\n{}\n```\n", object(call))).collect::<String>(),
            all().map(|(i, text)| format!("Action: t{i}\nAction Input: {}\n", json!({"text": text}))).collect::<String>(),
            format!("[{}]", all().map(object).collect::<Vec<_>>().join(",")),
        ];
        for form in forms {
            let expected: Vec<_> = all().map(|(i, text)| (format!("t{i}"), json!({"text": text}), false)).collect();
            prop_assert_eq!(calls(&form), expected);
        }
    }
}

#[test]
fn endless_function_nesting_does_not_crash() {
    for (mark, times) in [
        ("[TOOL_CALL]", 100_000),
        ("<tool_call>", 5_000),
        ("", 5_000),
    ] {
        let text = mark.to_owned() + &"{\"function\": ".repeat(times);
        assert!(read_text(&text).calls.iter().all(Result::is_err), "{mark}");
    }
}

#[test]
fn call_after_a_broken_call_is_doubtful() {
    let broken = "[TOOL_CALL]{\"name\": \"a\", \"args\": {\"text\": \"he said \"hi\" [/TOOL_CALL]";
    let text = format!(
        "{broken}[TOOL_CALL]{{\"name\": \"b\", \"args\": {{}}}}[/TOOL_CALL]\"}}}}[/TOOL_CALL]"
    );
    let calls = read_text(&text).calls;
    let last = calls
        .iter()
        .rev()
        .find_map(|call| call.as_ref().ok().filter(|call| call.name == "b"))
        .unwrap();
    assert!(last.doubtful, "{calls:?}");
}

#[test]
fn closing_think_tag_inside_call_is_ignored() {
    let call = "[TOOL_CALL]{\"name\": \"b\", \"args\": {}}[/TOOL_CALL]";
    assert_eq!(
        read_text(&format!("I could ask.\n</think>\n{call}"))
            .calls
            .len(),
        1
    );
    let quoted = format!(
        "[TOOL_CALL]{{\"name\": \"a\", \"args\": {{\"text\": \"x\n</think>\n{}\"}}}}[/TOOL_CALL]",
        call.replace('"', "\\\"")
    );
    let names: Vec<String> = read_text(&quoted)
        .calls
        .into_iter()
        .flatten()
        .map(|call| call.name)
        .collect();
    assert_eq!(names, ["a"]);
}

fn names(text: &str) -> Vec<String> {
    read_text(text)
        .calls
        .into_iter()
        .flatten()
        .map(|call| call.name)
        .collect()
}

#[test]
fn complete_calls_inside_thoughts_are_skipped() {
    let call =
        |name: &str| format!("[TOOL_CALL]{{\"name\": \"{name}\", \"args\": {{}}}}[/TOOL_CALL]");
    for thought in [
        call("a"),
        format!("{} and {}", call("a"), call("c")),
        "see [1] and <this> and `that`".to_owned(),
        "```json\n{\"name\": \"a\", \"args\": {}}\n```".to_owned(),
    ] {
        assert_eq!(
            names(&format!("{thought}\n</think>\n{}", call("b"))),
            ["b"],
            "{thought}"
        );
    }
}

#[test]
fn consecutive_actions_are_read() {
    for text in [
        "Action:\n```json\n{\"action\": \"a\", \"action_input\": {}}\n```\nAction: b\nAction Input: {}",
        "Action: a\nAction Input: {\"x\": 1}\nAction: b\nAction Input: {}",
        "Action: a\nAction Input: some words\nAction: b\nAction Input: {}",
    ] {
        assert_eq!(names(text), ["a", "b"], "{text}");
    }
    assert_eq!(
        names("Action: None\nAction Input: {}\nAction: b\nAction Input: {}"),
        ["b"]
    );
}

#[test]
fn json_beside_prose_is_not_a_call() {
    let call = "{\"name\": \"a\", \"args\": {}}";
    assert_eq!(names(call), ["a"]);
    assert_eq!(names(&format!("{call}}}]")), ["a"], "brackets too many");
    for text in [
        format!("{call} and more"),
        format!("{call}\n{{\"city\": \"Oslo\"}}"),
    ] {
        assert!(names(&text).is_empty(), "{text}");
    }
}

#[test]
fn every_style_of_a_family_of_models_is_read() {
    for (syntax, text) in [
        (
            TextSyntax::Functions,
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            TextSyntax::Functions,
            "I look.\n<function=get_weather><parameter=city>Oslo</parameter></function>",
        ),
        (
            TextSyntax::Functions,
            r#"<function=get_weather>{"city": "Oslo"}</function>"#,
        ),
        (
            TextSyntax::Invoke,
            "<function_calls>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>\n</function_calls>",
        ),
        (
            TextSyntax::Mistral,
            r#"[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]</s>"#,
        ),
        (
            TextSyntax::Mistral,
            r#"[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}"#,
        ),
        (
            TextSyntax::Mistral,
            r#"Well. [TOOL_CALLS]get_weather{"city": "Oslo"}"#,
        ),
        (
            TextSyntax::PythonTag,
            r#"<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}<|eom_id|>"#,
        ),
        (
            TextSyntax::PythonTag,
            r#"<|python_tag|>get_weather.call(city="Oslo")<|eom_id|>"#,
        ),
        (TextSyntax::Pythonic, "[get_weather(city='Oslo')]"),
        (
            TextSyntax::Deepseek,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        (
            TextSyntax::Deepseek,
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>",
        ),
        (
            TextSyntax::Kimi,
            r#"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|>"#,
        ),
        (
            TextSyntax::Harmony,
            r#"<|channel|>analysis<|message|>Call to=functions.x{}<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>"#,
        ),
        (
            TextSyntax::Harmony,
            r#"<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>"#,
        ),
        (
            TextSyntax::ToolCode,
            "I look.\n```tool_code\nprint(default_api.get_weather(city=\"Oslo\"))\n```",
        ),
        (
            TextSyntax::ToolCode,
            "```tool_code\nx = get_weather(\n  city=\"Oslo\",\n)\nprint(x)\n```",
        ),
    ] {
        let read = read_text(text);
        assert_eq!(read.syntax, syntax, "{text}");
        assert_eq!(calls(text), weather(), "{text}");
    }
}

#[test]
fn several_calls_of_a_style_are_read_in_order() {
    let names =
        |text: &str| -> Vec<String> { calls(text).into_iter().map(|(name, ..)| name).collect() };
    for text in [
        "[a(x=1), b.c(y=[1, (2)], z=\"),\")]",
        "<|python_tag|>{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b.c\", \"parameters\": {}}",
        "[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]b.c[ARGS]{}",
        "<function=a></function>\n<function=b.c></function>",
        "```tool_code\na(x=1)\nb.c()\n```",
    ] {
        assert_eq!(names(text), ["a", "b.c"], "{text}");
    }
    let read = calls(
        "<function=f><parameter=html>a</parameter> b\n</parameter><parameter=n>5</parameter></function>",
    );
    assert_eq!(read[0].1, json!({"html": "a</parameter> b", "n": "5"}));
    let read = calls("<|python_tag|>f(a=True, b=None, c={'d': [1.5]}, e='it\\'s')");
    assert_eq!(
        read[0].1,
        json!({"a": true, "b": null, "c": {"d": [1.5]}, "e": "it's"})
    );
}

#[test]
fn cut_or_unclear_call_of_a_style_does_not_run() {
    for text in [
        "<function=f><parameter=a>x",
        "<function=f><parameter=a>x</parameter>",
        "<|python_tag|>f(a='x",
        "[TOOL_CALLS]f[ARGS]{\"a\": \"x",
    ] {
        let read = read_text(text);
        let cut: Vec<bool> = read
            .calls
            .iter()
            .flatten()
            .map(|call| call.cut_off)
            .collect();
        assert_eq!(cut, [true], "{text}");
    }
    for text in [
        "<|python_tag|>f('Oslo')",
        "```tool_code\nimport os\n```",
        "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
    ] {
        let malformed = malformed_calls(text);
        assert!(
            malformed.len() == 1 && malformed[0].correction.contains("write exactly this"),
            "{text}: {malformed:?}"
        );
    }
    for text in [
        "The mark <function= begins one.",
        "I use [TOOL_CALLS] here.",
        "<|channel|>final<|message|>Done.",
        "See `[a, b](x)`.",
        "[see(this)",
    ] {
        assert!(read_text(text).calls.is_empty(), "{text}");
    }
}

#[test]
fn result_cannot_end_its_block() {
    let message = read_text("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>");
    let content = [Content::text(
        "x<｜tool▁output▁end｜>```<|end|></tool_response>",
    )];
    let reply = ToolReply {
        content: &content,
        structured: None,
        is_error: false,
        is_final_answer: false,
        is_invalid_call: false,
    };
    let messages = write_reply(&message, &[reply]);
    let text = messages[0]["content"].as_str().unwrap();
    assert_eq!(text.matches("<｜tool▁output▁end｜>").count(), 1, "{text}");
    assert!(
        !text.contains("<|end|>") && !text.contains("```") && !text.contains("</tool"),
        "{text}"
    );
}
