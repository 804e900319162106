//! Messages of models, in every dialect and style of text. A message can be stored, and every call
//! in it gets one answer, under its id.

use serde_json::{Value, json};
use toolcrib::dialect::{
    Content, Dialect, MalformedCall, Message, ToolCall, ToolReply, call_id, parse_foreign,
    read_arguments, read_message, tool_name, write_late_results, write_replies,
};

pub(crate) fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    let named = Dialect::ALL.get(usize::from(*first) % 16).copied();
    read_and_answer(
        Value::from(text),
        named.filter(|dialect| *dialect == Dialect::Text),
    );
    if let Ok((body, _)) = parse_foreign(rest) {
        read_and_answer(body, named);
    }
}

fn read_and_answer(body: Value, named: Option<Dialect>) {
    let Ok(message) = read_message(body.clone(), named) else {
        return;
    };
    if named.is_none() {
        let again = read_message(body, Some(message.dialect)).map_err(|error| error.message);
        assert_eq!(again.as_ref(), Ok(&message), "the guessed dialect, named");
    }
    let stored = serde_json::to_string(&message).unwrap();
    assert_eq!(serde_json::from_str::<Message>(&stored).unwrap(), message);

    for call in message.calls.iter().flatten() {
        if let Ok(read) = read_arguments(&call.arguments, call.cut_off, true) {
            let written = serde_json::to_string(&read.arguments).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(&written).unwrap(),
                Value::Object(read.arguments)
            );
        }
    }
    let cut_off = message
        .calls
        .iter()
        .rposition(|call| call.as_ref().is_ok_and(|call| call.cut_off));
    if let (Some(at), Dialect::Text) = (cut_off, message.dialect) {
        let later = &message.calls[at + 1..];
        assert!(
            later.iter().flatten().all(|call| call.doubtful),
            "{message:?}"
        );
    }

    let content = [Content::text("done")];
    let data = json!({"done": true});
    let reply = |at: usize| ToolReply {
        content: &content,
        structured: (at % 2 == 1).then_some(&data),
        is_error: message.calls[at].is_err() || at % 3 == 2,
        is_final_answer: false,
        is_invalid_call: message.calls[at].is_err(),
    };
    let replies: Vec<ToolReply<'_>> = (0..message.calls.len()).map(reply).collect();
    let written = write_replies(&message, &replies);
    assert_eq!(written.is_empty(), message.calls.is_empty());
    // Gemini has no form for the answer to a call without a name, so that is a text.
    let has_reply = |call: &&Result<ToolCall, MalformedCall>| {
        message.dialect != Dialect::Gemini || tool_name(call).is_some()
    };
    if message.dialect != Dialect::Text {
        let mut values = Vec::new();
        written.iter().for_each(|value| collect(value, &mut values));
        for id in message.calls.iter().filter(has_reply).filter_map(call_id) {
            let found = values.iter().position(|value| *value == id);
            values.swap_remove(found.unwrap_or_else(|| panic!("no reply for {id} in {written:?}")));
        }
    }
    let late = write_late_results(
        message.dialect,
        replies.iter().map(|reply| ("Later:", *reply)),
    );
    assert!(late.is_object());
}

/// All values that are neither arrays nor objects.
fn collect<'v>(value: &'v Value, into: &mut Vec<&'v Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        Value::Object(members) => members.values().for_each(|value| collect(value, into)),
        plain => into.push(plain),
    }
}
