//! Reads JSON that describes a tool call, in the shapes that models use.

use serde_json::Value;

use super::marks::{find_end_mark, is_explicit};
use super::parsed_call::{ParsedCall, malformed_call};
use crate::json_repair::{self, TokenKind, Tokens};
use crate::message::{RawArguments, TextSyntax, ToolCall};
use crate::strict_json::{JsonObject, parse_strict};
use crate::words::words;

/// The keys of a tool's name.
const NAME_KEYS: [&str; 5] = ["tool_name", "tool", "name", "action", "function"];
const ARGUMENT_KEYS: [&str; 8] =
    words("args arguments parameters params input tool_input tool_args action_input");
/// Further keys that a call may have where only its keys show that it is a call.
const OTHER_KEYS: [&str; 8] =
    words("id type index tool_call_id call_id thought thoughts reasoning");

/// The result of reading a piece of text.
#[derive(Default)]
pub(super) struct ReadResult {
    /// The calls in it. `None` if it is something else.
    pub(super) calls: Option<Vec<ParsedCall>>,
    /// The length of the text that was read, in bytes.
    pub(super) length: usize,
    /// The JSON is broken, so its end is a guess.
    pub(super) is_broken: bool,
    /// The number of bytes that were read without result to find that out.
    pub(super) wasted_bytes: usize,
}

impl ReadResult {
    /// One call, and the length of the text that was read. `is_broken`: its end is a guess.
    pub(super) fn one(call: ParsedCall, length: usize, is_broken: bool) -> Self {
        Self {
            calls: Some(vec![call]),
            length,
            is_broken,
            wasted_bytes: 0,
        }
    }
}

/// Names that mean "no call" (ReAct). `final_answer` is not included, because real tools have this
/// name.
pub(crate) fn is_reserved_action(name: &str) -> bool {
    ["none", "n/a", "final answer", "finish"]
        .iter()
        .any(|word| name.eq_ignore_ascii_case(word))
}

/// Classifies arguments that are given as text, which may be JSON.
pub(super) fn classify_text_arguments(text: &str) -> RawArguments {
    match parse_strict(text.as_bytes()) {
        _ if text.trim().is_empty() => RawArguments::Missing,
        Ok(value) => value.into(),
        Err(_) => RawArguments::Text(text.to_owned()),
    }
}

/// The calls of a text that consists of JSON only.
pub(super) fn read_whole_text(text: &str) -> Option<Vec<ParsedCall>> {
    let text = text.trim();
    let parsed = read_calls(text, TextSyntax::Bare);
    let rest = &text[parsed.length..];
    parsed.calls.filter(|_| {
        rest.bytes()
            .all(|b| b.is_ascii_whitespace() || matches!(b, b'}' | b']'))
    })
}

/// Reads consecutive calls. In a fence or without any mark, every JSON value must look like a call;
/// otherwise none is a call.
pub(super) fn read_calls(text: &str, syntax: TextSyntax) -> ReadResult {
    let mut all = ReadResult::default();
    loop {
        let rest = &text[all.length..];
        let start = rest.len() - rest.trim_start().len();
        // After the first value, `[` begins a mark rather than an array.
        let begins: &[char] = if all.length == 0 { &['{', '['] } else { &['{'] };
        if all.is_broken || !rest[start..].starts_with(begins) {
            return all;
        }
        let parsed = read_call(&rest[start..], syntax);
        all.length += start + parsed.length;
        all.is_broken = parsed.is_broken;
        all.wasted_bytes += parsed.wasted_bytes;
        match parsed.calls {
            Some(calls) => all.calls.get_or_insert_default().extend(calls),
            None => return ReadResult { calls: None, ..all },
        }
    }
}

fn read_call(text: &str, syntax: TextSyntax) -> ReadResult {
    let (closed, end, wasted_bytes) = json_extent(text, syntax);
    let body = &text[..end];
    let calls = match parse_strict(body.as_bytes()) {
        Ok(value) => calls_in_value(value, syntax),
        Err(_) => call_in_broken_json(body, syntax, !closed && is_cut_off(body, end == text.len())),
    };
    ReadResult {
        calls,
        length: end,
        is_broken: !closed,
        wasted_bytes,
    }
}

/// Whether the JSON at the start of the text is closed, where it ends, and the number of bytes that
/// were read without result to find that out.
pub(super) fn json_extent(text: &str, syntax: TextSyntax) -> (bool, usize, usize) {
    match json_repair::find_extent(text) {
        Ok(Some(end)) => (true, end, 0),
        Ok(None) => (false, find_broken_end(text, syntax), text.len()),
        Err(fault) => {
            let wasted = if fault.is_endless() {
                text.len()
            } else {
                fault.at
            };
            (false, find_broken_end(text, syntax), wasted)
        }
    }
}

