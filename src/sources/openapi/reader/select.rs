//! Selects operations: entries of `include:` and `exclude:`.

use wildmatch::WildMatch;

const METHODS: [&str; 8] = [
    "get", "put", "post", "delete", "options", "head", "patch", "trace",
];

/// An entry that names operations: a method and a path, a path, an `operationId` or a tag. `*`
/// stands for any text. An entry that begins with `*` may also match a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Selector {
    text: String,
    method: Option<String>,
    pattern: WildMatch,
    is_path: bool,
}

impl Selector {
    /// Parses an entry.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (method, rest) = match text.trim().split_once(char::is_whitespace) {
            Some((method, rest)) => (Some(method.to_ascii_lowercase()), rest.trim()),
            None => (None, text.trim()),
        };
        if let Some(method) = &method
            && !METHODS.contains(&method.as_str())
        {
            return Err(format!(
                "`{method}` is not an HTTP method; write for example `GET /orders*`"
            ));
        }
        let is_path = rest.starts_with('/');
        if rest.is_empty() || (method.is_some() && !is_path && !rest.starts_with('*')) {
            return Err(
                "write a method and a path (`GET /orders*`), an operationId or a tag".into(),
            );
        }
        let is_path = is_path || method.is_some();
        Ok(Self {
            text: text.into(),
            method,
            pattern: WildMatch::new(rest),
            is_path,
        })
    }

    /// Whether the operation is one of those.
    pub(super) fn matches(
        &self,
        method: &str,
        path: &str,
        id: Option<&str>,
        tags: &[&str],
    ) -> bool {
        if self
            .method
            .as_deref()
            .is_some_and(|wanted| wanted != method)
        {
            return false;
        }
        match self.is_path {
            true => self.pattern.matches(path),
            // What begins with `*` may be the end of a path, too.
            false => id
                .into_iter()
                .chain(tags.iter().copied())
                .chain(self.text.starts_with('*').then_some(path))
                .any(|name| self.pattern.matches(name)),
        }
    }

    /// The entry as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}
