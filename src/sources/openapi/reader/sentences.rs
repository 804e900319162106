//! Texts of descriptions, which several parts of a document contribute to.

/// The text with a full stop, unless it ends a sentence already.
pub(super) fn end_sentence(text: &str) -> String {
    let text = text.trim_end();
    let is_ended = text.is_empty() || text.ends_with(['.', '!', '?', ':']);
    format!("{text}{}", if is_ended { "" } else { "." })
}

/// The text and a sentence after it.
pub fn append_sentence(text: &str, sentence: &str) -> String {
    format!("{} {sentence}", end_sentence(text))
        .trim_start()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_kept_apart() {
        for (text, expected) in [
            ("Photo", "Photo. As base64."),
            ("Photo: ", "Photo: As base64."),
            ("", "As base64."),
        ] {
            assert_eq!(append_sentence(text, "As base64."), expected);
        }
    }
}
