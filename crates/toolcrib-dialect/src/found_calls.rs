//! Collects the calls and warnings that a dialect's file finds in a message.

use std::collections::HashSet;

use serde_json::Value;

use super::message::{Dialect, MalformedCall, Message, RawArguments, ToolCall, call_id};
use super::message_texts;
use crate::strict_json::{JsonObject, type_name};

/// Finds the parts of a message, and whether the last one was cut off.
type FindParts = for<'a> fn(&'a mut JsonObject) -> Option<(&'a mut Vec<Value>, bool)>;

/// The calls found so far.
pub(super) struct FoundCalls {
    dialect: Dialect,
    calls: Vec<Result<ToolCall, MalformedCall>>,
    warnings: Vec<String>,
}

impl FoundCalls {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            calls: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a call from its raw parts. An unusable call becomes a [`MalformedCall`]; the other
    /// calls are unaffected.
    pub(super) fn add_call(
        &mut self,
        id: Option<Value>,
        name: Option<Value>,
        arguments: Option<Value>,
    ) {
        let id = id.filter(|id| id.is_string() || id.is_number());
        self.calls.push(match name {
            Some(Value::String(name)) if !name.trim().is_empty() => {
                let plain = without_marks(&name);
                if plain.len() < name.len() {
                    self.warnings
                        .push(format!("the name `{name}` was read as `{plain}`"));
                }
                let arguments = arguments.map_or(RawArguments::Missing, RawArguments::from);
                let call = ToolCall::new(plain.to_owned(), arguments);
                Ok(ToolCall { id, ..call })
            }
            other => Err(nameless_call(id, other.as_ref())),
        });
    }

    /// Takes a call from the fields with these names, of which the first one counts that is there.
    pub(super) fn take_call(
        &mut self,
        fields: &mut JsonObject,
        id: &[&str],
        name: &[&str],
        arguments: &[&str],
    ) {
        let name = take_field(fields, name);
        let arguments = take_field(fields, arguments);
        self.add_call(take_field(fields, id), name, arguments);
    }

    /// As [`take_call`](Self::take_call), for an API that accepts results only with an id.
    pub(super) fn take_call_with_id(
        &mut self,
        fields: &mut JsonObject,
        id: &[&str],
        name: &str,
        arguments: &str,
    ) {
        let name = take_field(fields, &[name]);
        let arguments = take_field(fields, &[arguments]);
        self.add_call_with_id(take_field(fields, id), name, arguments);
    }

    /// Sets fields of the reply to the last call.
    pub(super) fn set_reply_fields(&mut self, fields: JsonObject) {
        match self.calls.last_mut() {
            Some(Ok(call)) => call.reply_fields = fields,
            Some(Err(malformed)) => malformed.reply_fields = fields,
            None => {}
        }
    }

    /// Adds a call of a custom tool, whose input is a text.
    pub(super) fn add_custom_call(&mut self, id: Option<Value>, fields: &mut JsonObject) {
        let input = take_field(fields, &["input"]);
        self.add_call_with_id(id, take_field(fields, &["name"]), None);
        if let (Some(Value::String(input)), Some(call)) = (input, self.last_call()) {
            call.arguments = RawArguments::Input(input);
        }
    }

    /// Adds a call of something that this service does not have. A provider refuses the next
    /// request if a call has no result, so it is answered.
    pub(super) fn add_foreign_call(&mut self, id: Option<Value>, fault: String) {
        let correction = format!("This was not run: {fault}. Call one of your functions instead.");
        self.warnings
            .push(format!("{fault}; it was answered with an error"));
        self.add_call_with_id(id, None, None);
        if let Some(Err(malformed)) = self.calls.last_mut() {
            (malformed.fault, malformed.correction) = (fault, correction);
        }
    }

    /// The id of the last call, which may have been made here.
    pub(super) fn last_id(&self) -> Option<&Value> {
        self.calls.last().and_then(call_id)
    }

    /// The last call, if it can be read.
    pub(super) fn last_call(&mut self) -> Option<&mut ToolCall> {
        self.calls.last_mut()?.as_mut().ok()
    }

    /// Adds a call of an API that accepts results only with an id. A missing id is made from the
    /// position of the call.
    pub(super) fn add_call_with_id(
        &mut self,
        id: Option<Value>,
        name: Option<Value>,
        arguments: Option<Value>,
    ) {
        let id = id.filter(|id| id.is_number() || id.as_str().is_some_and(|id| !id.is_empty())).unwrap_or_else(|| {
            let number = self.calls.len() + 1;
            let generated = format!("call_{number}");
            self.warn(format!(
                "call {number} has no id: it is answered as `{generated}`, so give it that id in the message too"
            ));
            Value::String(generated)
        });
        self.add_call(Some(id), name, arguments);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds something that looks like a call and cannot be read.
    pub(super) fn add_malformed(&mut self, malformed: MalformedCall) {
        self.calls.push(Err(malformed));
    }

    /// Marks the last call as cut off: the model stopped while it wrote that call.
    pub(super) fn mark_cut_off(&mut self) {
        if let Some(call) = self.last_call() {
            call.cut_off = true;
        }
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Visits the parts of a message. `read_part` adds the call of a part and returns whether the
    /// part is a call. `is_part` recognizes parts of this dialect; without any such part the result
    /// is false. `is_cut`: the model did not finish the last part.
    pub(super) fn visit_parts(
        &mut self,
        parts: &mut [Value],
        is_cut: bool,
        is_part: fn(&Value) -> bool,
        read_part: fn(&mut JsonObject, &mut Self) -> bool,
    ) -> bool {
        if !parts.is_empty() && !parts.iter().any(is_part) {
            return false;
        }
        let mut last_is_call = false;
        for part in parts {
            last_is_call = part
                .as_object_mut()
                .is_some_and(|fields| read_part(fields, self));
        }
        if is_cut && last_is_call {
            self.mark_cut_off();
        }
        true
    }

    /// Visits the parts of a body: of a list, of a message in which `parts` finds them and whether
    /// the last one was cut off, or the body itself.
    pub(super) fn visit_body(
        &mut self,
        body: &mut Value,
        parts: FindParts,
        is_part: fn(&Value) -> bool,
        read_part: fn(&mut JsonObject, &mut Self) -> bool,
    ) -> bool {
        if let Some((all, is_cut)) = body.as_object_mut().and_then(parts) {
            return self.visit_parts(all, is_cut, is_part, read_part);
        }
        let all = match body {
            Value::Array(all) => all.as_mut_slice(),
            one if one.is_object() && is_part(one) => std::slice::from_mut(one),
            _ => return false,
        };
        self.visit_parts(all, false, is_part, read_part)
    }

    /// Warns about a part that may expect a result but does not call a tool of this service.
    pub(super) fn warn_ignored(&mut self, what: &str) {
        self.warn(format!(
            "{what} is ignored: it does not call a tool of this service"
        ));
    }

    /// Makes the message. `rest` is the body after the calls were moved out of it.
    pub(super) fn into_message(mut self, rest: &Value) -> Message {
        if self.calls.is_empty() {
            self.warn(if message_texts::may_contain_calls(rest) {
                "the message has no tool calls; its text may contain one: `dialect=text` reads it"
                    .into()
            } else {
                "the message has no tool calls".into()
            });
        }
        let mut seen = HashSet::with_capacity(self.calls.len());
        let ids = self
            .calls
            .iter()
            .filter_map(call_id)
            .filter_map(Value::as_str);
        for id in ids.filter(|id| !seen.insert(*id)) {
            self.warnings
                .push(format!("more than one call has the id `{id}`"));
        }
        Message {
            dialect: self.dialect,
            calls: self.calls,
            warnings: self.warnings,
            syntax: super::TextSyntax::default(),
        }
    }
}

impl From<Value> for RawArguments {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Missing,
            Value::Object(arguments) => Self::Object(arguments),
            Value::String(text) => Self::Text(text),
            other => Self::Other(other),
        }
    }
}

/// Fields of the reply that a call determines.
pub(super) fn reply_fields(call: &Result<ToolCall, MalformedCall>) -> &JsonObject {
    match call {
        Ok(call) => &call.reply_fields,
        Err(malformed) => &malformed.reply_fields,
    }
}

/// The name without the marks of the Harmony format, which some servers leave in it
/// (`search<|channel|>commentary`).
pub(super) fn without_marks(name: &str) -> &str {
    let is_mark = |rest: &str| {
        let word = rest.split_once("|>").map_or("", |(word, _)| word);
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    match name.split_once("<|") {
        Some((plain, rest)) if !plain.trim().is_empty() && is_mark(rest) => plain.trim(),
        _ => name,
    }
}

/// Takes the first of the fields that is present and not null.
pub(super) fn take_field(fields: &mut JsonObject, names: &[&str]) -> Option<Value> {
    names.iter().find_map(|name| {
        fields
            .get_mut(*name)
            .map(Value::take)
            .filter(|value| !value.is_null())
    })
}

/// The string value of a field.
pub(super) fn text_field<'a>(fields: &'a JsonObject, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str()
}

fn nameless_call(id: Option<Value>, name: Option<&Value>) -> MalformedCall {
    let what = match name {
        None => "the call has no tool name".to_owned(),
        Some(Value::String(_)) => "the tool's name in the call is empty".to_owned(),
        Some(other) => format!(
            "the tool's name in the call is of the type {}, not a text",
            type_name(other)
        ),
    };
    let correction = "Your tool call does not name a tool. Call again, with the exact name of one of your tools.";
    MalformedCall {
        id,
        ..MalformedCall::new(what, correction.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::*;
    use crate::tool_name;

    #[test]
    fn marks_of_harmony_are_no_part_of_a_name() {
        let message = read_guessed(
            json!({"tool_calls": [{"id": "1", "function": {"name": "search<|channel|>commentary", "arguments": "{}"}}]}),
        );
        assert_eq!(tool_name(&message.calls[0]), Some("search"));
        assert!(
            message.warnings[0].contains("read as `search`"),
            "{:?}",
            message.warnings
        );
    }
}
