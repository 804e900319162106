//! Reads YAML as a tree of values with their places. Depth is bounded, and so is what aliases copy.
//! Manifests and OpenAPI documents are read with it.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr::Scalar;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
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

/// A position in the text, from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value and its position.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) place: Place,
    pub(crate) data: Data,
    /// What JSON does not have: the value is only a replacement for it.
    pub(crate) fault: Option<&'static str>,
}

/// The content of a value.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

/// Why a text cannot be read.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) message: String,
    /// The text is not YAML, and the message has the words of the parser.
    pub(crate) is_syntax: bool,
}

/// A list or map that is not closed yet.
struct Open {
    anchor: usize,
    place: Place,
    is_tagged: bool,
    /// The weight of the document before it.
    before: usize,
    /// The height of the highest value in it.
    below: usize,
    /// The items, or the keys and values in turn.
    parts: Vec<Tree>,
}

/// The value of an anchor.
struct Anchored {
    value: Tree,
    /// About how many bytes a copy takes.
    weight: usize,
    /// The number of lists and maps within each other.
    height: usize,
}

#[derive(Default)]
struct Reader {
    place: Place,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    document: Option<Tree>,
    count: usize,
    weight: usize,
    copied: usize,
}

/// Reads one YAML document. `None` if the text has none.
///
/// # Errors
/// The first fault.
pub(crate) fn read(text: &str) -> Result<Option<Tree>, Fault> {
    let mut reader = Reader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Fault {
            place: Place::at(error.marker()),
            message: error.info().to_owned(),
            is_syntax: true,
        })?;
        reader.place = Place::at(&span.start);
        reader.follow(event)?;
    }
    Ok(reader.document)
}

/// Reads one YAML document as JSON.
///
/// # Errors
/// A sentence that says what is wrong, and where.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let tree = read(text).and_then(|tree| tree.map(Tree::into_json).transpose());
    let value = tree.map_err(|fault| {
        let not_yaml = if fault.is_syntax { "not YAML: " } else { "" };
        format!("line {}: {not_yaml}{}", fault.place.line, fault.message)
    })?;
    value.ok_or_else(|| "the document is empty".into())
}

impl Reader {
    fn follow(&mut self, event: Event<'_>) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let weight = VALUE_WEIGHT + text.len();
                self.weight += weight;
                let value = scalar(text, style, tag.as_ref(), self.place);
                self.add(value, anchor, weight, 0)
            }
            Event::Alias(anchor) => {
                let Some(anchored) = self.anchors.get(&anchor) else {
                    return Err(self.fault("an alias within its own anchor"));
                };
                let (weight, height) = (anchored.weight, anchored.height);
                if self.open.len() + height > DEEPEST {
                    return Err(self.too_deep());
                }
                self.copied += weight;
                if self.copied > MOST_COPIED {
                    return Err(self.fault("too many values by aliases"));
                }
                let mut value = anchored.value.clone();
                value.place = self.place;
                self.weight += weight;
                self.add(value, 0, weight, height)
            }
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                self.open.push(Open {
                    anchor,
                    place: self.place,
                    is_tagged: is_own_tag(tag.as_ref()),
                    before: self.weight,
                    below: 0,
                    parts: Vec::new(),
                });
                match self.open.len() > DEEPEST {
                    true => Err(self.too_deep()),
                    false => Ok(()),
                }
            }
            Event::SequenceEnd => self.close(Data::List),
            Event::MappingEnd => self.close(|parts| {
                let (mut parts, mut entries) = (parts.into_iter(), Vec::new());
                while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                    entries.push((key, value));
                }
                Data::Map(entries)
            }),
            _ => Ok(()),
        }
    }

    fn close(&mut self, data: impl FnOnce(Vec<Tree>) -> Data) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        self.weight += VALUE_WEIGHT;
        let value = Tree {
            place: open.place,
            data: data(open.parts),
            fault: open.is_tagged.then_some(TAGGED),
        };
        self.add(
            value,
            open.anchor,
            self.weight - open.before,
            open.below + 1,
        )
    }

    /// Adds a value where it belongs. The anchor is zero if it has none.
    fn add(
        &mut self,
        value: Tree,
        anchor: usize,
        weight: usize,
        height: usize,
    ) -> Result<(), Fault> {
        self.count += 1;
        if self.count > MOST_VALUES {
            return Err(self.fault("too many values"));
        }
        if anchor > 0 {
            self.copied += weight;
            if self.copied > MOST_COPIED {
                return Err(self.fault("too many values in anchors"));
            }
            let value = value.clone();
            self.anchors.insert(
                anchor,
                Anchored {
                    value,
                    weight,
                    height,
                },
            );
        }
        if let Some(parent) = self.open.last_mut() {
            parent.below = parent.below.max(height);
            parent.parts.push(value);
        } else if self.document.is_some() {
            self.place = value.place;
            return Err(
                self.fault("a second YAML document begins here: leave out the line `---` above")
            );
        } else {
            self.document = Some(value);
        }
        Ok(())
    }

    /// A fault in this line.
    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault {
            place: Place {
                column: 1,
                ..self.place
            },
            message: message.into(),
            is_syntax: false,
        }
    }

    fn too_deep(&self) -> Fault {
        self.fault(format!(
            "the values are nested more than {DEEPEST} levels deep"
        ))
    }
}

