//! `include` and `exclude` of a source.

use crate::access::tool_pattern::{ToolPattern, any_denies, any_grants};

/// Which tools of a source are mounted.
pub(crate) struct ToolFilter {
    include: Vec<ToolPattern>,
    exclude: Vec<ToolPattern>,
}

impl ToolFilter {
    /// The filter of a source with these entries.
    pub(crate) fn new(include: &[String], exclude: &[String]) -> Self {
        Self {
            include: ToolPattern::parse_list(include),
            exclude: ToolPattern::parse_list(exclude),
        }
    }

    /// Whether a tool with this name is wanted. The name is the source's own, without a prefix.
    pub(crate) fn allows(&self, name: &str) -> bool {
        let included = self.include.is_empty() || any_grants(&self.include, [name], |_| false);
        included && !any_denies(&self.exclude, [name], |_| false)
    }

    /// Entries that match none of these names: the key, and the entry as it is written.
    pub(crate) fn unmatched_entries(&self, names: &[&str]) -> Vec<(&'static str, &str)> {
        let as_list = std::slice::from_ref;
        let names = || names.iter().copied();
        let included = self
            .include
            .iter()
            .filter(|entry| !any_grants(as_list(entry), names(), |_| false));
        // A pattern that excludes nothing may be for tools that the source gets later. A name that
        // excludes nothing is an error.
        let excluded = self
            .exclude
            .iter()
            .filter(|entry| !entry.is_glob() && !any_denies(as_list(entry), names(), |_| false));
        let included = included.map(|entry| ("include", entry.text()));
        included
            .chain(excluded.map(|entry| ("exclude", entry.text())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> ToolFilter {
        ToolFilter {
            include: ToolPattern::parse_list(include),
            exclude: ToolPattern::parse_list(exclude),
        }
    }

    #[test]
    fn filter_matches_other_spellings() {
        for exclude in ["delete_repo", "Delete-Repo", "DELETE_*", "delete.repo"] {
            assert!(!filter(&[], &[exclude]).allows("delete_repo"), "{exclude}");
        }
        assert!(
            filter(&["Get-Repo"], &[]).allows("get_repo")
                && !filter(&["Get-*"], &[]).allows("get_repo")
        );
        assert!(
            !filter(&["get_*"], &["get_all"]).allows("get_all")
                && filter(&[], &[]).allows("get_all")
        );
    }

    #[test]
    fn unmatched_entries_are_returned() {
        let filter = filter(&["get_*", "gone"], &["delet_repo", "delete_*", "Get-Repo"]);
        assert_eq!(
            filter.unmatched_entries(&["get_repo"]),
            [("include", "gone"), ("exclude", "delet_repo")]
        );
    }
}
