use serde_json::Value;

use crate::call::{ToolError, ToolResult};

pub fn schema_of<T: schemars::JsonSchema>(_: bool) -> Value {
    Value::Null
}

pub fn object_schema(_: Value) -> Option<Value> {
    None
}

pub fn decode_arguments<A: serde::de::DeserializeOwned>(_: Value) -> Result<A, ToolError> {
    Err(ToolError)
}

pub fn encode_output<O: serde::Serialize>(_: O) -> Result<ToolResult, ToolError> {
    Err(ToolError)
}
