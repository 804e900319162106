//! Reads JSON that describes a tool call, in the shapes that models use.

use serde_json::Value;

use super::{ParsedCall, misread};
use crate::call::JsonObject;
use crate::call::json::parse_strict;
use crate::dialect::json_repair::{self, Kind, Tokens};
use crate::dialect::message::{RawArguments, TextSyntax, ToolCall};

/// The keys of a tool's name.
const NAMES: [&str; 5] = ["tool_name", "tool", "name", "action", "function"];
const ARGUMENTS: [&str; 8] =
    ["args", "arguments", "parameters", "params", "input", "tool_input", "tool_args", "action_input"];
/// Further keys that a call may have where only its keys show that it is a call.
const BESIDE: [&str; 8] = ["id", "type", "index", "tool_call_id", "call_id", "thought", "thoughts", "reasoning"];

/// The result of reading a piece of text.
#[derive(Default)]
pub(super) struct Taken {
    /// The calls in it. `None` if it is something else.
    pub(super) asks: Option<Vec<ParsedCall>>,
    /// The length of the text that was read, in bytes.
    pub(super) length: usize,
    /// The JSON is broken, so its end is a guess.
    pub(super) broken: bool,
    /// The number of bytes that were read without result to find that out.
    pub(super) wasted: usize,
}

