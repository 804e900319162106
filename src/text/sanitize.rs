//! Removes escape sequences and control characters from the output of tools. They have a meaning
//! only for a terminal, may hide text from a reader, and break lines of the ledger and the log.
//!
//! Structured content stays unchanged: it is data, its strings may contain anything, and its JSON
//! text escapes control characters.

use std::borrow::Cow;

use anstream::adapter::strip_str;

use crate::call::{Content, ToolError, ToolResult, UpstreamFailure};

/// The text without ANSI escape sequences and without C0 and C1 control characters. Line ends
/// `\r\n` and `\r` become `\n`; tabs stay. An unfinished sequence ends with its line.
pub fn clean_text(text: &str) -> Cow<'_, str> {
    let is_clean = match text.is_ascii() {
        true => text.bytes().all(|byte| !is_control(byte.into())),
        false => !text.contains(is_control),
    };
    if is_clean {
        return Cow::Borrowed(text);
    }
    let ends = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut clean = String::with_capacity(ends.len());
    for line in ends.split_inclusive('\n') {
        strip_str(line).for_each(|part| {
            clean.extend(part.chars().filter(|character| !is_control(*character)));
        });
        if line.ends_with('\n') && !clean.ends_with('\n') {
            clean.push('\n');
        }
    }
    Cow::Owned(clean)
}

fn is_control(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\t')
}

/// The text with escapes (`\u{1b}`) for every character that a reader cannot see, cannot tell from a
/// space, or that a terminal obeys. Line ends and spaces stay. Use it for text that a person has to judge.
pub fn escape_invisible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        // The wide space of Chinese and Japanese texts is visible.
        if !matches!(character, '\n' | ' ' | '\u{3000}') && shows_nothing(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether the character is invisible: Unicode's zero-width characters, direction marks, line
/// separators, variation selectors and tags.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether the text shows nothing: it is empty, or contains only white space, control characters
/// and invisible characters.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(shows_nothing)
}

fn shows_nothing(c: char) -> bool {
    // Unicode counts the fillers and the empty Braille pattern as letters and symbols, but they
    // show nothing.
    let is_filler = matches!(
        c,
        '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
    );
    c.is_whitespace() || c.is_control() || is_invisible(c) || is_filler
}

/// Cleans a text in place.
pub fn clean_in_place(text: &mut String) {
    if let Cow::Owned(clean) = clean_text(text) {
        *text = clean;
    }
}

/// Cleans the texts of a result. Returns warnings as [`clean_texts`].
pub fn clean_result(result: &mut ToolResult) -> Vec<&'static str> {
    let texts = result.content.iter_mut().flat_map(|block| match block {
        Content::Text { text } => vec![text],
        Content::Resource { resource } => resource.text.iter_mut().collect(),
        Content::ResourceLink(link) => link.texts_mut().collect(),
        Content::Image { .. } | Content::Audio { .. } => Vec::new(),
    });
    clean_texts(texts.chain(&mut result.hint))
}

/// Cleans the messages of an error result or a failure. Returns warnings as [`clean_texts`].
pub fn clean_error(error: &mut ToolError) -> Vec<&'static str> {
    match error {
        ToolError::ErrorResult(text)
        | ToolError::Unavailable { message: text, .. }
        | ToolError::BadOutput(text) => clean_texts([text]),
        ToolError::Upstream(UpstreamFailure { message, .. })
        | ToolError::InvalidContext(message) => clean_texts([message]),
        ToolError::DefinitionChanged => Vec::new(),
        ToolError::InvalidArguments(violations) => {
            clean_texts(violations.iter_mut().map(|one| &mut one.message))
        }
    }
}

