//! Writes values as in a manifest: YAML in flow style.

use serde_json::Value;

/// The longest text that is shown whole, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// A value on one line, with quotes only where YAML needs them.
pub(crate) fn to_flow(value: &Value) -> String {
    match value {
        Value::String(text) => quote_text(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(to_flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", quote_text(key), to_flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

/// A value for a message. Long values are cut.
pub(super) fn abbreviate(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| to_flow(value), str::to_owned);
    match text.chars().count() > MAX_SHOWN_CHARS {
        true => format!(
            "{}…",
            text.chars().take(MAX_SHOWN_CHARS - 1).collect::<String>()
        ),
        false => text,
    }
}

/// A text as a scalar of YAML. Quotes keep it a text that ends where it should.
fn quote_text(text: &str) -> String {
    let is_plain_char = |c: char| c.is_alphanumeric() || "_-./*+=~@ ".contains(c);
    let starts_plain = text.starts_with(|c: char| c.is_alphanumeric() || "_./".contains(c))
        || (text.starts_with('-') && text.len() > 1 && !text.starts_with("- "));
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
        scheme.chars().all(char::is_alphanumeric)
            && rest.chars().all(|c| is_plain_char(c) || ":?&%".contains(c))
    });
    let is_address = text.chars().all(|c| is_plain_char(c) || c == ':')
        && !text.contains(": ")
        && !text.ends_with(':');
    let is_word = !["true", "false", "yes", "no", "on", "off", "null", "~"]
        .contains(&text.to_lowercase().as_str())
        && text.parse::<f64>().is_err();
    let is_plain = starts_plain && text.trim() == text && is_word && (is_address || is_url);
    if is_plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flow_style_quotes_only_where_needed() {
        for (value, expected) in [
            (json!({"attempts": 3}), "{attempts: 3}"),
            (json!(["wc", "-w"]), "[wc, -w]"),
            (
                json!("https://a.example/{{ id }}"),
                "\"https://a.example/{{ id }}\"",
            ),
            (json!("https://a.example/v1"), "https://a.example/v1"),
            (json!("127.0.0.1:7411"), "127.0.0.1:7411"),
            (json!("5"), "\"5\""),
            (json!("no"), "\"no\""),
            (json!("a: b"), "\"a: b\""),
            (json!("*_file"), "\"*_file\""),
            (json!("${env:KEY}"), "\"${env:KEY}\""),
            (json!(["get_*", true, null]), "[get_*, true, null]"),
        ] {
            assert_eq!(to_flow(&value), expected);
        }
    }
}