/// Whether the text was cut off: brackets are open at the end, or it is the last piece and its last
/// token is incomplete.
pub(super) fn is_cut_off(body: &str, is_last: bool) -> bool {
    match json_repair::find_extent(body) {
        Ok(end) => end.is_none(),
        Err(fault) => is_last && fault.is_at_end(body),
    }
}

/// The end of a body with broken JSON: the position of the mark that should follow it.
fn find_broken_end(text: &str, syntax: TextSyntax) -> usize {
    let end = match syntax {
        TextSyntax::Fenced => text.find("\n```").map(|at| at + 1),
        _ => find_end_mark(text, syntax),
    };
    end.unwrap_or(text.len())
}

/// The calls in valid JSON. `None` if it is something else.
pub(super) fn calls_in_value(value: Value, syntax: TextSyntax) -> Option<Vec<ParsedCall>> {
    let is_explicit = is_explicit(syntax);
    match value {
        Value::Array(items) => {
            let all: Option<Vec<Vec<ParsedCall>>> = items
                .into_iter()
                .map(|item| calls_in_value(item, syntax))
                .collect();
            all.map(|all| all.into_iter().flatten().collect())
                .filter(|all: &Vec<ParsedCall>| is_explicit || !all.is_empty())
        }
        Value::Object(mut object) => match object.remove("tool_calls") {
            Some(calls @ Value::Array(_)) => calls_in_value(calls, syntax),
            _ => calls_in_object(object, syntax),
        },
        _ => {
            let what = "it is not a JSON object".to_owned();
            is_explicit.then(|| vec![Err(malformed_call(syntax, None, what))])
        }
    }
}

fn calls_in_object(mut object: JsonObject, syntax: TextSyntax) -> Option<Vec<ParsedCall>> {
    if let Some(Value::Object(function)) = object.get_mut("function") {
        let function = std::mem::take(function);
        return calls_in_object(function, syntax);
    }
    let members: Vec<(String, Value)> = object.into_iter().collect();
    let keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    let malformed = |what: String| Some(vec![Err(malformed_call(syntax, None, what))]);
    let (name, arguments) = match assign_roles(&keys, syntax)? {
        Ok(roles) => roles,
        Err(what) => return malformed(what),
    };
    let is_explicit = is_explicit(syntax);
    let named = members[name].1.as_str();
    let Some(named) = named.filter(|named| is_explicit || is_plausible_name(named)) else {
        let what = format!("{} is not a tool's name", members[name].0);
        return malformed(what).filter(|_| is_explicit);
    };
    if is_reserved_action(named) && !is_explicit {
        return Some(Vec::new());
    }
    let arguments = arguments.map_or(RawArguments::Missing, |at| members[at].1.clone().into());
    let is_plausible = match &arguments {
        RawArguments::Other(_) => false,
        RawArguments::Text(text) => {
            members[name].0 == "action" || text.trim_start().starts_with('{')
        }
        _ => true,
    };
    (is_explicit || is_plausible).then(|| vec![Ok(ToolCall::new(named.to_owned(), arguments))])
}

/// Decides which key holds the name and which the arguments. `None` if this is not a call.
fn assign_roles(
    keys: &[&str],
    syntax: TextSyntax,
) -> Option<Result<(usize, Option<usize>), String>> {
    let is_explicit = is_explicit(syntax);
    let where_key = |is_meant: &dyn Fn(&str) -> bool| -> Vec<usize> {
        (0..keys.len()).filter(|at| is_meant(keys[*at])).collect()
    };
    // `action` and `function` are names only if no better key exists. A tool may have such
    // parameters beside its arguments.
    let mut names = where_key(&|key| NAME_KEYS[..3].contains(&key));
    if names.is_empty() {
        names = where_key(&|key| NAME_KEYS[3..].contains(&key));
    }
    let arguments = where_key(&|key| ARGUMENT_KEYS.contains(&key));
    let is_known = |key: &&str| {
        NAME_KEYS.contains(key) || ARGUMENT_KEYS.contains(key) || OTHER_KEYS.contains(key)
    };
    // Without arguments, only `tool_name` identifies a call. Other JSON also has keys such as
    // `name` and `action`.
    let is_call = match arguments.len() {
        0 => names.iter().all(|name| keys[*name] == NAME_KEYS[0]),
        many => many == 1,
    };
    if !is_explicit && (names.len() != 1 || !is_call || !keys.iter().all(is_known)) {
        return None;
    }
    Some(match (names.as_slice(), arguments.as_slice()) {
        ([], _) => Err("it has no key name with the tool's name".to_owned()),
        ([name], []) => Ok((*name, None)),
        ([name], [arguments]) => Ok((*name, Some(*arguments))),
        ([_], [one, other, ..]) => Err(format!(
            "it has arguments twice, as {} and as {}",
            keys[*one], keys[*other]
        )),
        ([one, other, ..], _) => Err(format!(
            "it names a tool twice, as {} and as {}",
            keys[*one], keys[*other]
        )),
    })
}

