//! Entries of lists of tools: `allow`, `deny`, an agent's `tools`, `coworkers` …
//!
//! An entry is a tool's name, or a pattern in which `*` stands for any characters. It is compared
//! with a tool's name and with its aliases. Other spellings match as in a call, with two
//! exceptions. An entry that is the exact name of a tool matches no other tool. A pattern in a list
//! that grants tools is compared exactly: otherwise `docs-*` would also grant every tool that
//! begins with `docs_`.

use wildmatch::WildMatch;

use crate::text::names;

/// One entry of such a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolPattern {
    text: String,
    exact: WildMatch,
    /// The normal form of the entry, then of the entry without its prefix.
    normal_forms: Vec<WildMatch>,
}

impl ToolPattern {
    /// The entry with this text, without white space around it.
    pub(crate) fn new(text: &str) -> Self {
        let text = text.trim();
        let forms = std::iter::once(text)
            .chain(names::strip_known_prefix(text))
            .map(names::normalize_name);
        Self {
            exact: WildMatch::new(text),
            normal_forms: forms.map(|form| WildMatch::new(&form)).collect(),
            text: text.to_owned(),
        }
    }

    /// The entries of a list.
    pub(crate) fn parse_list<T: AsRef<str>>(texts: &[T]) -> Vec<Self> {
        texts.iter().map(|text| Self::new(text.as_ref())).collect()
    }

    /// The entry as written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands for more than one name.
    pub(crate) fn is_glob(&self) -> bool {
        is_glob(&self.text)
    }

    /// Decides without other spellings. `true` if the entry matches the name as written. `false` if
    /// the entry is the exact name of another tool (`exists`). `None` if other spellings decide.
    fn match_exactly(&self, name: &str, exists: impl Fn(&str) -> bool) -> Option<bool> {
        match self.exact.matches(name) {
            true => Some(true),
            false => (!self.is_glob() && exists(&self.text)).then_some(false),
        }
    }

    fn matches_normalized(&self, normal: &str) -> bool {
        self.normal_forms.iter().any(|form| form.matches(normal))
    }
}

/// Whether a text stands for more than one name.
pub(crate) fn is_glob(text: &str) -> bool {
    // `?` is also a wildcard of the library. No name contains it.
    text.contains(['*', '?'])
}

/// Whether a list that denies tools matches a tool with one of these names. `exists` returns
/// whether a tool has exactly a given name.
pub(crate) fn any_denies<'n>(
    patterns: &[ToolPattern],
    names: impl IntoIterator<Item = &'n str>,
    exists: impl Fn(&str) -> bool,
) -> bool {
    !patterns.is_empty()
        && names.into_iter().any(|name| {
            let normal = names::normalize_name(name);
            let denies = |pattern: &ToolPattern| {
                pattern
                    .match_exactly(name, &exists)
                    .unwrap_or_else(|| pattern.matches_normalized(&normal))
            };
            patterns.iter().any(denies)
        })
}

/// Whether a list that grants tools matches a tool with one of these names. `exists` is as in
/// [`any_denies`].
pub(crate) fn any_grants<'n>(
    patterns: &[ToolPattern],
    names: impl IntoIterator<Item = &'n str>,
    exists: impl Fn(&str) -> bool,
) -> bool {
    names.into_iter().any(|name| {
        let normal = names::normalize_name(name);
        let grants = |pattern: &ToolPattern| {
            let is_like = || !pattern.is_glob() && pattern.matches_normalized(&normal);
            pattern.match_exactly(name, &exists).unwrap_or_else(is_like)
        };
        patterns.iter().any(grants)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denies(pattern: &str, name: &str) -> bool {
        any_denies(&[ToolPattern::new(pattern)], [name], |_| false)
    }

    fn grants(pattern: &str, name: &str) -> bool {
        any_grants(&[ToolPattern::new(pattern)], [name], |_| false)
    }

    #[test]
    fn names_match_in_every_spelling() {
        for spelling in [
            "send_mail",
            "Send-Mail",
            "send.mail",
            "SEND MAIL",
            " send_mail\n",
            "functions.send_mail",
        ] {
            assert!(
                denies(spelling, "send_mail") && grants(spelling, "send_mail"),
                "{spelling}"
            );
        }
        for other in ["sendmail", "send_mails", "x.send_mail", "mail", ""] {
            assert!(
                !denies(other, "send_mail") && !grants(other, "send_mail"),
                "{other}"
            );
        }
    }

    #[test]
    fn only_deny_patterns_match_other_spellings() {
        for pattern in ["send_*", "*_mail", "s*l", "*"] {
            assert!(
                denies(pattern, "send_mail") && grants(pattern, "send_mail"),
                "{pattern}"
            );
        }
        for pattern in ["Send-*", "functions.send_*", "*.Mail"] {
            assert!(
                denies(pattern, "send_mail") && !grants(pattern, "send_mail"),
                "{pattern}"
            );
        }
    }

    #[test]
    fn exact_tool_name_matches_no_other() {
        let patterns = [ToolPattern::new("tools.list")];
        let exists = |name: &str| name == "tools.list";
        assert!(
            any_grants(&patterns, ["list"], |_| false)
                && any_denies(&patterns, ["list"], |_| false)
        );
        assert!(
            !any_grants(&patterns, ["list"], exists) && !any_denies(&patterns, ["list"], exists)
        );
        assert!(
            any_grants(&patterns, ["tools.list"], exists)
                && any_denies(&patterns, ["tools.list"], exists)
        );
    }
}
