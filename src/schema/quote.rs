//! Parts of texts in messages.

/// Maximum number of characters of a quoted description, constant or pattern.
const MAX_QUOTE: usize = 300;

/// The beginning of a long text.
pub(super) fn abbreviate(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
