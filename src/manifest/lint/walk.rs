//! Collects the parts of a schema, each with the position of its key.

use crate::call::json::pointer_tokens;
use crate::manifest::decode::join;
use crate::manifest::finding::Place;
use crate::manifest::node::{Data, Node};

/// The maximum depth of visited parts, which bounds stack and time.
const DEEPEST: usize = 64;
/// The maximum number of visited parts.
const MOST_PARTS: usize = 2_000;
/// The maximum number of references that are followed in a chain.
const LONGEST_CHAIN: usize = 8;

/// Keywords with one schema.
const ONE: [&str; 12] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
];
/// Keywords with a list of schemas.
const LIST: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords with schemas by name.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// A tool's schema as written in the manifest.
pub(super) struct ToolSchema<'a> {
    /// The value of the key. In the shorthand it is a map of parameters, otherwise the schema's root.
    pub(super) node: &'a Node,
    /// The path of the key.
    pub(super) path: String,
    /// The position of the key.
    pub(super) place: &'a Place,
    /// Whether the key is `parameters:`.
    pub(super) shorthand: bool,
    input: bool,
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
pub(super) enum Standing {
    /// Every value must fit it.
    Plain,
    /// One of several alternatives, or an addition to another schema.
    Branch,
    /// A condition: a value need not fit it.
    Test,
}

/// One schema within a tool's schema.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub(super) node: &'a Node,
    /// The position of its key, or of the part itself in a list.
    pub(super) place: &'a Place,
    pub(super) path: String,
    pub(super) role: Role<'a>,
    pub(super) standing: Standing,
    depth: usize,
}

impl<'a> Role<'a> {
    /// The property's name.
    pub(super) fn property(self) -> Option<&'a str> {
        if let Self::Property(name) = self { Some(name) } else { None }
    }
}

impl<'a> ToolSchema<'a> {
    /// The schemas of an entry whose path is `under`.
    pub(super) fn of(entry: &'a Node, under: &str) -> Vec<Self> {
        let keys = [("parameters", true, true), ("input_schema", false, true), ("output_schema", false, false)];
        let schema = |(name, shorthand, input): (&str, bool, bool)| {
            let (key, node) = entry.entries()?.iter().find(|(key, _)| key.text == name)?;
            Some(Self { node, path: join(under, &[name.into()]), place: &key.place, shorthand, input })
        };
        keys.into_iter().filter_map(schema).collect()
    }

    /// Whether it is a schema of arguments.
    pub(super) fn is_input(&self) -> bool {
        self.input
    }

    /// Every schema inside it, including itself.
    pub(super) fn parts(&self) -> Vec<Part<'a>> {
        let mut open = Vec::new();
        if self.shorthand {
            for (key, node) in self.node.entries().unwrap_or_default() {
                let path = join(&self.path, std::slice::from_ref(&key.text));
                let role = Role::Property(&key.text);
                open.push(Part { node, place: &key.place, path, role, standing: Standing::Plain, depth: 1 });
            }
        } else {
            let (place, path) = (self.place, self.path.clone());
            open.push(Part { node: self.node, place, path, role: Role::Root, standing: Standing::Plain, depth: 0 });
        }
        let mut parts = Vec::new();
        while let Some(part) = open.pop() {
            if part.depth < DEEPEST && parts.len() + open.len() < MOST_PARTS {
                part.children(&mut open);
            }
            parts.push(part);
        }
        parts
    }

    /// The target of `$ref` at a part, if it is within the schema.
    pub(super) fn target(&self, part: &Node) -> Option<&'a Node> {
        let mut found = None;
        let mut at = part;
        for _ in 0..LONGEST_CHAIN {
            let Some(Data::Scalar(reference)) = at.get("$ref").map(|node| &node.data) else { break };
            let pointer = reference.as_str()?.strip_prefix('#')?;
            let skip = usize::from(self.shorthand);
            let mut node = self.node;
            for token in pointer_tokens(pointer).skip(skip) {
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
    pub(super) fn has(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.get(keyword).is_some())
    }

    /// A keyword with the position of its key.
    pub(super) fn keyword(&self, name: &str) -> Option<(&'a Place, &'a Node)> {
        let (key, node) = self.node.entries()?.iter().find(|(key, _)| key.text == name)?;
        Some((&key.place, node))
    }

    /// The path of a key below this part.
    pub(super) fn below(&self, keys: &[&str]) -> String {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        join(&self.path, &keys)
    }

    /// The types that it allows. Empty if it has no `type`.
    pub(super) fn types(&self) -> Vec<&'a str> {
        let word = |node: &'a Node| match &node.data {
            Data::Scalar(value) => value.as_str(),
            _ => None,
        };
        match self.get("type") {
            Some(Node { data: Data::List(items), .. }) => items.iter().filter_map(word).collect(),
            Some(node) => word(node).into_iter().collect(),
            None => Vec::new(),
        }
    }

    fn children(&self, open: &mut Vec<Part<'a>>) {
        let mut push = |node: &'a Node, place: &'a Place, path: String, role, standing: Standing| {
            let standing = standing.max(self.standing);
            open.push(Part { node, place, path, role, standing, depth: self.depth + 1 });
        };
        for (key, node) in self.node.entries().unwrap_or_default() {
            let name = key.text.as_str();
            let standing = match name {
                "not" | "if" | "contains" | "propertyNames" => Standing::Test,
                "allOf" | "anyOf" | "oneOf" | "then" | "else" | "dependentSchemas" => Standing::Branch,
                _ => Standing::Plain,
            };
            match &node.data {
                Data::Map(entries) if NAMED.contains(&name) => {
                    for (inner, node) in entries {
                        let role = if name == "properties" { Role::Property(&inner.text) } else { Role::Other };
                        push(node, &inner.place, self.below(&[name, &inner.text]), role, standing);
                    }
                }
                Data::List(items) if LIST.contains(&name) => {
                    for (at, node) in items.iter().enumerate() {
                        push(node, &node.place, self.below(&[name, &at.to_string()]), Role::Other, standing);
                    }
                }
                Data::Map(_) if ONE.contains(&name) => {
                    push(node, &key.place, self.below(&[name]), Role::Other, standing);
                }
                _ => {}
            }
        }
    }
}
