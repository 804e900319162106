//! Reads lists of tools of which a part cannot be read.
//!
//! JSON is read to a depth of 128 levels. Some texts that look like JSON have no value (`1e999`,
//! half of a surrogate pair). One such tool must not hide the others. So a list that cannot be read
//! as a whole is split without recursion, and each tool is read by itself.

use rmcp::model::RequestId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::kinds::malformed_definition::{describe_decode_error, read_tool_name};

/// Key in `_meta` of the entry that replaces an unreadable tool. Its value is the reason.
const UNREADABLE_KEY: &str = "toolcrib/unreadable";

#[derive(Deserialize)]
struct RawResponse<'a> {
    id: RequestId,
    #[serde(borrow)]
    result: RawList<'a>,
}

#[derive(Deserialize)]
struct RawList<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
    #[serde(borrow, default, rename = "nextCursor")]
    next_cursor: Option<&'a RawValue>,
}

/// The id and the result of a response that lists tools. An entry with the name and the reason
/// replaces each unreadable tool. Of the other members only the cursor is kept. `None` for any
/// other message.
pub(super) fn read_tool_list(message: &[u8]) -> Option<(RequestId, Value)> {
    let RawResponse { id, result } = serde_json::from_slice(message).ok()?;
    let tools: Vec<Value> = result.tools.into_iter().map(parse_tool).collect();
    let mut list = json!({"tools": tools});
    if let Some(next) = result
        .next_cursor
        .and_then(|next| serde_json::from_str::<String>(next.get()).ok())
    {
        list["nextCursor"] = next.into();
    }
    Some((id, list))
}

/// Why this tool could not be read; `None` if it could.
pub(super) fn unreadable_reason(tool: &Value) -> Option<&str> {
    tool.get("_meta")?.get(UNREADABLE_KEY)?.as_str()
}

fn parse_tool(text: &RawValue) -> Value {
    serde_json::from_str(text.get()).unwrap_or_else(|error| {
        let name = read_tool_name(text).unwrap_or_else(|_| "?".to_owned());
        json!({"name": name, "_meta": {UNREADABLE_KEY: describe_decode_error(&error)}})
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schema with this many nested properties.
    fn nested(levels: usize) -> String {
        format!(
            "{}{}",
            r#"{"properties":{"a":"#.repeat(levels) + "{}",
            "}}".repeat(levels)
        )
    }

    #[test]
    fn deep_tool_leaves_the_others_readable() {
        for levels in [100, 400, 100_000] {
            let message = format!(
                r#"{{"jsonrpc":"2.0","result":{{"x":{deep},"tools":[{{"name":"one"}},{{"inputSchema":{deep},"name":"d\u00e9ep"}},
                    {{"name":"big","n":1e999}},{{"name":"\ud800"}},3],"nextCursor":"n"}},"id":7}}"#,
                deep = nested(levels),
            );
            let (id, list) = read_tool_list(message.as_bytes()).unwrap();
            assert_eq!(
                (id, &list["nextCursor"]),
                (RequestId::Number(7), &json!("n"))
            );
            let names: Vec<&Value> = list["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| &tool["name"])
                .collect();
            assert_eq!(
                names,
                [
                    &json!("one"),
                    &json!("déep"),
                    &json!("big"),
                    &json!("?"),
                    &Value::Null
                ]
            );
            let reasons: Vec<Option<&str>> = list["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(unreadable_reason)
                .collect();
            assert_eq!(reasons[0], None);
            assert_eq!(
                reasons[1],
                Some("its definition is nested more than 128 levels deep")
            );
            assert!(
                reasons[2]
                    .unwrap()
                    .starts_with("its definition is not valid JSON: number out of range"),
                "{reasons:?}"
            );
        }
    }

    #[test]
    fn other_messages_are_not_lists() {
        for other in [
            r#"{"id":7,"result":{"content":[]}}"#,
            r#"{"id":7,"result":{"tools":{}}}"#,
            r#"{"result":{"tools":[]}}"#,
            r#"{"id":7,"result":{"tools":[}}"#,
            "words",
        ] {
            assert!(read_tool_list(other.as_bytes()).is_none(), "{other}");
        }
    }
}
