//! Reads YAML as JSON values, with a bound on what aliases expand to.

use std::collections::HashMap;

use saphyr::Scalar;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// The most values that the text itself may have. GitHub's description has about 900,000.
const MOST_VALUES: usize = 4_000_000;
/// The most that is copied, in the unit of [`VALUE_WEIGHT`]. Each anchor and each alias is a copy,
/// so a few bytes could take much memory.
const MOST_COPIED: usize = 64 << 20;
/// The weight of a value without text, in bytes. Text counts besides.
const VALUE_WEIGHT: usize = size_of::<Value>();
/// The deepest nesting, aliases included. Values are converted and dropped by recursion, so a
/// deeper one could overflow the stack. serde_json has the same bound.
const DEEPEST: usize = 128;

/// A list or map that is not closed yet.
struct Open {
    anchor: usize,
    /// The weight of the document before it.
    before: usize,
    /// The height of the highest value in it.
    below: usize,
    container: Container,
}

/// The value of an anchor.
struct Anchored {
    value: Value,
    /// About how many bytes a copy takes.
    weight: usize,
    /// The number of lists and maps within each other.
    height: usize,
}

enum Container {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

/// Parses one YAML document.
///
/// # Errors
/// A sentence that says what is wrong, and where.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, Anchored> = HashMap::new();
    let mut document = None;
    let (mut count, mut weight, mut copied) = (0, 0, 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            format!("line {}: not YAML: {}", marker.line().max(1), error.info())
        })?;
        let at = |message: &str| format!("line {}: {message}", span.start.line().max(1));
        let too_deep = || at("the values are nested too deeply");
        let mut opened = |anchor, container| {
            open.push(Open {
                anchor,
                before: weight,
                below: 0,
                container,
            });
            match open.len() > DEEPEST {
                true => Err(too_deep()),
                false => Ok(()),
            }
        };
        // The anchor is zero if the value has none. `before` is the weight before the value.
        let (value, anchor, before, height) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let before = weight;
                weight += VALUE_WEIGHT + text.len();
                let value = match style {
                    ScalarStyle::Plain => plain(text.as_ref()),
                    _ => Value::String(text.into_owned()),
                };
                (value, anchor, before, 0)
            }
            Event::Alias(anchor) => {
                let anchored = anchors
                    .get(&anchor)
                    .ok_or_else(|| at("an alias within its own anchor"))?;
                if open.len() + anchored.height > DEEPEST {
                    return Err(too_deep());
                }
                copied += anchored.weight;
                if copied > MOST_COPIED {
                    return Err(at("too many values by aliases"));
                }
                let before = weight;
                weight += anchored.weight;
                (anchored.value.clone(), 0, before, anchored.height)
            }
            Event::SequenceStart(anchor, _) => {
                opened(anchor, Container::List(Vec::new()))?;
                continue;
            }
            Event::MappingStart(anchor, _) => {
                opened(anchor, Container::Map(Map::new(), None))?;
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open {
                    anchor,
                    before,
                    below,
                    container,
                }) = open.pop()
                else {
                    continue;
                };
                weight += VALUE_WEIGHT;
                let value = match container {
                    Container::List(items) => Value::Array(items),
                    Container::Map(entries, _) => Value::Object(merged(entries)),
                };
                (value, anchor, before, below + 1)
            }
            Event::DocumentStart(_) if document.is_some() => {
                return Err(at("a second YAML document"));
            }
            _ => continue,
        };
        count += 1;
        if count > MOST_VALUES {
            return Err(at("too many values"));
        }
        if anchor > 0 {
            let weight = weight - before;
            copied += weight;
            if copied > MOST_COPIED {
                return Err(at("too many values in anchors"));
            }
            let value = value.clone();
            anchors.insert(
                anchor,
                Anchored {
                    value,
                    weight,
                    height,
                },
            );
        }
        if let Some(parent) = open.last_mut() {
            parent.below = parent.below.max(height);
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
            Err("line 7: too many values by aliases".into())
        );
    }

    #[test]
    fn aliases_count_as_depth() {
        let chain = |levels: usize, nested: usize| -> String {
            let (open, close) = ("[".repeat(nested), "]".repeat(nested));
            (1..levels)
                .map(|n| format!("a{n}: &a{n} {open}*a{}{close}\n", n - 1))
                .fold("a0: &a0 [1]\n".into(), |text, line| text + &line)
        };
        let too_deep = |line: usize| Err(format!("line {line}: the values are nested too deeply"));
        assert_eq!(parse(&chain(50, 120)), too_deep(3));
        assert_eq!(parse(&chain(2_000, 1)), too_deep(128));
        assert!(parse(&chain(127, 1)).is_ok());
    }

    #[test]
    fn aliased_text_is_bounded() {
        let text = "x".repeat(100_000);
        let aliases = |times: usize| format!("a: &a {text}\nb: [{}]\n", "*a, ".repeat(times));
        assert_eq!(
            parse(&aliases(800)),
            Err("line 2: too many values by aliases".into())
        );
        assert!(parse(&aliases(200)).is_ok());
    }

    #[test]
    fn nested_anchors_are_bounded() {
        let anchors: String = (0..100).map(|n| format!("&a{n} [")).collect();
        let items = "1, ".repeat(20_000);
        let text = format!("x: {anchors}{items}{}", "]".repeat(100));
        assert_eq!(
            parse(&text),
            Err("line 1: too many values in anchors".into())
        );
    }
}