/// Names that mean "no call" (ReAct). `final_answer` is not included, because real tools have this name.
pub(in crate::dialect) fn is_no_tool(name: &str) -> bool {
    ["none", "n/a", "final answer", "finish"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// Classifies the arguments of a call.
pub(super) fn written(value: Value) -> RawArguments {
    match value {
        Value::Object(object) => RawArguments::Object(object),
        Value::String(text) => RawArguments::Text(text),
        Value::Null => RawArguments::Nothing,
        other => RawArguments::Other(other),
    }
}

/// Classifies arguments that are given as text, which may be JSON.
pub(super) fn written_text(text: &str) -> RawArguments {
    match parse_strict(text.as_bytes()) {
        _ if text.trim().is_empty() => RawArguments::Nothing,
        Ok(value) => written(value),
        Err(_) => RawArguments::Text(text.to_owned()),
    }
}

/// The calls of a text that consists of JSON only.
pub(super) fn whole(text: &str) -> Option<Vec<ParsedCall>> {
    let text = text.trim();
    let taken = several(text, TextSyntax::Bare);
    let rest = &text[taken.length..];
    taken.asks.filter(|_| rest.bytes().all(|b| b.is_ascii_whitespace() || matches!(b, b'}' | b']')))
}

/// Reads consecutive calls. In a fence or without any mark, every JSON value must look like a call; otherwise none is
/// a call.
pub(super) fn several(text: &str, form: TextSyntax) -> Taken {
    let mut all = Taken::default();
    loop {
        let rest = &text[all.length..];
        let start = rest.len() - rest.trim_start().len();
        // After the first value, `[` begins a mark rather than an array.
        let begins: &[char] = if all.length == 0 { &['{', '['] } else { &['{'] };
        if all.broken || !rest[start..].starts_with(begins) {
            return all;
        }
        let taken = one(&rest[start..], form);
        all.length += start + taken.length;
        all.broken = taken.broken;
        all.wasted += taken.wasted;
        match taken.asks {
            Some(asks) => all.asks.get_or_insert_default().extend(asks),
            None => return Taken { asks: None, ..all },
        }
    }
}

fn one(text: &str, form: TextSyntax) -> Taken {
    let (closed, end, wasted) = match json_repair::extent(text) {
        Ok(Some(end)) => (true, end, 0),
        Ok(None) => (false, end_of_broken(text, form), text.len()),
        Err(fault) => (false, end_of_broken(text, form), if fault.is_endless() { text.len() } else { fault.at }),
    };
    let body = &text[..end];
    let asks = match parse_strict(body.as_bytes()) {
        Ok(value) => of_value(value, form),
        Err(_) => of_broken(body, form, !closed && is_cut_off(body, end == text.len())),
    };
    Taken { asks, length: end, broken: !closed, wasted }
}

/// Whether the text was cut off: brackets are open at the end, or it is the last piece and its last token is
/// incomplete.
pub(super) fn is_cut_off(body: &str, is_last: bool) -> bool {
    match json_repair::extent(body) {
        Ok(end) => end.is_none(),
        Err(fault) => is_last && fault.is_at_end(body),
    }
}

/// The end of a body with broken JSON: the position of the mark that should follow it.
fn end_of_broken(text: &str, form: TextSyntax) -> usize {
    let end = match form {
        TextSyntax::Marked | TextSyntax::Tagged => super::scan::find_end(text, form),
        TextSyntax::Fenced => text.find("\n```").map(|at| at + 1),
        TextSyntax::React | TextSyntax::Bare => None,
    };
    end.unwrap_or(text.len())
}

/// The calls in valid JSON. `None` if it is something else.
pub(super) fn of_value(value: Value, form: TextSyntax) -> Option<Vec<ParsedCall>> {
    let sure = matches!(form, TextSyntax::Marked | TextSyntax::Tagged);
    match value {
        Value::Array(items) => {
            let all: Option<Vec<Vec<ParsedCall>>> = items.into_iter().map(|item| of_value(item, form)).collect();
            all.map(|all| all.into_iter().flatten().collect()).filter(|all: &Vec<ParsedCall>| sure || !all.is_empty())
        }
        Value::Object(mut object) => match object.remove("tool_calls") {
            Some(calls @ Value::Array(_)) => of_value(calls, form),
            _ => of_object(object, form),
        },
        _ => sure.then(|| vec![Err(misread(form, None, "it is not a JSON object".to_owned()))]),
    }
}

fn of_object(mut object: JsonObject, form: TextSyntax) -> Option<Vec<ParsedCall>> {
    if let Some(Value::Object(function)) = object.get_mut("function") {
        let function = std::mem::take(function);
        return of_object(function, form);
    }
    let said: Vec<(String, Value)> = object.into_iter().collect();
    let keys: Vec<&str> = said.iter().map(|(key, _)| key.as_str()).collect();
    let (name, arguments) = match roles(&keys, form)? {
        Ok(roles) => roles,
        Err(what) => return Some(vec![Err(misread(form, None, what))]),
    };
    let sure = matches!(form, TextSyntax::Marked | TextSyntax::Tagged);
    let Some(named) = said[name].1.as_str().filter(|named| sure || is_like_a_name(named)) else {
        let what = format!("{} is not a tool's name", said[name].0);
        return sure.then(|| vec![Err(misread(form, None, what))]);
    };
    if is_no_tool(named) && !sure {
        return Some(Vec::new());
    }
    let arguments = arguments.map_or(RawArguments::Nothing, |at| written(said[at].1.clone()));
    let may_be = match &arguments {
        RawArguments::Other(_) => false,
        RawArguments::Text(text) => said[name].0 == "action" || text.trim_start().starts_with('{'),
        RawArguments::Object(_) | RawArguments::Nothing => true,
    };
    (sure || may_be)
        .then(|| vec![Ok(ToolCall { id: None, name: named.to_owned(), arguments, cut_off: false, doubtful: false })])
}

/// Decides which key holds the name and which the arguments. `None` if this is not a call.
fn roles(keys: &[&str], form: TextSyntax) -> Option<Result<(usize, Option<usize>), String>> {
    let sure = matches!(form, TextSyntax::Marked | TextSyntax::Tagged);
    let among = |words: &[&str]| -> Vec<usize> { (0..keys.len()).filter(|i| words.contains(&keys[*i])).collect() };
    // `action` and `function` are names only if no better key exists. A tool may have such parameters beside its
    // arguments.
    let mut names = among(&NAMES[..3]);
    if names.is_empty() {
        names = among(&NAMES[3..]);
    }
    let arguments = among(&ARGUMENTS);
    let is_known = |key: &&str| NAMES.contains(key) || ARGUMENTS.contains(key) || BESIDE.contains(key);
    // Without arguments, only `tool_name` identifies a call. Other JSON also has keys such as `name` and `action`.
    let is_call = match arguments.len() {
        0 => names.iter().all(|name| keys[*name] == NAMES[0]),
        many => many == 1,
    };
    if !sure && (names.len() != 1 || !is_call || !keys.iter().all(is_known)) {
        return None;
    }
    Some(match (names.as_slice(), arguments.as_slice()) {
        ([], _) => Err("it has no key name with the tool's name".to_owned()),
        ([name], []) => Ok((*name, None)),
        ([name], [arguments]) => Ok((*name, Some(*arguments))),
        ([_], [one, other, ..]) => Err(format!("it has arguments twice, as {} and as {}", keys[*one], keys[*other])),
        ([one, other, ..], _) => Err(format!("it names a tool twice, as {} and as {}", keys[*one], keys[*other])),
    })
}

fn is_like_a_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 128 && (is_no_tool(name) || !name.contains(char::is_whitespace))
}

/// Reads the call from a body that is not strict JSON. Its arguments stay as the model wrote them, because the tool
/// decides which repairs are allowed.
fn of_broken(mut body: &str, form: TextSyntax, cut_off: bool) -> Option<Vec<ParsedCall>> {
    let sure = matches!(form, TextSyntax::Marked | TextSyntax::Tagged);
    let mut all = members(body);
    // Unwraps OpenAI's wrapper once only: a text may nest such wrappers without end.
    if let Some((_, function)) = all.iter().find(|(key, value)| key == "function" && value.starts_with('{')) {
        body = *function;
        all = members(body);
    }
    let members = all;
    let wrong = |name: Option<String>| {
        let unreadable = json_repair::arguments(&RawArguments::Text(body.to_owned()), false, false).err();
        let what = unreadable.map_or_else(|| "it is not one JSON object".to_owned(), |unreadable| unreadable.what);
        Err(misread(form, name, what))
    };
    let keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    let (name, arguments) = match roles(&keys, form) {
        Some(Ok(roles)) => roles,
        Some(Err(_)) => return Some(vec![wrong(None)]),
        None => return None,
    };
    let Some(name) = text_of(members[name].1).filter(|name| sure || is_like_a_name(name)) else {
        return sure.then(|| vec![wrong(None)]);
    };
    if is_no_tool(&name) && !sure {
        return Some(Vec::new());
    }
    if json_repair::has_mixed_keys(body) {
        return Some(vec![wrong(Some(name))]);
    }
    let arguments = match arguments {
        Some(at) => written_text(members[at].1),
        // The end is missing, so arguments may have been about to follow.
        None if cut_off => RawArguments::Nothing,
        None => return Some(vec![wrong(Some(name))]),
    };
    Some(vec![Ok(ToolCall { id: None, name, arguments, cut_off, doubtful: false })])
}

/// The members of the object at the start of the text, as far as they can be separated: each key with its raw value.
/// If reading stops inside a value, that value contains the whole remaining text.
fn members(text: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let mut tokens = Tokens::new(text);
    if !matches!(tokens.next(), Some(Ok(token)) if token.kind == Kind::Open(b'{')) {
        return found;
    }
    while let Some(Ok(token)) = tokens.next() {
        let key = match token.kind {
            Kind::Comma => continue,
            Kind::Text(key) => key.into_owned(),
            _ => break,
        };
        let Some(Ok(colon)) = tokens.next() else { break };
        if colon.kind != Kind::Colon {
            break;
        }
        let start = colon.at.end;
        let mut end = start;
        let ended = loop {
            match tokens.next() {
                Some(Ok(token)) if token.kind == Kind::Comma && tokens.depth() == 1 => break true,
                Some(Ok(_)) if tokens.depth() == 0 => break true,
                Some(Ok(token)) => end = token.at.end,
                None | Some(Err(_)) => break false,
            }
        };
        found.push((key, text[start..if ended { end } else { text.len() }].trim()));
        if !ended {
            break;
        }
    }
    found
}

/// The content of a JSON string, if the text is one JSON string only.
fn text_of(raw: &str) -> Option<String> {
    let mut tokens = Tokens::new(raw);
    match (tokens.next(), tokens.next()) {
        (Some(Ok(token)), None) => match token.kind {
            Kind::Text(text) => Some(text.into_owned()),
            _ => None,
        },
        _ => None,
    }
}
