//! A value that does not fit its settings type.

/// The place of such a value, and what would be right there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingFault {
    /// The keys to the value. List positions are numbers.
    pub(crate) path: Vec<String>,
    /// The fault and the correct form.
    pub(crate) message: String,
    /// The kind of fault.
    pub(crate) kind: SettingFaultKind,
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingFaultKind {
    /// The value does not fit.
    Value,
    /// A list stands in place of a map with known keys.
    ListForMap,
    /// The type does not have the last key of the path.
    UnknownKey,
    /// The type needs the last key of the path.
    MissingKey,
}
