//! Defines which fields of a caller's `context` reach a tool.

use std::sync::Arc;

use super::json::JsonObject;

/// Maximum number of fields that one tool declares.
const MAX_FIELDS: usize = 32;
/// Maximum length of a field's name, in characters.
const MAX_NAME_LEN: usize = 64;
/// Maximum number of names that one warning quotes; the others are counted.
const MAX_QUOTED: usize = 5;

/// The fields of the caller's `context` that reach a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ContextFields {
    /// All fields.
    #[default]
    All,
    /// Only these fields.
    Named(Arc<[String]>),
}

impl ContextFields {
    /// No field.
    pub fn none() -> Self {
        Self::Named(Arc::default())
    }

    /// Checks the names that a tool declares.
    ///
    /// # Errors
    /// The position of the first invalid name, and what would be valid.
    pub fn validate_names(names: &[String]) -> Result<(), (usize, String)> {
        if names.len() > MAX_FIELDS {
            return Err((
                MAX_FIELDS,
                format!("a tool takes at most {MAX_FIELDS} fields of the context"),
            ));
        }
        for (at, name) in names.iter().enumerate() {
            if !is_field_name(name) {
                let message = format!(
                    "the name of a context field has 1 to {MAX_NAME_LEN} characters of A-Z a-z 0-9 _ - and begins with a \
                     letter or _"
                );
                return Err((at, message));
            }
            if names[..at].contains(name) {
                return Err((at, format!("the context field `{name}` is declared twice")));
            }
        }
        Ok(())
    }

    /// The context with only those fields that the tool takes.
    pub fn filter_context(&self, context: &Arc<JsonObject>) -> Arc<JsonObject> {
        match self {
            Self::Named(names) if context.keys().any(|key| !names.contains(key)) => {
                Arc::new(pick_fields(names, context))
            }
            Self::All | Self::Named(_) => context.clone(),
        }
    }

    /// The declared fields that the context has. `None`: the tool declares no field, or the context
    /// has none of them.
    pub fn declared_in(&self, context: &JsonObject) -> Option<JsonObject> {
        match self {
            Self::Named(names) if !names.is_empty() && !context.is_empty() => {
                Some(pick_fields(names, context)).filter(|picked| !picked.is_empty())
            }
            Self::All | Self::Named(_) => None,
        }
    }

    /// A warning about fields of the context that the tool does not take. Fields in `keyed` are
    /// part of the cache key, so they are not ignored.
    pub fn ignored_warning(&self, context: &JsonObject, keyed: &[String]) -> Option<String> {
        let Self::Named(names) = self else {
            return None;
        };
        let mut ignored = context
            .keys()
            .filter(|key| !names.contains(key) && !keyed.contains(key))
            .peekable();
        ignored.peek()?;
        let mut quoted: Vec<String> = ignored
            .by_ref()
            .take(MAX_QUOTED)
            .map(|name| quote_name(name))
            .collect();
        match ignored.count() {
            0 => {}
            more => quoted.push(format!("{more} more")),
        }
        let takes = match names.is_empty() {
            true => "this tool takes no context".to_owned(),
            false => format!("of the context this tool takes {}", names.join(", ")),
        };
        Some(format!("{takes}; not passed on: {}", quoted.join(", ")))
    }
}

/// Whether this is a valid name for a field.
pub fn is_field_name(name: &str) -> bool {
    name.len() <= MAX_NAME_LEN
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn pick_fields(names: &[String], context: &JsonObject) -> JsonObject {
    let field = |name: &String| context.get(name).map(|value| (name.clone(), value.clone()));
    names.iter().filter_map(field).collect()
}

/// Quotes a name from a request: shortened, and without control characters.
fn quote_name(name: &str) -> String {
    let shown: String = name
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_NAME_LEN)
        .collect();
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(names: &[&str]) -> ContextFields {
        ContextFields::Named(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn context(value: serde_json::Value) -> Arc<JsonObject> {
        Arc::new(value.as_object().unwrap().clone())
    }

    #[test]
    fn filter_keeps_only_declared_fields() {
        let whole = context(json!({"tenant": "acme", "user": 7}));
        assert_eq!(
            *named(&["tenant", "region"]).filter_context(&whole),
            *context(json!({"tenant": "acme"}))
        );
        assert!(ContextFields::none().filter_context(&whole).is_empty());
        assert!(Arc::ptr_eq(
            &ContextFields::All.filter_context(&whole),
            &whole
        ));
        assert!(
            Arc::ptr_eq(&named(&["user", "tenant"]).filter_context(&whole), &whole),
            "nothing is copied"
        );
    }

    #[test]
    fn declared_fields_must_be_present() {
        let whole = context(json!({"tenant": "acme", "user": 7}));
        assert_eq!(
            named(&["tenant"]).declared_in(&whole),
            Some(JsonObject::clone(&context(json!({"tenant": "acme"}))))
        );
        for fields in [
            named(&["region"]),
            ContextFields::none(),
            ContextFields::All,
        ] {
            assert_eq!(fields.declared_in(&whole), None, "{fields:?}");
        }
    }

    #[test]
    fn ignored_fields_warning_is_bounded() {
        let fields = named(&["tenant"]);
        assert_eq!(
            fields.ignored_warning(&context(json!({"tenant": 1})), &[]),
            None
        );
        assert_eq!(
            fields.ignored_warning(
                &context(json!({"tenant": 1, "user": 1})),
                &["user".to_owned()]
            ),
            None
        );
        assert_eq!(
            ContextFields::All.ignored_warning(&context(json!({"user": 1})), &[]),
            None
        );
        let warning = fields
            .ignored_warning(&context(json!({"a\nb": 1})), &[])
            .unwrap();
        assert_eq!(
            warning,
            "of the context this tool takes tenant; not passed on: `ab`"
        );
        let many: JsonObject = (0..9)
            .map(|n| (format!("{n}{}", "x".repeat(1000)), json!(n)))
            .collect();
        let warning = ContextFields::none().ignored_warning(&many, &[]).unwrap();
        assert!(
            warning.starts_with("this tool takes no context; not passed on: `0xxx"),
            "{warning}"
        );
        assert!(
            warning.ends_with("x`, 4 more") && warning.len() < 500,
            "{warning}"
        );
    }

    #[test]
    fn field_names_are_validated() {
        let check = |names: &[&str]| {
            ContextFields::validate_names(&names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(check(&["tenant", "user-id", "_x9"]), Ok(()));
        for bad in [
            "",
            "user.id",
            "a b",
            "größe",
            "9x",
            "-x",
            "${env:KEY}",
            &"x".repeat(65),
        ] {
            assert_eq!(check(&["fine", bad]).unwrap_err().0, 1, "{bad}");
        }
        assert!(check(&["a", "b", "a"]).unwrap_err().1.contains("twice"));
        let many: Vec<String> = (0..33).map(|n| format!("f{n}")).collect();
        assert_eq!(ContextFields::validate_names(&many).unwrap_err().0, 32);
    }
}
