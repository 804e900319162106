//! Decides how a pattern is matched, and estimates its cost: memory after compilation, and time for
//! each character of a text.

use std::borrow::Cow;

use fancy_regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Maximum size of one pattern, in bytes. Parsing takes up to 2 KB of memory for each byte of the
/// pattern.
pub(super) const MAX_PATTERN: usize = 8 << 10;
/// States that each byte of a backtracking pattern counts as, if they cannot be counted.
const STATES_PER_BYTE: u64 = 24;
/// The compiled size of each part of a pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// The estimate for one pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PatternCost {
    /// States of its automaton.
    pub(super) states: u64,
    /// The maximum number of states that are active for one character. A counted repetition has one
    /// active state, unless its prefix may end at many positions.
    pub(super) width: u64,
}

/// How a pattern is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternUse {
    /// In linear time.
    Linear(PatternCost),
    /// By backtracking within bounds, because it looks around or refers to a group.
    Backtracking {
        /// States of its parts.
        states: u64,
    },
    /// Not at all: it is valid in ECMA-262, and no engine here can compile it.
    Unsupported,
    /// Not at all: it is not valid.
    Invalid,
}

/// How a pattern in the syntax of JSON Schema (ECMA-262) is matched.
pub(crate) fn pattern_use(pattern: &str) -> PatternUse {
    if pattern.len() > MAX_PATTERN {
        return PatternUse::Unsupported;
    }
    if let Some(cost) = estimate_cost(pattern) {
        return PatternUse::Linear(cost);
    }
    if !has_nested_lookaround(pattern) && compile_backtracking(pattern, 1).is_some() {
        return PatternUse::Backtracking {
            states: count_backtracking_states(pattern),
        };
    }
    match jsonschema_regex::is_valid_ecma_regex(pattern) {
        true => PatternUse::Unsupported,
        false => PatternUse::Invalid,
    }
}

/// The marks of groups that match no characters of their own.
const LOOKAROUNDS: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];

/// Whether a lookaround stands inside another one. Each level multiplies the time for a text by its
/// length, and the limit on backtracking does not count that.
fn has_nested_lookaround(pattern: &str) -> bool {
    let (mut open, mut in_class) = (Vec::new(), false);
    let mut chars = pattern.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                let rest = pattern.get(at..).unwrap_or_default();
                let looks = LOOKAROUNDS.iter().any(|mark| rest.starts_with(mark));
                if looks && open.contains(&true) {
                    return true;
                }
                open.push(looks);
            }
            ')' if !in_class => drop(open.pop()),
            _ => {}
        }
    }
    false
}

/// The states of a pattern whose lookarounds count as groups.
fn count_backtracking_states(pattern: &str) -> u64 {
    let groups = LOOKAROUNDS
        .iter()
        .fold(Cow::Borrowed(pattern), |pattern, mark| {
            pattern.replace(mark, "(?:").into()
        });
    estimate_cost(&groups).map_or(pattern.len() as u64 * STATES_PER_BYTE, |cost| cost.states)
}

/// Parses a pattern in the syntax of JSON Schema. `None` if the pattern is invalid, or has features
/// beyond regular expressions.
pub(super) fn parse_pattern(pattern: &str) -> Option<Hir> {
    let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
    regex_syntax::Parser::new().parse(&translated).ok()
}

/// The cost of a pattern in the syntax of JSON Schema. `None` if the pattern is invalid.
pub(super) fn estimate_cost(pattern: &str) -> Option<PatternCost> {
    let hir = parse_pattern(pattern)?;
    let is_anchored = hir.properties().look_set_prefix().contains(Look::Start);
    let walk = WidthSearch {
        has_many_starts: !is_anchored,
        width: 0,
    }
    .visit(&hir, true);
    Some(PatternCost {
        states: count_states(&hir),
        width: walk.width.max(1),
    })
}

