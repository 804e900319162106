//! Files that a tool never reads: patterns that are compared with paths below the tool's folder.

use glob::{MatchOptions, Pattern};

use crate::call::words;
use crate::kinds::ConfigFault;

/// The default list: files of variables with secrets, private keys, and private files of programs.
const DEFAULT_PATTERNS: [&str; 32] = words(
    ".env* *.pem *.key *.p12 *.pfx *.jks *.kdbx id_rsa* id_dsa* id_ecdsa* id_ed25519* .ssh
     .gnupg .aws .azure .kube **/.docker/config.json **/.config/gcloud **/.config/gh
     .netrc _netrc .pgpass .my.cnf .npmrc .pypirc .htpasswd .vault-token credentials.json
     **/.cargo/credentials* *.ppk .git .git-credentials",
);
/// The most patterns in a list. A longer list probably names files one by one.
const MAX_PATTERNS: usize = 256;
/// Patterns ignore case, because on many file systems `.ENV` is `.env`. A `*` does not match a `/`.
const MATCH_OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: false,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// The patterns of denied files.
#[derive(Debug, Clone)]
pub(super) struct DeniedFiles(Vec<DeniedPath>);

/// A pattern, as written and as the names on a path.
#[derive(Debug, Clone)]
struct DeniedPath {
    text: String,
    names: Vec<DeniedName>,
}

/// The pattern of one name on a path.
#[derive(Debug, Clone)]
struct DeniedName {
    pattern: Pattern,
    /// Whether other names may precede it (`**`).
    at_any_depth: bool,
}

impl DeniedPath {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_start_matches("./").trim_matches('/');
        if text.is_empty() {
            return Err(
                "a pattern such as .env* or secrets/** is expected; [] denies nothing".into(),
            );
        }
        let mut names = Vec::new();
        let mut at_any_depth = !text.contains('/');
        let mut parts = text.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let name = match part {
                "**" if parts.peek().is_some() => {
                    at_any_depth = true;
                    continue;
                }
                // What is in the folder, not the folder itself.
                "**" => "*",
                name => name,
            };
            let pattern = Pattern::new(name)
                .map_err(|error| format!("`{text}` is not a valid pattern: {}", error.msg))?;
            names.push(DeniedName {
                pattern,
                at_any_depth,
            });
            at_any_depth = false;
        }
        let text = text.to_owned();
        Ok(Self { text, names })
    }

    /// Whether the pattern matches the path of these names, or the path of a folder above it. One
    /// pass over the names, because a caller chooses their number.
    fn matches(&self, names: &[&str]) -> bool {
        // The patterns that are compared with the next name.
        let mut is_next = vec![false; self.names.len() + 1];
        is_next[0] = true;
        for name in names {
            for (at, denied) in self.names.iter().enumerate().rev() {
                if is_next[at] && denied.pattern.matches_with(name, MATCH_OPTIONS) {
                    is_next[at + 1] = true;
                }
                is_next[at] &= denied.at_any_depth;
            }
            if is_next.last() == Some(&true) {
                return true;
            }
        }
        false
    }
}

