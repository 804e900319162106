//! The repairs.

/// A repair that leaves only one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Repair {
    DoublyEncoded,
    Surroundings,
    SingleQuotes,
    CurlyQuotes,
    BareKeys,
    Python,
    LineEnds,
    Escapes,
    Surrogates,
    Comments,
    TrailingCommas,
    MissingCommas,
    SurplusBrackets,
    MissingBrackets,
}

impl Repair {
    /// A description of the repair, for `meta.warnings`.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::DoublyEncoded => "the arguments were JSON inside a JSON string",
            Self::Surroundings => "the text around the JSON of the arguments was left out",
            Self::SingleQuotes => "single quotes in the arguments were read as double quotes",
            Self::CurlyQuotes => "curly quotes in the arguments were read as double quotes",
            Self::BareKeys => "keys without quotes in the arguments were quoted",
            Self::Python => "True, False or None in the arguments was read as true, false or null",
            Self::LineEnds => "line ends or tabs inside texts of the arguments were escaped",
            Self::Escapes => "\\' in the arguments was read as '",
            Self::Surrogates => "half of a surrogate pair in the arguments became U+FFFD",
            Self::Comments => "comments in the arguments were left out",
            Self::TrailingCommas => "commas before closing brackets in the arguments were left out",
            Self::MissingCommas => "missing commas in the arguments were added",
            Self::SurplusBrackets => {
                "closing brackets after the end of the arguments were left out"
            }
            Self::MissingBrackets => {
                "closing brackets missing at the end of the arguments were added"
            }
        }
    }
}
