//! The table of `export --format csv` (RFC 4180): fixed columns, and lines that end with CR LF.

use std::io;

use serde_json::Value;

use crate::call::words;

/// The fields of a call that are columns, in this order. Columns are only added at the end.
const COLUMNS: [&str; 19] = words(
    "invocation_id started_at tool caller run_id tool_use_id idempotency_key parent state
     kind detail effect cache attempts duration_ms is_error count replica arguments",
);

/// The first line.
pub(super) fn header() -> csv::Result<Vec<u8>> {
    format_line(COLUMNS.map(str::to_owned))
}

/// The line of a call.
pub(super) fn line(call: &Value) -> csv::Result<Vec<u8>> {
    format_line(COLUMNS.map(|column| format_cell(call, column)))
}

/// A text as it is, `null` as nothing, and anything else as JSON.
fn format_cell(call: &Value, column: &str) -> String {
    let value = match column {
        "is_error" => &call["result"]["is_error"],
        _ => &call[column],
    };
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn format_line(cells: [String; COLUMNS.len()]) -> csv::Result<Vec<u8>> {
    let mut builder = csv::WriterBuilder::new();
    let mut writer = builder
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    writer.write_record(cells)?;
    let line = writer.into_inner();
    line.map_err(|error| io::Error::other(error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line_of(call: &Value) -> String {
        String::from_utf8(line(call).unwrap()).unwrap()
    }

    #[test]
    fn header_names_the_columns() {
        let header = String::from_utf8(header().unwrap()).unwrap();
        assert_eq!(
            header,
            "invocation_id,started_at,tool,caller,run_id,tool_use_id,idempotency_key,parent,state,kind,detail,effect,cache,attempts,\
             duration_ms,is_error,count,replica,arguments\r\n"
        );
    }

    #[test]
    fn cells_are_quoted_where_needed() {
        let call = json!({"invocation_id": "0199", "tool": "a,b", "caller": "say \"hi\"", "run_id": null, "detail": "two\nlines",
                          "attempts": 2, "duration_ms": 1.5, "result": {"is_error": false}, "arguments": {"city": "Oslo"}});
        assert_eq!(
            line_of(&call),
            "0199,,\"a,b\",\"say \"\"hi\"\"\",,,,,,,\"two\nlines\",,,2,1.5,false,,,\"{\"\"city\"\":\"\"Oslo\"\"}\"\r\n"
        );
    }

    #[test]
    fn calls_without_a_result_have_no_error_flag() {
        let problem = json!({"invocation_id": "0199", "result": {"status": 429}});
        assert!(line_of(&problem).ends_with(",,,,\r\n"));
    }
}
