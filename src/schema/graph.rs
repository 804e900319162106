//! A schema as a graph of its subschemas and the links between them.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::keywords::{KeywordKind, REFERENCES, keyword_kind};
use crate::call::json::{children, escape_pointer_token};

/// A link from one subschema to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    /// The index of the target node.
    pub(super) to: usize,
    /// The target applies to the same value, not to a part of it.
    pub(super) same_value: bool,
}

/// Why the graph was not built, with the JSON Pointer of the position.
pub(super) enum GraphError {
    TooMany(String),
    TooDeep(String),
}

/// Any value inside a schema.
struct Node<'a> {
    value: &'a Value,
    parent: usize,
    /// The last token of its pointer.
    token: Token<'a>,
    depth: usize,
    /// The nearest node with an `$id`: this node or one above it.
    resource: usize,
}

#[derive(Clone, Copy)]
enum Token<'a> {
    Name(&'a str),
    Index(usize),
}

/// A schema as a graph.
pub(super) struct Graph<'a> {
    nodes: Vec<Node<'a>>,
    by_address: HashMap<usize, usize>,
    /// Nodes with an `$id`, by the last segment of its path. A reference is resolved in every node
    /// with its last segment. So it may count one subschema too many, but never one too few.
    resources: HashMap<&'a str, Vec<usize>>,
    anchors: HashMap<&'a str, Vec<usize>>,
}

const ROOT: usize = 0;

impl<'a> Graph<'a> {
    /// Visits every value once.
    pub(super) fn build(
        schema: &'a Value,
        most: usize,
        deepest: usize,
    ) -> Result<Self, GraphError> {
        let first = Node {
            value: schema,
            parent: ROOT,
            token: Token::Index(0),
            depth: 0,
            resource: ROOT,
        };
        let mut graph = Self {
            nodes: vec![first],
            by_address: HashMap::new(),
            resources: HashMap::new(),
            anchors: HashMap::new(),
        };
        let mut at = ROOT;
        while let Some(node) = graph.nodes.get(at) {
            let (value, depth) = (node.value, node.depth);
            graph.by_address.insert(address_of(value), at);
            graph.register_names(at, value);
            let resource = graph.nodes.get(at).map_or(ROOT, |node| node.resource);
            let mut add = |token, value| {
                graph.nodes.push(Node {
                    value,
                    parent: at,
                    token,
                    depth: depth + 1,
                    resource,
                });
            };
            match value {
                Value::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        add(Token::Index(index), item);
                    }
                }
                Value::Object(members) => {
                    for (name, member) in members {
                        add(Token::Name(name), member);
                    }
                }
                _ => {}
            }
            if graph.nodes.len() > most {
                return Err(GraphError::TooMany(graph.pointer(at)));
            }
            if depth > deepest {
                return Err(GraphError::TooDeep(graph.pointer(at)));
            }
            at += 1;
        }
        Ok(graph)
    }

    fn register_names(&mut self, at: usize, value: &'a Value) {
        for word in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = value.get(word).and_then(Value::as_str) {
                self.anchors.entry(name).or_default().push(at);
            }
        }
        for word in ["$id", "id"] {
            let Some(id) = value.get(word).and_then(Value::as_str) else {
                continue;
            };
            let (path, anchor) = id.split_once('#').unwrap_or((id, ""));
            if !anchor.is_empty() {
                self.anchors.entry(anchor).or_default().push(at);
            }
            if !path.is_empty() {
                self.resources
                    .entry(last_segment(path))
                    .or_default()
                    .push(at);
                if let Some(node) = self.nodes.get_mut(at) {
                    node.resource = at;
                }
            }
        }
    }

    /// The node of the whole schema.
    pub(super) fn root(&self) -> usize {
        ROOT
    }

    /// Every object that may be a subschema, including some that are not.
    pub(super) fn objects(&self) -> impl Iterator<Item = (usize, &'a Value)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (at, node.value))
            .filter(|(_, value)| value.is_object())
    }

    /// The JSON Pointer of a node.
    pub(super) fn pointer(&self, mut at: usize) -> String {
        let mut tokens = Vec::new();
        while let Some(node) = self.nodes.get(at).filter(|_| at != ROOT) {
            tokens.push(match node.token {
                Token::Name(name) => format!("/{}", escape_pointer_token(name)),
                Token::Index(index) => format!("/{index}"),
            });
            at = node.parent;
        }
        tokens.into_iter().rev().collect()
    }

    /// The links of a subschema, one entry for each occurrence.
    pub(super) fn edges(&self, at: usize) -> Vec<Edge> {
        let mut edges = Vec::new();
        let Some(Value::Object(schema)) = self.nodes.get(at).map(|node| node.value) else {
            return edges;
        };
        for (keyword, value) in schema {
            let keyword = keyword.as_str();
            let same_value = matches!(
                keyword,
                "allOf"
                    | "anyOf"
                    | "oneOf"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "dependentSchemas"
                    | "dependencies"
            );
            match keyword_kind(keyword, value.is_array()) {
                _ if REFERENCES.contains(&keyword) => {
                    let targets = value
                        .as_str()
                        .map(|target| self.reference_targets(at, target));
                    let edge = |to| Edge {
                        to,
                        same_value: true,
                    };
                    edges.extend(targets.into_iter().flatten().map(edge));
                }
                // What is only defined belongs to those that refer to it.
                _ if ["$defs", "definitions"].contains(&keyword) => {}
                KeywordKind::Schema => edges.extend(self.edge_to(value, same_value)),
                KeywordKind::List | KeywordKind::ByName => {
                    edges.extend(children(value).filter_map(|part| self.edge_to(part, same_value)));
                }
                KeywordKind::Data => {}
            }
        }
        edges
    }

    fn edge_to(&self, value: &Value, same_value: bool) -> Option<Edge> {
        let is_schema = value.is_object() || value.is_boolean();
        self.by_address
            .get(&address_of(value))
            .filter(|_| is_schema)
            .map(|&to| Edge { to, same_value })
    }

    /// The possible targets of a reference.
    fn reference_targets(&self, at: usize, reference: &str) -> Vec<usize> {
        let (path, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let own = self.nodes.get(at).map_or(ROOT, |node| node.resource);
        let mut resources = match path {
            "" => vec![own],
            path => self
                .resources
                .get(last_segment(path))
                .cloned()
                .unwrap_or_default(),
        };
        // In older drafts an `$id` beside a reference is ignored, so the root is a candidate, too.
        resources.push(ROOT);
        resources.dedup();
        let Ok(fragment) = percent_decode_str(fragment).decode_utf8() else {
            return Vec::new();
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(&*fragment).cloned().unwrap_or_default();
        }
        let found = resources.iter().filter_map(|&resource| {
            let target = self.nodes.get(resource)?.value.pointer(&fragment)?;
            self.by_address.get(&address_of(target)).copied()
        });
        found.collect()
    }
}

fn address_of(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

fn last_segment(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit(['/', ':'])
        .next()
        .unwrap_or(path)
}
