use serde_json::Value;

use crate::call::{ToolError, ToolResult};

pub fn schema_of<T: schemars::JsonSchema>(_: bool) -> Value {
    Value::Null
}

pub fn promised(_: Value) -> Option<Value> {
    None
}

pub fn read<A: serde::de::DeserializeOwned>(_: Value) -> Result<A, ToolError> {
    Err(ToolError)
}

pub fn written<O: serde::Serialize>(_: O) -> Result<ToolResult, ToolError> {
    Err(ToolError)
}
