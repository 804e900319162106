//! The kinds of tools that this program was built with: a cargo feature for each kind.
//!
//! Code of another kind is compiled, too. Nothing calls it, so the linker leaves it out. That keeps
//! the conditions few: here, in `kinds.rs` and in `sources.rs`.

use crate::call::Kind;

/// Why tools of this kind cannot be used in this program, if it was built without the kind's cargo
/// feature.
pub(crate) fn missing_feature(kind: Kind) -> Option<String> {
    let is_built_in = match kind {
        Kind::Native => true,
        Kind::Command => cfg!(feature = "command"),
        Kind::Http => cfg!(feature = "http"),
        Kind::Python => cfg!(feature = "python"),
        Kind::Mcp => cfg!(feature = "mcp"),
        Kind::Sql => cfg!(feature = "sql"),
        Kind::Agent => cfg!(feature = "agent"),
    };
    let kind = kind.as_str();
    (!is_built_in).then(|| {
        format!("kind {kind} is not in this program: build it with the cargo feature `{kind}`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_are_named() {
        for (kind, is_built_in) in [
            (Kind::Native, true),
            (Kind::Command, cfg!(feature = "command")),
            (Kind::Http, cfg!(feature = "http")),
            (Kind::Python, cfg!(feature = "python")),
            (Kind::Mcp, cfg!(feature = "mcp")),
            (Kind::Sql, cfg!(feature = "sql")),
            (Kind::Agent, cfg!(feature = "agent")),
        ] {
            let message = missing_feature(kind);
            assert_eq!(message.is_none(), is_built_in, "{kind:?}");
            let names_feature =
                |message: String| message.contains(&format!("feature `{}`", kind.as_str()));
            assert!(message.is_none_or(names_feature), "{kind:?}");
        }
    }
}
