//! What the manifest says of an MCP server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::tool_pattern::{ToolPattern, any_denies, any_grants};

/// One entry of `mcp_servers:`, references and relative paths resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The entry's name.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// Whether it is kept at hand between calls.
    pub mode: Mode,
    /// Only tools whose own names one of these means (`*` stands for any characters); none given: all.
    pub include: Vec<String>,
    /// None of these.
    pub exclude: Vec<String>,
    /// For a start or a connection, the handshake and the listing together.
    pub start_timeout: Duration,
}

/// `include` and `exclude` of a server.
pub(crate) struct ToolFilter {
    include: Vec<ToolPattern>,
    exclude: Vec<ToolPattern>,
}

impl ToolFilter {
    /// The filter of this server.
    pub(crate) fn of(settings: &ServerSettings) -> Self {
        Self { include: ToolPattern::list(&settings.include), exclude: ToolPattern::list(&settings.exclude) }
    }

    /// Whether a tool with this name, the server's own, is wanted.
    pub(crate) fn takes(&self, own: &str) -> bool {
        let included = self.include.is_empty() || any_grants(&self.include, [own], |_| false);
        included && !any_denies(&self.exclude, [own], |_| false)
    }

    /// Entries that mean none of these names: the key, and the entry as it is written.
    pub(crate) fn idle(&self, names: &[&str]) -> Vec<(&'static str, &str)> {
        let one = std::slice::from_ref;
        let names = || names.iter().copied();
        let included = self.include.iter().filter(|entry| !any_grants(one(entry), names(), |_| false));
        // A pattern that excludes nothing may be there for tools that the server gets one day; a name is a mistake.
        let excluded =
            self.exclude.iter().filter(|entry| !entry.is_glob() && !any_denies(one(entry), names(), |_| false));
        let included = included.map(|entry| ("include", entry.text()));
        included.chain(excluded.map(|entry| ("exclude", entry.text()))).collect()
    }
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    /// A child process that speaks on standard input and output.
    Command {
        /// The program and its arguments; a bare program name is looked for along the path.
        argv: Vec<String>,
        /// Told to it beside what every server gets; may hold secrets.
        environment: BTreeMap<String, String>,
        /// The working folder: the manifest's.
        workdir: PathBuf,
    },
    /// Streamable HTTP.
    Url {
        /// The endpoint; the operator wrote it in full, so it is not gated.
        url: Url,
        /// Sent with every request, names in lower case; may hold secrets.
        headers: BTreeMap<String, String>,
    },
}

/// Whether a server is kept at hand between calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One connection for all calls, made anew when it breaks.
    #[default]
    Persistent,
    /// A connection for each call, ended with it.
    OnDemand,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> ToolFilter {
        ToolFilter { include: ToolPattern::list(include), exclude: ToolPattern::list(exclude) }
    }

    #[test]
    fn filters_know_other_spellings() {
        for exclude in ["delete_repo", "Delete-Repo", "DELETE_*", "delete.repo"] {
            assert!(!filter(&[], &[exclude]).takes("delete_repo"), "{exclude}");
        }
        assert!(filter(&["Get-Repo"], &[]).takes("get_repo") && !filter(&["Get-*"], &[]).takes("get_repo"));
        assert!(!filter(&["get_*"], &["get_all"]).takes("get_all") && filter(&[], &[]).takes("get_all"));
    }

    #[test]
    fn idle_entries_are_told() {
        let filter = filter(&["get_*", "gone"], &["delet_repo", "delete_*", "Get-Repo"]);
        assert_eq!(filter.idle(&["get_repo"]), [("include", "gone"), ("exclude", "delet_repo")]);
    }
}
