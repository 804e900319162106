//! Calls in plain text.

use serde_json::Value;

use super::message::{Dialect, Message, Said};

pub(super) fn read(_text: &str) -> Message {
    Message { dialect: Dialect::Text, asks: Vec::new(), warnings: Vec::new() }
}

pub(super) fn reply(_message: &Message, _said: &[Said<'_>]) -> Vec<Value> {
    Vec::new()
}
