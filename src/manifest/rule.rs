//! The rules behind findings. Their names are stable, because scripts and editors filter by them.

use serde::Serialize;

macro_rules! rules {
    ($($name:ident $word:literal $says:literal,)*) => {
        /// The rule behind a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rule {
            $(#[doc = $says] $name,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable name of the rule.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// A description of the rule in one line.
            pub fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }
        }
    };
}

rules! {
    // Errors: the manifest cannot be used.
    Unreadable "unreadable" "error: a file that cannot be read, or is no YAML",
    Invalid "invalid" "error: a value that cannot be used",
    UnknownKey "unknown-key" "error: a key that nothing reads",
    DuplicateName "duplicate-name" "error: a name that is there twice (warning: of a pinned tool, or two servers' that run together)",
    MissingSecret "missing-secret" "error: a variable or file that is referred to and not there",
    // Names.
    AmbiguousName "ambiguous-name" "names of two tools that differ in spelling only",
    // Descriptions.
    MissingDescription "missing-description" "a tool that a model cannot know when to use",
    VagueDescription "vague-description" "a description that says no more than the tool's name, or is a placeholder",
    LongDescription "long-description" "hint: a description that a provider may refuse for its length",
    UndescribedParameter "undescribed-parameter" "a parameter whose meaning a model has to guess",
    RepeatedName "repeated-name" "hint: a parameter's description that says no more than its name",
    // Schemas.
    UntypedParameter "untyped-parameter" "a parameter that takes any value",
    OpenObject "open-object" "an object that takes any key, an array that takes any item",
    UnreachableEnum "unreachable-enum" "an enum's value that can never be given",
    UnfitValue "unfit-value" "a default, const or example that its own schema refuses",
    Contradiction "contradiction" "a schema that no value fits",
    UnknownRequired "unknown-required" "required: names what properties does not",
    StrayKeyword "stray-keyword" "a keyword about values of another type",
    // Providers.
    RefusedName "refused-name" "a tool's name that a provider refuses (hint: one that it gets in another form)",
    RefusedParameter "refused-parameter" "a parameter's name that a provider refuses",
    RefusedSchema "refused-schema" "a keyword that a provider refuses (hint: only in its narrower ways)",
    // Policies.
    Ineffective "ineffective" "a setting that cannot take effect",
    IdleLimit "idle-limit" "a limit that another one always reaches first",
    CrowdedDeadline "crowded-deadline" "hint: tries that do not fit into the deadline",
    GreedyTool "greedy-tool" "hint: a tool that may take all of server.max_in_flight from the others",
    UncachedRead "uncached-read" "hint: a read tool whose answers are not kept",
    UnusedContext "unused-context" "a field of the caller's context that the tool takes and does not use",
    SharedContext "shared-context" "a cache that does not tell apart what the tool takes of the caller's context",
    // Secrets.
    LiteralSecret "literal-secret" "what looks like a secret, written out",
    ShortSecret "short-secret" "hint: a secret too short to be taken out of answers",
    ShortKey "short-key" "a caller's key that could be guessed: short, a placeholder, one character repeated",
    UnusedEnv "unused-env" "a declared variable that the tool does not use",
    // Callers, addresses, files.
    UnknownCoworker "unknown-coworker" "a coworker that is no agent, or takes no task (error: that is no tool)",
    UnusedCaller "unused-caller" "a caller that may use no tool",
    IdlePattern "idle-pattern" "an entry of a list that means no tool (error: a name, where all are known; hint: a pattern in deny)",
    UnreachableTool "unreachable-tool" "a tool that no caller may use",
    NoAdmin "no-admin" "hint: nobody can reach the operator's routes",
    MalformedHost "malformed-host" "an allowed host or origin that no request can name",
    IdleInclude "idle-include" "a pattern that finds no file",
    UnpinnedServer "unpinned-server" "an MCP server that is not pinned, or is reached in another way than when it was",
    UnknownTool "unknown-tool" "a policy of a tool that its server did not have when it was pinned",
    OwnAddress "own-address" "a URL that leads to this service itself, which answers no request of its tools",
    PlainHttp "plain-http" "an MCP server that is reached without TLS, beyond this machine",
}

impl Serialize for Rule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kebab_case_and_unique() {
        let words: std::collections::BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.as_str()).collect();
        assert_eq!(words.len(), Rule::ALL.len());
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }
}
