//! Arguments that cannot be parsed.

/// Why arguments are not a JSON object, or must not be used as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableArguments {
    /// The fault, for people: a sentence without its full stop.
    pub detail: String,
    /// The correction, for the model: whole sentences.
    pub correction: String,
}

impl UnreadableArguments {
    /// A message that quotes nothing of the arguments.
    pub fn without_quotes() -> Self {
        let correction = "The arguments could not be read, so the tool did not run. Send the whole call again, its \
                          arguments as one strict JSON object.";
        Self {
            detail: "they are not a JSON object".into(),
            correction: correction.into(),
        }
    }
}
