//! Arguments that nobody can read.

/// Arguments that are no JSON object, or must not be taken for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// What is wrong, for people: a sentence without its full stop.
    pub what: String,
    /// What to do about it, for the model: whole sentences.
    pub correction: String,
}

impl Unreadable {
    /// The same without a word of what was written.
    pub fn without_words() -> Self {
        let correction = "The arguments could not be read, so the tool did not run. Send the whole call again, its \
                          arguments as one strict JSON object.";
        Self { what: "they are no JSON object".into(), correction: correction.into() }
    }
}
