//! Example calls of a tool, for the API page and other places that show how to call it.

use serde_json::Value;

use super::Tool;
use crate::call::{Example, JsonObject};

impl<R> Tool<R> {
    /// Adds an example call. The page of the API offers the first one, so a call with these
    /// arguments should succeed. A value that is not an object stands for no arguments.
    pub fn example(mut self, arguments: Value) -> Self {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => JsonObject::new(),
        };
        self.definition.examples.push(Example {
            arguments,
            result: None,
        });
        self
    }
}
