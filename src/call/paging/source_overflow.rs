//! What an answer says about a part of the output that a runner left out, or that a page left out.

use toolcrib_dialect::Content;

use super::incomplete::Incomplete;
use super::page::{Overflow, RestHint, Unit};
use crate::call::result::ToolResult;

impl ToolResult {
    /// The same result, marked as incomplete.
    #[must_use]
    pub fn with_incomplete(self, incomplete: Incomplete) -> Self {
        Self {
            incomplete: Some(incomplete),
            ..self
        }
    }

    /// The description of the missing part, for an answer that shows everything the runner
    /// returned. `None` for a complete result.
    pub fn source_overflow(&self) -> Option<Overflow> {
        let incomplete = self.incomplete.as_ref()?;
        let shown = match incomplete.unit {
            Unit::Items => self
                .structured_content
                .as_ref()
                .and_then(|value| value.as_array())
                .map_or(0, Vec::len),
            Unit::Characters => {
                let texts = self.content.iter().filter_map(Content::as_text);
                texts.map(|text| text.chars().count()).sum()
            }
        };
        let for_model = self.hint.clone().map_or(RestHint::Narrow, RestHint::Text);
        let hint = match &self.hint {
            Some(tool_hint) => format!("{} {tool_hint}", incomplete.explain()),
            None => incomplete.explain(),
        };
        Some(Overflow {
            shown,
            total: None,
            unit: incomplete.unit,
            hint,
            next_offset: None,
            for_model,
            returned: shown,
        })
    }
}

impl Overflow {
    /// The sentence at the end of a cut result that tells a model what is missing. `rest` tells how
    /// to get it; it is empty, or begins with a space.
    pub(crate) fn model_note(&self, rest: &str) -> String {
        let Self {
            shown,
            returned,
            unit,
            ..
        } = self;
        let is_last = self.for_model == RestHint::LastPage;
        match self.total {
            Some(total) if is_last && *shown == 0 => {
                format!("[Beyond the end: there are {total} {unit}.]")
            }
            Some(total) if is_last => {
                format!("[This is the last page: {shown} of {total} {unit}.]")
            }
            Some(total) => format!("[Only {shown} of {total} {unit} are shown.{rest}]"),
            None if is_last && *shown == 0 => {
                format!(
                    "[Beyond the end: the tool returned only the first {returned} {unit}.{rest}]"
                )
            }
            None if is_last => format!(
                "[These are the last of the first {returned} {unit}. There are more.{rest}]"
            ),
            None if shown < returned => {
                format!("[Only {shown} of more than {returned} {unit} are shown.{rest}]")
            }
            None => match shown {
                0 => format!("[There are {unit}, but none is shown.{rest}]"),
                1 => format!("[Only the first of several {unit} is shown.{rest}]"),
                _ => format!("[Only the first {shown} {unit} are shown; there are more.{rest}]"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overflow(shown: usize, returned: usize, for_model: RestHint) -> Overflow {
        let hint = String::new();
        Overflow {
            shown,
            total: None,
            unit: Unit::Items,
            hint,
            next_offset: None,
            for_model,
            returned,
        }
    }

    #[test]
    fn note_never_states_an_unknown_total() {
        for (shown, returned, for_model, note) in [
            (
                50,
                50,
                RestHint::Narrow,
                "[Only the first 50 items are shown; there are more. Ask for less.]",
            ),
            (
                1,
                1,
                RestHint::Narrow,
                "[Only the first of several items is shown. Ask for less.]",
            ),
            (
                0,
                0,
                RestHint::Narrow,
                "[There are items, but none is shown. Ask for less.]",
            ),
            (
                200,
                1000,
                RestHint::Narrow,
                "[Only 200 of more than 1000 items are shown. Ask for less.]",
            ),
            (
                50,
                1000,
                RestHint::LastPage,
                "[These are the last of the first 1000 items. There are more. Ask for less.]",
            ),
            (
                0,
                1000,
                RestHint::LastPage,
                "[Beyond the end: the tool returned only the first 1000 items. Ask for less.]",
            ),
        ] {
            assert_eq!(
                overflow(shown, returned, for_model).model_note(" Ask for less."),
                note
            );
        }
    }

    #[test]
    fn incomplete_result_has_no_total() {
        let rows = ToolResult::json(json!([{"id": 1}, {"id": 2}]));
        assert_eq!(rows.source_overflow(), None);
        let overflow = rows
            .with_incomplete(Incomplete::new(Unit::Items, "max_rows"))
            .source_overflow()
            .unwrap();
        assert_eq!(
            (overflow.shown, overflow.total, overflow.next_offset),
            (2, None, None)
        );
        assert_eq!(
            overflow.hint,
            "The tool has more items, which its limit `max_rows` left out: ask for less at once, or raise the limit."
        );
        let text =
            ToolResult::text("äöü").with_incomplete(Incomplete::new(Unit::Characters, "max_bytes"));
        let overflow = text
            .with_hint("Go on with start_line 4.")
            .source_overflow()
            .unwrap();
        assert_eq!((overflow.shown, overflow.unit), (3, Unit::Characters));
        assert!(
            overflow
                .hint
                .ends_with("or raise the limit. Go on with start_line 4."),
            "{}",
            overflow.hint
        );
    }
}
