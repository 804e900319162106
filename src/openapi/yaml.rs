//! Reads YAML as JSON values, with a bound on what aliases expand to.

use std::collections::HashMap;

use saphyr::Scalar;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// The most values of a document, aliases expanded. GitHub's description has about 900,000.
const MOST_VALUES: usize = 4_000_000;
/// The most values that come from aliases. Each alias is a copy, so a few bytes could take much
/// memory.
const MOST_ALIASED: usize = 200_000;
/// The deepest nesting. Values are converted and dropped by recursion, so a deeper one could
/// overflow the stack. serde_json has the same bound.
const DEEPEST: usize = 128;

/// A list or map that is not closed yet.
struct Open {
    anchor: usize,
    /// The number of values before it.
    before: usize,
    container: Container,
}

enum Container {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

/// Parses one YAML document.
///
/// # Errors
/// A sentence that says what is wrong, and where.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, (Value, usize)> = HashMap::new();
    let mut document = None;
    let (mut count, mut aliased) = (0, 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            format!("line {}: not YAML: {}", marker.line().max(1), error.info())
        })?;
        let at = |message: &str| format!("line {}: {message}", span.start.line().max(1));
        if open.len() > DEEPEST {
            return Err(at("the values are nested too deeply"));
        }
        let (value, anchor, before) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = match style {
                    ScalarStyle::Plain => plain(text.as_ref()),
                    _ => Value::String(text.into_owned()),
                };
                (value, anchor, count)
            }
            Event::Alias(anchor) => {
                let (value, size) = anchors
                    .get(&anchor)
                    .ok_or_else(|| at("an alias within its own anchor"))?;
                aliased += size;
                if aliased > MOST_ALIASED {
                    return Err(at("too many values by aliases"));
                }
                count += size;
                (value.clone(), 0, count)
            }
            Event::SequenceStart(anchor, _) => {
                open.push(Open {
                    anchor,
                    before: count,
                    container: Container::List(Vec::new()),
                });
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open {
                    anchor,
                    before: count,
                    container: Container::Map(Map::new(), None),
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open {
                    anchor,
                    before,
                    container,
                }) = open.pop()
                else {
                    continue;
                };
                let value = match container {
                    Container::List(items) => Value::Array(items),
                    Container::Map(entries, _) => Value::Object(merged(entries)),
                };
                (value, anchor, before)
            }
            Event::DocumentStart(_) if document.is_some() => {
                return Err(at("a second YAML document"));
            }
            _ => continue,
        };
        count += 1;
        if count > MOST_VALUES {
            return Err(at("too many values, perhaps by aliases within aliases"));
        }
        if anchor > 0 {
            anchors.insert(anchor, (value.clone(), count - before));
        }
        match open.last_mut().map(|open| &mut open.container) {
            None => document = Some(value),
            Some(Container::List(items)) => items.push(value),
            Some(Container::Map(entries, key)) => match key.take() {
                Some(name) => drop(entries.insert(name, value)),
                None => {
                    *key = Some(match value {
                        Value::String(name) => name,
                        Value::Array(_) | Value::Object(_) => return Err(at("a key is a text")),
                        other => other.to_string(),
                    });
                }
            },
        }
    }
    document.ok_or_else(|| "the document is empty".into())
}

/// The map with the entries of `<<`, which YAML 1.1 merges. Own entries take precedence.
fn merged(mut entries: Map<String, Value>) -> Map<String, Value> {
    if !matches!(entries.get("<<"), Some(Value::Object(_) | Value::Array(_))) {
        return entries;
    }
    let others = match entries.shift_remove("<<") {
        Some(Value::Array(others)) => others,
        Some(other) => vec![other],
        None => Vec::new(),
    };
    for other in others {
        if let Value::Object(other) = other {
            for (name, value) in other {
                entries.entry(name).or_insert(value);
            }
        }
    }
    entries
}

/// A scalar without quotes, by YAML's core schema.
fn plain(text: &str) -> Value {
    match Scalar::parse_from_cow(text.into()) {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => Value::Bool(value),
        Scalar::Integer(value) => value.into(),
        Scalar::FloatingPoint(value) => {
            Number::from_f64(value.into_inner()).map_or_else(|| text.into(), Value::Number)
        }
        Scalar::String(text) => Value::String(text.into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_documents_are_refused() {
        for text in [
            format!("x:\n {}a", "- ".repeat(20_000)),
            format!("x: {}", "[".repeat(200)),
        ] {
            assert!(
                parse(&text).is_err_and(|message| message.starts_with("line ")),
                "{}",
                &text[..20]
            );
        }
        assert!(parse(&format!("x:\n {}a", "- ".repeat(100))).is_ok());
    }

    #[test]
    fn aliases_cannot_multiply() {
        let levels = (1..8).map(|n| {
            format!(
                "b{n}: &b{n} [{}]\n",
                vec![format!("*b{}", n - 1); 10].join(", ")
            )
        });
        let bomb = format!("b0: &b0 [1]\n{}", levels.collect::<String>());
        assert_eq!(
            parse(&bomb),
            Err("line 6: too many values by aliases".into())
        );
    }
}