/// Cleans texts in place. Returns a warning, one sentence each, if more than line ends has changed,
/// and for kinds of text that a reader cannot see.
pub fn clean_texts<'w>(texts: impl IntoIterator<Item = &'w mut String>) -> Vec<&'static str> {
    let (mut removed, mut turns, mut tags) = (false, false, false);
    for text in texts {
        if let Cow::Owned(clean) = clean_text(text) {
            removed |= text.contains(|c| is_control(c) && c != '\r');
            *text = clean;
        }
        if !text.is_ascii() {
            // Unicode's bidirectional embeddings, overrides and isolates ("Trojan Source",
            // CVE-2021-42574).
            turns |=
                text.contains(|c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'));
            tags |= text.contains(|c| matches!(c, '\u{e0000}'..='\u{e007f}'));
        }
    }
    let removed =
        removed.then_some("escape sequences or control characters were removed from the text");
    let turns = turns
        .then_some("the text holds bidirectional control characters: it may be shown in another order than it is read");
    let tags = tags.then_some(
        "the text holds invisible tag characters (U+E0000 to U+E007F): they may hide words",
    );
    [removed, turns, tags].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn escape_sequences_are_removed() {
        for (input, clean) in [
            (
                "\u{1b}[1;31mred\u{1b}[0m, \u{1b}[38;2;1;2;3mgreen\u{1b}[m",
                "red, green",
            ),
            ("\u{1b}]0;a title\u{7}text", "text"),
            (
                "\u{1b}]8;;https://example.com\u{1b}\\a link\u{1b}]8;;\u{1b}\\",
                "a link",
            ),
            ("\u{1b}(B\u{1b}7up\u{1b}[2Adown\u{1b}c", "updown"),
            ("one\r\ntwo\rthree\tfour\n", "one\ntwo\nthree\tfour\n"),
            ("a\0b\u{8}c\u{7}d\u{c}e\u{7f}f", "abcdef"),
            (
                "\u{85}caf\u{e9} \u{9b}31m\u{a0}\u{2028}",
                "caf\u{e9} 31m\u{a0}\u{2028}",
            ),
            ("Æ\u{1b}[1mØ\u{1b}[0mÅ 🎉", "ÆØÅ 🎉"),
            // Unfinished sequences do not remove the following lines.
            (
                "\u{1b}]0;no end\nnext \u{1b}Pq\nlast\u{1b}",
                "\nnext \nlast",
            ),
        ] {
            assert_eq!(clean_text(input), clean, "{input:?}");
        }
        for clean in [
            "",
            "plain\n\twords",
            "ÆØÅ \u{200d} 日本語",
            "[31m is no sequence",
        ] {
            assert!(matches!(clean_text(clean), Cow::Borrowed(_)), "{clean:?}");
        }
    }

    #[test]
    fn invisible_characters_are_escaped() {
        for (input, shown) in [
            ("plain ÆØÅ 日本語\nnext", "plain ÆØÅ 日本語\nnext"),
            (
                "\u{1b}[31mred\r\u{7}\u{9b}1m",
                "\\u{1b}[31mred\\u{d}\\u{7}\\u{9b}1m",
            ),
            (
                "no\u{a0}break\u{2003}\u{3164}\u{2800} 日本語\u{3000}",
                "no\\u{a0}break\\u{2003}\\u{3164}\\u{2800} 日本語\u{3000}",
            ),
            (
                "a\u{202e}b\u{200b}c\u{e0041}\u{2028}",
                "a\\u{202e}b\\u{200b}c\\u{e0041}\\u{2028}",
            ),
        ] {
            assert_eq!(escape_invisible(input), shown, "{input:?}");
        }
    }

    #[test]
    fn structured_content_is_not_cleaned() {
        let mut input = ToolResult::json(json!({"log": "\u{1b}[31mred"}));
        let before = input.clone();
        assert_eq!((clean_result(&mut input).len(), input), (0, before));
    }

    #[test]
    fn invisible_text_gives_a_warning() {
        let warnings = |text: &str| clean_result(&mut ToolResult::text(text)).len();
        assert_eq!(warnings("plain, ÆØÅ, עברית, 👩‍👩‍👧"), 0);
        assert_eq!(warnings("one\r\ntwo\r\n"), 0);
        assert_eq!(warnings("\u{1b}[31mred\u{1b}[0m"), 1);
        assert_eq!(warnings("a\u{202e}b"), 1);
        assert_eq!(warnings("a\u{2066}b\u{e0041}\u{e0042}"), 2);
        assert_eq!(
            clean_error(&mut ToolError::ErrorResult("a\u{202e}b".into())).len(),
            1
        );
    }

    proptest! {
        #[test]
        fn cleaning_is_complete_and_idempotent(input in "(\\PC|[\u{0}-\u{9f}]|\u{1b}[\\[\\]P()])*") {
            let clean = clean_text(&input);
            prop_assert!(!clean.contains(is_control), "{clean:?}");
            prop_assert_eq!(clean_text(&clean), &*clean);
        }
    }
}