fn is_plausible_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && (is_reserved_action(name) || !name.contains(char::is_whitespace))
}

/// Reads the call from a body that is not strict JSON. Its arguments stay as the model wrote them,
/// because the tool decides which repairs are allowed.
fn call_in_broken_json(
    mut body: &str,
    syntax: TextSyntax,
    cut_off: bool,
) -> Option<Vec<ParsedCall>> {
    let is_explicit = is_explicit(syntax);
    let mut members = split_members(body);
    // Unwraps OpenAI's wrapper once only: a text may nest such wrappers without end.
    if let Some((_, function)) = members
        .iter()
        .find(|(key, value)| key == "function" && value.starts_with('{'))
    {
        body = *function;
        members = split_members(body);
    }
    let malformed = |name: Option<String>| {
        let unreadable =
            json_repair::read_arguments(&RawArguments::Text(body.to_owned()), false, false).err();
        let what = unreadable.map_or_else(
            || "it is not one JSON object".to_owned(),
            |unreadable| unreadable.detail,
        );
        Err(malformed_call(syntax, name, what))
    };
    let keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    let (name, arguments) = match assign_roles(&keys, syntax) {
        Some(Ok(roles)) => roles,
        Some(Err(_)) => return Some(vec![malformed(None)]),
        None => return None,
    };
    let Some(name) =
        parse_single_string(members[name].1).filter(|name| is_explicit || is_plausible_name(name))
    else {
        return is_explicit.then(|| vec![malformed(None)]);
    };
    if is_reserved_action(&name) && !is_explicit {
        return Some(Vec::new());
    }
    if json_repair::has_mixed_keys(body) {
        return Some(vec![malformed(Some(name))]);
    }
    let arguments = match arguments {
        Some(at) => classify_text_arguments(members[at].1),
        // The end is missing, so arguments may have been about to follow.
        None if cut_off => RawArguments::Missing,
        None => return Some(vec![malformed(Some(name))]),
    };
    Some(vec![Ok(ToolCall {
        cut_off,
        ..ToolCall::new(name, arguments)
    })])
}

/// The members of the object at the start of the text, as far as they can be separated: each key
/// with its raw value. If reading stops inside a value, that value contains the whole remaining
/// text.
fn split_members(text: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let mut tokens = Tokens::new(text);
    if !matches!(tokens.next(), Some(Ok(token)) if token.kind == TokenKind::Open(b'{')) {
        return found;
    }
    while let Some(Ok(token)) = tokens.next() {
        let key = match token.kind {
            TokenKind::Comma => continue,
            TokenKind::Text(key) => key.into_owned(),
            _ => break,
        };
        let Some(Ok(colon)) = tokens.next() else {
            break;
        };
        if colon.kind != TokenKind::Colon {
            break;
        }
        let start = colon.range.end;
        let mut end = start;
        let ended = loop {
            match tokens.next() {
                Some(Ok(token)) if token.kind == TokenKind::Comma && tokens.depth() == 1 => {
                    break true;
                }
                Some(Ok(_)) if tokens.depth() == 0 => break true,
                Some(Ok(token)) => end = token.range.end,
                None | Some(Err(_)) => break false,
            }
        };
        found.push((
            key,
            text[start..if ended { end } else { text.len() }].trim(),
        ));
        if !ended {
            break;
        }
    }
    found
}

/// The content of a JSON string, if the text is one JSON string only.
fn parse_single_string(raw: &str) -> Option<String> {
    let mut tokens = Tokens::new(raw);
    match (tokens.next(), tokens.next()) {
        (Some(Ok(token)), None) => match token.kind {
            TokenKind::Text(text) => Some(text.into_owned()),
            _ => None,
        },
        _ => None,
    }
}
