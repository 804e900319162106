//! The faults that a kind of tool finds in its settings, for the manifest to report.

/// A setting of a tool in the manifest that cannot work, or probably not as intended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The keys from the tool's entry to the setting, e.g. `["request", "url"]`. List positions are
    /// numbers.
    pub path: Vec<String>,
    /// A sentence: what is wrong, and what would be right.
    pub message: String,
    /// Whether the tool can run nevertheless.
    pub warning: bool,
    /// The kind of fault.
    pub rule: FaultRule,
}

/// The kind of a fault. The manifest has a rule of `toolcrib check` for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultRule {
    /// A value that cannot be used, or that has no effect.
    #[default]
    Unspecified,
    /// A key that no part of the program reads.
    UnknownKey,
    /// A key that is needed.
    MissingKey,
    /// The schema allows values that calls refuse.
    RefusedArgument,
    /// `{name}` with one brace, which stays as it is.
    SingleBrace,
    /// A parameter whose value goes nowhere.
    UnusedParameter,
    /// A request that changes something, of a tool with `effect: read`.
    WritingRead,
}

impl ConfigFault {
    /// A fault that prevents the tool from running.
    pub fn error(path: &[&str], message: impl Into<String>) -> Self {
        let path = path.iter().map(|&key| key.to_owned()).collect();
        Self {
            path,
            message: message.into(),
            warning: false,
            rule: FaultRule::default(),
        }
    }

    /// A fault with which the tool can run, but probably not as intended.
    pub fn warning(path: &[&str], message: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::error(path, message)
        }
    }

    /// The same fault under another rule.
    #[must_use]
    pub fn with_rule(self, rule: FaultRule) -> Self {
        Self { rule, ..self }
    }
}