/// Counts states in the translation of regex-syntax. A Unicode class takes about two states for
/// each of its ranges in UTF-8.
fn count_states(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Class(Class::Unicode(class)) if class.is_ascii() => 1,
        HirKind::Class(Class::Unicode(class)) => 8 + class.ranges().len() as u64,
        HirKind::Capture(capture) => count_states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts
            .iter()
            .map(count_states)
            .fold(parts.len() as u64, u64::saturating_add),
        HirKind::Repetition(repetition) => {
            let times = repetition
                .max
                .unwrap_or(repetition.min.saturating_add(1))
                .max(1);
            count_states(&repetition.sub)
                .saturating_add(1)
                .saturating_mul(times.into())
        }
    }
}

/// Searches the maximum width of a pattern, from its beginning to its end.
struct WidthSearch {
    /// The next part may begin at more than one character.
    has_many_starts: bool,
    width: u64,
}

impl WidthSearch {
    /// Visits a part. `is_last`: the match is complete after this part.
    fn visit(self, hir: &Hir, is_last: bool) -> Self {
        let Self {
            has_many_starts: many,
            width,
        } = self;
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => self,
            HirKind::Literal(literal) => Self {
                has_many_starts: many,
                width: width.saturating_add(if many { literal.0.len() as u64 } else { 1 }),
            },
            HirKind::Class(_) => Self {
                has_many_starts: many,
                width: width.saturating_add(1),
            },
            HirKind::Capture(capture) => self.visit(&capture.sub, is_last),
            HirKind::Concat(parts) => {
                let last = parts.len();
                let each = parts.iter().enumerate();
                each.fold(self, |walk, (at, part)| {
                    walk.visit(part, is_last && at + 1 == last)
                })
            }
            HirKind::Alternation(parts) => parts.iter().fold(self, |walk, part| {
                let over = Self {
                    has_many_starts: many,
                    width: walk.width,
                }
                .visit(part, is_last);
                Self {
                    has_many_starts: walk.has_many_starts
                        || over.has_many_starts
                        || fixed_length(hir).is_none(),
                    width: over.width,
                }
            }),
            HirKind::Repetition(repetition) => {
                let (min, max) = (repetition.min, repetition.max);
                let max = if is_last { Some(min.max(1)) } else { max };
                let fixed = fixed_length(&repetition.sub).is_some();
                let times = if many || !fixed {
                    max.unwrap_or(min.saturating_add(1)).max(1)
                } else {
                    1
                };
                let inner = Self {
                    has_many_starts: many || !fixed,
                    width: 0,
                }
                .visit(&repetition.sub, false);
                let width = width
                    .saturating_add(inner.width.saturating_add(1).saturating_mul(times.into()));
                Self {
                    has_many_starts: many || !fixed || Some(min) != max,
                    width,
                }
            }
        }
    }
}

/// The number of characters that a part matches, if it is fixed.
fn fixed_length(hir: &Hir) -> Option<u64> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(0),
        HirKind::Literal(literal) => {
            Some(String::from_utf8_lossy(&literal.0).chars().count() as u64)
        }
        HirKind::Class(_) => Some(1),
        HirKind::Capture(capture) => fixed_length(&capture.sub),
        HirKind::Concat(parts) => parts
            .iter()
            .try_fold(0u64, |sum, part| sum.checked_add(fixed_length(part)?)),
        HirKind::Alternation(parts) => {
            let mut lengths = parts.iter().map(fixed_length);
            let first = lengths.next()??;
            lengths.all(|length| length == Some(first)).then_some(first)
        }
        HirKind::Repetition(repetition) if Some(repetition.min) == repetition.max => {
            fixed_length(&repetition.sub)?.checked_mul(repetition.min.into())
        }
        HirKind::Repetition(_) => None,
    }
}