impl Place {
    fn at(marker: &Marker) -> Self {
        Self {
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }
}

impl Tree {
    /// The value as JSON. Faults of single values are ignored.
    fn into_json(self) -> Result<Value, Fault> {
        Ok(match self.data {
            Data::Scalar(value) => value,
            Data::List(items) => {
                let items: Result<Vec<Value>, Fault> =
                    items.into_iter().map(Tree::into_json).collect();
                Value::Array(items?)
            }
            Data::Map(entries) => {
                let mut object = Map::new();
                for (key, value) in entries {
                    let name = match key.data {
                        Data::Scalar(Value::String(name)) => name,
                        Data::Scalar(other) => other.to_string(),
                        Data::List(_) | Data::Map(_) => {
                            return Err(Fault {
                                place: key.place,
                                message: "a key is a text".into(),
                                is_syntax: false,
                            });
                        }
                    };
                    object.insert(name, value.into_json()?);
                }
                Value::Object(merged(object))
            }
        })
    }
}

/// The map with the entries of `<<`, which YAML 1.1 merges. Own entries take precedence.
fn merged(mut entries: Map<String, Value>) -> Map<String, Value> {
    if !matches!(entries.get("<<"), Some(Value::Object(_) | Value::Array(_))) {
        return entries;
    }
    let others = match entries.shift_remove("<<") {
        Some(Value::Array(others)) => others,
        other => other.into_iter().collect(),
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

const TAGGED: &str =
    "YAML tags have no meaning here: write a plain value; a variable is `${env:NAME}`";

/// Whether a tag is not one of YAML's own, such as `!!str`.
fn is_own_tag(tag: Option<&Cow<'_, Tag>>) -> bool {
    tag.is_some_and(|tag| !tag.is_yaml_core_schema())
}

/// A value without parts, by YAML's core schema.
fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Cow<'_, Tag>>,
    place: Place,
) -> Tree {
    let mut fault = is_own_tag(tag).then_some(TAGGED);
    let value = match Scalar::parse_from_cow_and_metadata(text.clone(), style, tag) {
        Some(Scalar::Null) => Value::Null,
        Some(Scalar::Boolean(value)) => Value::Bool(value),
        Some(Scalar::Integer(value)) => value.into(),
        Some(Scalar::FloatingPoint(value)) => match Number::from_f64(value.into_inner()) {
            Some(number) => Value::Number(number),
            None => {
                fault = Some("a finite number is expected here");
                Value::String(text.into_owned())
            }
        },
        Some(Scalar::String(text)) => Value::String(text.into_owned()),
        None => {
            fault = Some(TAGGED);
            Value::String(text.into_owned())
        }
    };
    Tree {
        place,
        data: Data::Scalar(value),
        fault,
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
        let too_deep = |line: usize| {
            Err(format!(
                "line {line}: the values are nested more than 128 levels deep"
            ))
        };
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
