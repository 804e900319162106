//! What a dialect's file finds in a message, call by call.

use std::collections::HashSet;

use serde_json::Value;

use super::message::{Ask, Dialect, Message, Misread, Written};
use super::words;
use crate::call::JsonObject;
use crate::call::json::type_name;

/// The calls found so far.
pub(super) struct Found {
    dialect: Dialect,
    asks: Vec<Result<Ask, Misread>>,
    warnings: Vec<String>,
}

impl Found {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, asks: Vec::new(), warnings: Vec::new() }
    }

    /// A call, its parts as they came. One that cannot be used is a [`Misread`], the others stay as they are.
    pub(super) fn call(&mut self, id: Option<Value>, name: Option<Value>, arguments: Option<Value>) {
        let id = id.filter(|id| id.is_string() || id.is_number());
        self.asks.push(match name {
            Some(Value::String(name)) if !name.trim().is_empty() => Ok(Ask {
                id,
                name,
                arguments: arguments.map_or(Written::Nothing, Written::from),
                cut_off: false,
                doubtful: false,
            }),
            other => Err(nameless(id, other.as_ref())),
        });
    }

    /// A call in an API that takes results only with an id: a missing one is made of the call's place.
    pub(super) fn call_with_id(&mut self, id: Option<Value>, name: Option<Value>, arguments: Option<Value>) {
        let id = id.filter(|id| id.is_number() || id.as_str().is_some_and(|id| !id.is_empty())).unwrap_or_else(|| {
            let place = self.asks.len() + 1;
            let made = format!("call_{place}");
            self.warn(format!(
                "call {place} has no id: it is answered as `{made}`, so give it that id in the message too"
            ));
            Value::String(made)
        });
        self.call(Some(id), name, arguments);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// What looks like a call and cannot be read.
    pub(super) fn misread(&mut self, misread: Misread) {
        self.asks.push(Err(misread));
    }

    /// The model was cut off while it wrote the call found last.
    pub(super) fn cut_off(&mut self) {
        if let Some(Ok(ask)) = self.asks.last_mut() {
            ask.cut_off = true;
        }
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Walks over what a message is made of. `one` finds the call in a part and says whether there is one; `is_part` tells
    /// parts of this dialect, and without any the answer is false. `is_cut`: what was written last was not finished.
    pub(super) fn each(
        &mut self,
        parts: &mut [Value],
        is_cut: bool,
        is_part: fn(&Value) -> bool,
        one: fn(&mut JsonObject, &mut Self) -> bool,
    ) -> bool {
        if !parts.is_empty() && !parts.iter().any(is_part) {
            return false;
        }
        let mut last_is_call = false;
        for part in parts {
            last_is_call = part.as_object_mut().is_some_and(|fields| one(fields, self));
        }
        if is_cut && last_is_call {
            self.cut_off();
        }
        true
    }

    /// Something that may want an answer, but is no call of a tool of ours.
    pub(super) fn left_alone(&mut self, what: &str) {
        self.warn(format!("{what} is left alone: it calls no tool that is run here"));
    }

    /// The message. `rest` is what is left of the body when the calls are taken out.
    pub(super) fn into_message(mut self, rest: &Value) -> Message {
        if self.asks.is_empty() {
            self.warn(if words::may_hold_calls(rest) {
                "the message has no tool calls; its text has what may be one, and `dialect=text` reads that".into()
            } else {
                "the message has no tool calls".into()
            });
        }
        let mut seen = HashSet::with_capacity(self.asks.len());
        let ids = self.asks.iter().filter_map(id_of).filter_map(Value::as_str);
        let twice: Vec<String> = ids.filter(|id| !seen.insert(*id)).map(str::to_owned).collect();
        self.warnings.extend(twice.iter().map(|id| format!("more than one call has the id `{id}`")));
        Message { dialect: self.dialect, asks: self.asks, warnings: self.warnings, form: super::Form::default() }
    }
}

impl From<Value> for Written {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            Value::Object(arguments) => Self::Object(arguments),
            Value::String(text) => Self::Text(text),
            other => Self::Other(other),
        }
    }
}

/// The provider's id for a call.
pub fn id_of(ask: &Result<Ask, Misread>) -> Option<&Value> {
    match ask {
        Ok(ask) => ask.id.as_ref(),
        Err(misread) => misread.id.as_ref(),
    }
}

/// The tool's name in a call.
pub fn name_of(ask: &Result<Ask, Misread>) -> Option<&str> {
    match ask {
        Ok(ask) => Some(&ask.name),
        Err(misread) => misread.name.as_deref(),
    }
}

/// Takes the first of the fields that is there and not null.
pub(super) fn take(fields: &mut JsonObject, names: &[&str]) -> Option<Value> {
    names.iter().find_map(|name| fields.get_mut(*name).map(Value::take).filter(|value| !value.is_null()))
}

/// A field that is a text.
pub(super) fn text<'a>(fields: &'a JsonObject, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str()
}

fn nameless(id: Option<Value>, name: Option<&Value>) -> Misread {
    let what = match name {
        None => "the call has no tool's name".to_owned(),
        Some(Value::String(_)) => "the tool's name in the call is empty".to_owned(),
        Some(other) => format!("the tool's name in the call is of the type {}, not a text", type_name(other)),
    };
    let correction = "Your tool call did not say which tool. Call again, with the exact name of one of your tools.";
    Misread { id, name: None, what, correction: correction.to_owned(), is_other_method: false }
}