impl DeniedFiles {
    /// The patterns of `with.deny`, or the default list. A pattern without `/` is compared with
    /// each name on the path. So it also denies everything in a matching folder. A pattern with `/`
    /// is compared with the whole path and with the paths of the folders above it.
    pub(super) fn new(patterns: Option<Vec<String>>) -> Result<Self, ConfigFault> {
        let fault = |message: String| ConfigFault::error(&["with", "deny"], message);
        let patterns = patterns.unwrap_or_else(|| DEFAULT_PATTERNS.map(str::to_owned).to_vec());
        if patterns.len() > MAX_PATTERNS {
            return Err(fault(format!("at most {MAX_PATTERNS} patterns")));
        }
        patterns
            .iter()
            .map(|text| DeniedPath::parse(text).map_err(fault))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether the file with this path below the folder is denied.
    pub(super) fn is_denied(&self, path: &str) -> bool {
        let names: Vec<&str> = path
            .split('/')
            .filter(|name| !matches!(*name, "" | "."))
            .collect();
        self.0.iter().any(|file| file.matches(&names))
    }

    /// A sentence for the tool's description; empty if no file is denied.
    pub(super) fn description_sentence(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let patterns: Vec<&str> = self.0.iter().map(|file| &*file.text).collect();
        format!(
            " Files and folders that match one of these patterns are not read: {}.",
            patterns.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(patterns: &[&str]) -> DeniedFiles {
        DeniedFiles::new(Some(
            patterns.iter().map(|text| (*text).to_owned()).collect(),
        ))
        .unwrap_or_else(|fault| panic!("{fault:?}"))
    }

    #[test]
    fn default_list_denies_keys_and_secrets() {
        let files = DeniedFiles::new(None).unwrap_or_else(|fault| panic!("{fault:?}"));
        for path in [
            ".env",
            ".ENV.local",
            "app/.envrc",
            ".git/config",
            "sub/.GIT/HEAD",
            "tls/server.pem",
            "Server.KEY",
            "id_rsa",
            "home/.ssh/config",
            "keys/id_ed25519.bak",
            "./a//.env",
            ".npmrc",
            "home/.netrc",
            ".pypirc",
            "google/credentials.json",
            ".aws/credentials",
            ".docker/config.json",
            "home/.docker/config.json",
            ".kube/config",
            ".ssh/known_hosts",
            ".git-credentials",
            "home/.config/gcloud/access_tokens.db",
            ".cargo/credentials.toml",
        ] {
            assert!(files.is_denied(path), "{path}");
        }
        for path in [
            "env",
            "a.txt",
            "keys.txt",
            "pem/readme",
            "github/x",
            "id_list.csv",
            "environment",
            "a.pem.txt/.gitignore",
            ".docker/Dockerfile",
            ".config/app.toml",
        ] {
            assert!(!files.is_denied(path), "{path}");
        }
    }

    #[test]
    fn patterns_replace_the_default() {
        let files = denied(&["secrets/**", "/top.txt", "*.bak"]);
        for path in [
            "secrets/a",
            "secrets/a/b",
            "top.txt",
            "sub/x.BAK",
            "old.bak/inside",
        ] {
            assert!(files.is_denied(path), "{path}");
        }
        for path in [".env", "sub/secrets", "other/secrets/a"] {
            assert!(!files.is_denied(path), "{path}");
        }
        assert!(
            denied(&["secrets/keys"]).is_denied("secrets/keys/one"),
            "what is in a denied folder"
        );
        let deep = denied(&["a/**/b/*.txt", "c/**"]);
        for path in [
            "a/b/x.txt",
            "a/1/2/b/x.txt",
            "a/b/b/x.txt",
            "a/b/c/b/x.txt/y",
            "c/x",
        ] {
            assert!(deep.is_denied(path), "{path}");
        }
        for path in [
            "a/b/x",
            "x/a/b/x.txt",
            "a/b/c/x.txt",
            "b/x.txt",
            "c",
            "x/c/y",
        ] {
            assert!(!deep.is_denied(path), "{path}");
        }
        let nothing = denied(&[]);
        assert!(!nothing.is_denied(".env") && nothing.description_sentence().is_empty());
    }

    #[test]
    fn pattern_is_compared_in_one_pass() {
        let files = denied(&["**/a/**/a/**/b", "*/*/c", "d"]);
        let path = "a/".repeat(200_000);
        let began = std::time::Instant::now();
        assert!(!files.is_denied(&path));
        assert!(files.is_denied(&format!("{path}b")));
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for patterns in [
            vec![String::new()],
            vec!["/".into()],
            vec!["a[".into()],
            vec!["x".into(); MAX_PATTERNS + 1],
        ] {
            assert!(
                DeniedFiles::new(Some(patterns.clone())).is_err(),
                "{patterns:?}"
            );
        }
    }
}
