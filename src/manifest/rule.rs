//! The rules behind findings. Their names are stable, because scripts and editors filter by them.

use serde::Serialize;

macro_rules! rules {
    ($($name:ident $word:literal $description:literal,)*) => {
        /// The rule behind a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rule {
            $(#[doc = $description] $name,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable name of the rule.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// A description of the rule in one line.
            pub fn description(self) -> &'static str {
                match self { $(Self::$name => $description,)* }
            }
        }
    };
}

rules! {
    // Errors: the manifest cannot be used.
    Unreadable "unreadable" "error: a file that cannot be read, or is not YAML",
    Invalid "invalid" "error: a value that cannot be used",
    UnknownKey "unknown-key" "error: an unknown key",
    DuplicateName "duplicate-name" "error: a name that is used twice (warning: for a pinned tool, or for servers whose tool names may overlap)",
    MissingSecret "missing-secret" "error: a reference to a variable or file that does not exist",
    // Descriptions.
    MissingDescription "missing-description" "a tool without a description",
    VagueDescription "vague-description" "a description that says no more than the tool's name, or is a placeholder",
    LongDescription "long-description" "hint: a description that a provider may refuse for its length",
    UndescribedParameter "undescribed-parameter" "a parameter whose meaning a model has to guess",
    // Schemas.
    OpenObject "open-object" "an object that takes any key, an array that takes any item",
    UnreachableEnum "unreachable-enum" "an enum value that its own schema excludes",
    Contradiction "contradiction" "a schema that no value fits",
    CostlyPattern "costly-pattern" "hint: a pattern that is matched by backtracking, or not at all (warning: it guards a path with allow_private)",
    RefusedArgument "refused-argument" "a parameter of a command that allows values which calls refuse",
    // Providers.
    RefusedName "refused-name" "a tool name that a provider refuses (hint: the provider gets another form of it)",
    RefusedParameter "refused-parameter" "a parameter's name that a provider refuses",
    RefusedSchema "refused-schema" "a keyword that a provider refuses (hint: only in a restricted mode)",
    ManyTools "many-tools" "hint: a source with more tools than a provider accepts in one request",
    // Requests and commands.
    SingleBrace "single-brace" "a name in one brace in a URL, which stays as it is",
    UnusedParameter "unused-parameter" "a parameter whose value goes nowhere",
    WritingRead "writing-read" "a tool with effect: read whose request changes something",
    ShellVariable "shell-variable" "a `$NAME` that stays as it is: references are ${env:NAME}",
    ShellSyntax "shell-syntax" "hint: an argument such as `|` that only a shell understands",
    NoTools "no-tools" "a manifest without tools",
    // Policies.
    Ineffective "ineffective" "a setting that cannot take effect",
    SharedContext "shared-context" "a cache key that lacks context fields of the tool",
    // Secrets.
    LiteralSecret "literal-secret" "a text that looks like a secret",
    ShortSecret "short-secret" "hint: a secret that is too short to be removed from results",
    ShortKey "short-key" "a caller's key that could be guessed: short, a placeholder, one character repeated",
    NoSandbox "no-sandbox" "a program that runs without a sandbox",
    ExposedFile "exposed-file" "hint, with --live: a file of the service that this machine cannot hide from a program",
    // Callers, addresses, files.
    NoCallers "no-callers" "hint: required sandboxes, and no callers: programs with network may use the HTTP API",
    UnknownCoworker "unknown-coworker" "a coworker that is not an agent, or has no parameter task (error: not a tool)",
    UnusedCaller "unused-caller" "a caller that may use no tool",
    IdlePattern "idle-pattern" "a list entry that matches no tool (error: a name, if all tools are known; hint: a pattern in deny)",
    UnreachableTool "unreachable-tool" "a tool that no caller may use",
    MalformedHost "malformed-host" "an allowed host or origin that no request can name",
    IdleInclude "idle-include" "a pattern that matches no file",
    UnpinnedServer "unpinned-server" "an MCP server or document at a URL that is not pinned, or is reached in another way since",
    UnknownTool "unknown-tool" "a policy for a tool that the server did not have when it was pinned",
    OwnAddress "own-address" "a URL of this service itself, which refuses requests of its own tools",
    PlainHttp "plain-http" "an MCP server on another machine that is reached without TLS",
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
        let words: std::collections::BTreeSet<_> =
            Rule::ALL.iter().map(|rule| rule.as_str()).collect();
        assert_eq!(words.len(), Rule::ALL.len());
        assert!(
            words
                .iter()
                .all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
        );
    }
}
