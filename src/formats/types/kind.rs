//! What the types of all languages have in common.

use serde_json::Value;

/// A type of JSON values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    /// Every value.
    Unknown,
    /// No value.
    Never,
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    /// One boolean, number or text.
    Literal(Value),
    List(Box<Type>),
    /// A list whose first items have types of their own. `required` of them are never missing.
    Tuple {
        items: Vec<Type>,
        required: usize,
        rest: Option<Box<Type>>,
    },
    Object(Object),
    /// A value of one of these types, of which there are several.
    Any(Vec<Type>),
    /// A value of all of these types, of which there are several.
    All(Vec<Type>),
    /// A declared type.
    Named(String),
}

/// The type of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub(super) fields: Vec<Field>,
    pub(super) rest: Rest,
}

/// What an object may have besides its fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rest {
    Nothing,
    /// Anything, because the schema says nothing about it.
    Unstated,
    /// Values of this type, as the schema says.
    Of(Box<Type>),
}

/// A property of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) is_required: bool,
    pub(super) kind: Type,
    pub(super) description: String,
}

/// A type with a name.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) kind: Type,
    pub(super) description: String,
    /// Whether callers write values of this type. They read the others.
    pub(super) is_argument: bool,
}

/// The names of the types of one tool.
pub(super) struct TypedTool<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) arguments: String,
    pub(super) result: Option<String>,
}

impl Type {
    /// The union of types.
    pub(super) fn any(forms: impl IntoIterator<Item = Self>) -> Self {
        let mut found = Vec::new();
        for form in forms {
            let parts = match form {
                Self::Unknown => return Self::Unknown,
                Self::Never => Vec::new(),
                Self::Any(parts) => parts,
                form => vec![form],
            };
            for part in parts {
                // Enums have no equal values, and may be too long for a comparison of all pairs.
                if matches!(part, Self::Literal(_)) || !found.contains(&part) {
                    found.push(part);
                }
            }
        }
        match found.len() {
            0 => Self::Never,
            1 => found.remove(0),
            _ => Self::Any(found),
        }
    }

    /// The intersection of types.
    pub(super) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut found = Vec::new();
        for part in parts {
            match part {
                Self::Never => return Self::Never,
                Self::Unknown => {}
                Self::All(parts) => found.extend(parts),
                part => found.push(part),
            }
        }
        match found.len() {
            0 => Self::Unknown,
            1 => found.remove(0),
            _ => Self::All(found),
        }
    }

    /// The declared types that stand in this type directly, not inside an object or a list.
    pub(super) fn direct_names(&self) -> Vec<&str> {
        match self {
            Self::Any(types) | Self::All(types) => {
                types.iter().flat_map(Self::direct_names).collect()
            }
            Self::Named(name) => vec![name],
            _ => Vec::new(),
        }
    }
}

/// The lines of a description, without control characters.
pub(super) fn lines_of(description: &str) -> Vec<String> {
    let lines = description.trim().lines();
    let clean = |line: &str| {
        let line = line.trim_end().chars();
        line.map(|c| if c.is_control() { ' ' } else { c }).collect()
    };
    lines.map(clean).collect()
}

/// A text in double quotes, as JSON, TypeScript and Python write it.
pub(super) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}