/// Compiles a pattern in the syntax of JSON Schema. `None` if that is not possible.
pub(super) fn compile_backtracking(pattern: &str, max_backtracks: usize) -> Option<Regex> {
    let translated = match jsonschema_regex::to_rust_regex(pattern) {
        Ok(translated) => translated,
        // The translation does not know references to groups by name.
        Err(()) if pattern.contains("\\k<") => pattern.into(),
        Err(()) => return None,
    };
    RegexBuilder::new(&to_ascii_classes(&translated))
        .backtrack_limit(max_backtracks)
        .delegate_size_limit(MAX_COMPILED_BYTES)
        .build()
        .ok()
}

/// Replaces `\d` and `\w` by what they mean in ECMA-262. The translation leaves a pattern with a
/// lookaround as it is, and here they would mean all of Unicode.
fn to_ascii_classes(pattern: &str) -> String {
    let (mut out, mut in_class) = (String::with_capacity(pattern.len()), false);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            in_class = (in_class || c == '[') && c != ']';
            out.push(c);
            continue;
        }
        match (chars.next(), in_class) {
            (Some('d'), false) => out.push_str("[0-9]"),
            (Some('D'), false) => out.push_str("[^0-9]"),
            (Some('w'), false) => out.push_str("[A-Za-z0-9_]"),
            (Some('W'), false) => out.push_str("[^A-Za-z0-9_]"),
            (Some('d'), true) => out.push_str("0-9"),
            (Some('w'), true) => out.push_str("A-Za-z0-9_"),
            (Some('/'), _) => out.push('/'),
            (escaped, _) => {
                out.push('\\');
                out.extend(escaped);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(pattern: &str) -> u64 {
        estimate_cost(pattern).unwrap().width
    }

    #[test]
    fn counted_repetition_costs_little_when_anchored() {
        for cheap in [
            "^[a-z]{1,500}$",
            "^.{0,5000}$",
            "^[0-9]{4}-[0-9]{2}$",
            "^(.|\\n){0,5000}$",
            "[\\s\\S]{1,2000}",
        ] {
            assert!(width(cheap) < 10, "{cheap}: {}", width(cheap));
        }
    }

    #[test]
    fn overlapping_repetition_costs_its_length() {
        for dear in [
            "^(a|b)*a(a|b){500}c",
            "[a-z]{500}x",
            "^(a{1,100}){1,100}b$",
            "^(a+){500}$",
        ] {
            assert!(width(dear) >= 400, "{dear}: {}", width(dear));
        }
    }

    #[test]
    fn states_and_widths_are_estimated() {
        for (pattern, states, width) in [
            ("abc", 3, 3),
            ("^abc", 6, 1),
            ("^abc$", 8, 1),
            ("[a-z]", 1, 1),
            ("[à-ÿ]", 9, 1),
            ("(ab)", 4, 2),
            ("ab|cd", 6, 4),
            ("[a-z]x", 4, 2),
            ("^(ab){3}c", 20, 3),
            ("(ab){3}c", 18, 10),
            ("(ab|cde){3}c", 33, 19),
            ("^(ab|cde){3}c", 35, 19),
            ("^(ab|c)d{7}e", 27, 17),
            ("^a{2,5}b{7}c", 30, 17),
            ("^a{5}b{7}c", 30, 5),
            ("^(a{2}|bc){7}d", 82, 5),
        ] {
            assert_eq!(
                estimate_cost(pattern),
                Some(PatternCost { states, width }),
                "{pattern}"
            );
        }
    }

    #[test]
    fn states_multiply_where_repetitions_nest() {
        assert!(estimate_cost("(a{1,100}){1,100}").unwrap().states >= 10_000);
        assert!(estimate_cost("(a{1000}){1000}{1000}").unwrap().states >= 1_000_000_000);
        let nested = format!("^(a{}b|c)+$", "+".repeat(80));
        assert!(width(&nested) > 1 << 60, "no overflow");
        assert!(
            estimate_cost("^[\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]{0,256}$")
                .unwrap()
                .states
                < 400_000
        );
        assert_eq!(estimate_cost("("), None);
    }
}
