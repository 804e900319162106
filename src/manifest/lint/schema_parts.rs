//! Collects the parts of a schema, each with the position of its key.

use crate::call::json::parse_pointer;
use crate::manifest::finding::Location;
use crate::manifest::finding::join_path;
use crate::manifest::node::{Data, Key, Node};
use crate::schema::{KeywordKind, keyword_kind};

/// The maximum depth of visited parts, which bounds stack and time.
const MAX_DEPTH: usize = 64;
/// The maximum number of visited parts.
const MAX_PARTS: usize = 2_000;
/// The maximum number of references that are followed in a chain.
const MAX_REFERENCE_CHAIN: usize = 8;

/// A tool's schema as written in the manifest.
pub(super) struct ToolSchema<'a> {
    /// The value of the key. In the shorthand it is a map of parameters, otherwise the schema's
    /// root.
    pub(super) node: &'a Node,
    /// The path of the key.
    pub(super) path: String,
    /// The position of the key.
    pub(super) location: &'a Location,
    /// Whether the key is `parameters:`.
    pub(super) shorthand: bool,
    /// Whether it is a schema of arguments.
    pub(super) is_input: bool,
}

/// The role of a part in the schema around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role<'a> {
    Root,
    /// The property with this name.
    Property(&'a str),
    Other,
}

/// Whether a value must fit the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Applicability {
    /// Every value must fit it.
    Always,
    /// One of several alternatives, or an addition to another schema.
    Alternative,
    /// A condition: a value need not fit it.
    Condition,
}

/// One schema within a tool's schema.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub(super) node: &'a Node,
    /// The position of its key, or of the part itself in a list.
    pub(super) location: &'a Location,
    pub(super) path: String,
    pub(super) role: Role<'a>,
    pub(super) applicability: Applicability,
    depth: usize,
}

impl<'a> Role<'a> {
    /// The property's name.
    pub(super) fn property(self) -> Option<&'a str> {
        if let Self::Property(name) = self {
            Some(name)
        } else {
            None
        }
    }
}

impl<'a> ToolSchema<'a> {
    /// The schemas of an entry whose path is `entry_path`.
    pub(super) fn from_entry(entry: &'a Node, entry_path: &str) -> Vec<Self> {
        let keys = [
            ("parameters", true, true),
            ("input_schema", false, true),
            ("output_schema", false, false),
        ];
        let schema = |(name, shorthand, input): (&str, bool, bool)| {
            let (key, node) = entry.entries()?.iter().find(|(key, _)| key.text == name)?;
            Some(Self {
                node,
                path: join_path(entry_path, &[name]),
                location: &key.location,
                shorthand,
                is_input: input,
            })
        };
        keys.into_iter().filter_map(schema).collect()
    }

    /// Every schema inside it, including itself.
    pub(super) fn parts(&self) -> Vec<Part<'a>> {
        let part = |node: &'a Node, location: &'a Location, path: String, role| Part {
            node,
            location,
            path,
            role,
            applicability: Applicability::Always,
            depth: usize::from(self.shorthand),
        };
        let mut open: Vec<Part<'a>> = match self.shorthand {
            true => {
                let entries = self.node.entries().unwrap_or_default().iter();
                let parameter = |(key, node): &'a (Key, Node)| {
                    let path = join_path(&self.path, &[&key.text]);
                    part(node, &key.location, path, Role::Property(&key.text))
                };
                entries.map(parameter).collect()
            }
            false => {
                let (node, path) = (self.node, self.path.clone());
                vec![part(node, self.location, path, Role::Root)]
            }
        };
        let mut parts = Vec::new();
        while let Some(part) = open.pop() {
            if part.depth < MAX_DEPTH && parts.len() + open.len() < MAX_PARTS {
                part.push_children(&mut open);
            }
            parts.push(part);
        }
        parts
    }

    /// The target of `$ref` at a part, if it is within the schema.
    pub(super) fn reference_target(&self, part: &Node) -> Option<&'a Node> {
        let mut found = None;
        let mut at = part;
        for _ in 0..MAX_REFERENCE_CHAIN {
            let Some(Data::Scalar(reference)) = at.get("$ref").map(|node| &node.data) else {
                break;
            };
            let pointer = reference.as_str()?.strip_prefix('#')?;
            let skip = usize::from(self.shorthand);
            let mut node = self.node;
            for token in parse_pointer(pointer).skip(skip) {
                node = match &node.data {
                    Data::List(items) => items.get(token.parse::<usize>().ok()?)?,
                    _ => node.get(&token)?,
                };
            }
            found = Some(node);
            at = node;
        }
        found
    }
}

impl<'a> Part<'a> {
    /// The value of a keyword.
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Node> {
        self.node.get(keyword)
    }

    /// Whether one of these keywords is present.
    pub(super) fn has_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.get(keyword).is_some())
    }

    /// The path of a key below this part.
    pub(super) fn key_path(&self, keys: &[&str]) -> String {
        join_path(&self.path, keys)
    }

    /// The types that it allows. Empty if it has no `type`.
    pub(super) fn types(&self) -> Vec<&'a str> {
        let Some(node) = self.get("type") else {
            return Vec::new();
        };
        node.as_str()
            .into_iter()
            .chain(node.items().iter().filter_map(Node::as_str))
            .collect()
    }

    fn push_children(&self, open: &mut Vec<Part<'a>>) {
        for (key, node) in self.node.entries().unwrap_or_default() {
            let keyword = key.text.as_str();
            let applicability = match keyword {
                "not" | "if" | "contains" | "propertyNames" => Applicability::Condition,
                "allOf" | "anyOf" | "oneOf" | "then" | "else" | "dependentSchemas" => {
                    Applicability::Alternative
                }
                _ => Applicability::Always,
            };
            let part = |node: &'a Node, location: &'a Location, keys: &[&str], role| Part {
                node,
                location,
                path: self.key_path(keys),
                role,
                applicability: applicability.max(self.applicability),
                depth: self.depth + 1,
            };
            let is_list = matches!(node.data, Data::List(_));
            match (keyword_kind(keyword, is_list), &node.data) {
                (KeywordKind::ByName, Data::Map(entries)) => {
                    open.extend(entries.iter().map(|(inner, node)| {
                        let role = match keyword {
                            "properties" => Role::Property(&inner.text),
                            _ => Role::Other,
                        };
                        part(node, &inner.location, &[keyword, &inner.text], role)
                    }));
                }
                (KeywordKind::List, Data::List(items)) => {
                    open.extend(items.iter().enumerate().map(|(at, node)| {
                        let keys = [keyword, &at.to_string()];
                        part(node, &node.location, &keys, Role::Other)
                    }));
                }
                (KeywordKind::Schema, Data::Map(_)) => {
                    open.push(part(node, &key.location, &[keyword], Role::Other));
                }
                _ => {}
            }
        }
    }
}
