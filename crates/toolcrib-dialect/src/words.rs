//! Long lists of words, written as one text.

/// The words of a text, which spaces or line breaks separate.
///
/// # Panics
/// Unless the text has exactly `N` words. In a constant, that is an error of the compiler.
pub const fn words<const N: usize>(mut text: &'static str) -> [&'static str; N] {
    let mut found = [""; N];
    let mut count = 0;
    text = text.trim_ascii();
    while !text.is_empty() {
        let mut end = 0;
        while end < text.len() && !text.as_bytes()[end].is_ascii_whitespace() {
            end += 1;
        }
        let (word, rest) = text.split_at(end);
        found[count] = word;
        count += 1;
        text = rest.trim_ascii_start();
    }
    assert!(count == N, "the text has another number of words");
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_line_breaks_separate_words() {
        const WORDS: [&str; 3] = words(
            " one two
             three\n",
        );
        assert_eq!(WORDS, ["one", "two", "three"]);
        assert_eq!(words::<0>(" "), [""; 0]);
    }
}
