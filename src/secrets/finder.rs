//! Finds all forms of all values in one pass, and the parts of a form that a cut leaves.
//!
//! The automaton knows only the first bytes of each form, the anchor. The remaining bytes are
//! compared. So the size of the automaton does not grow with the length of the values.

use std::cmp::Ordering;
use std::ops::Range;

use aho_corasick::AhoCorasick;

use super::condensed::{Grams, View, candidate_windows, condense, map_to_original};
use super::forms::{Forms, NeighborBits};
use crate::call::CutEnds;

/// Bytes of a text for each byte of a form with insertions: an invisible character takes up to four
/// bytes.
const MAX_INSERTION_FACTOR: usize = 4;
/// Minimum number of bytes of a form with insertions that count as found at a cut. Fewer reveal
/// little and would be found too often.
pub(super) const MIN_CUT_LENGTH: usize = 4;
/// Maximum number of bytes that remain of a cut escape: two digits of quoted-printable.
const MAX_CUT_ESCAPE: usize = 2;
/// Maximum number of bytes of an anchor.
const MAX_ANCHOR_LENGTH: usize = 16;

/// Finds the forms of a set of values.
pub(super) struct Finder {
    anchors: AhoCorasick,
    /// For each anchor, the forms that begin with it. They are adjacent in `forms`.
    anchor_groups: Vec<Range<usize>>,
    /// The forms, sorted by their bytes.
    forms: Vec<(Box<[u8]>, NeighborBits)>,
    /// Indexes of the forms, sorted by their bytes read from the end.
    by_end: Vec<usize>,
    max_form_length: usize,
    has_numbers: bool,
    grams: Grams,
}

impl Finder {
    /// A finder of these values. `None` if there are no values.
    pub(super) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let (mut all, mut has_numbers) = (Forms::default(), false);
        for value in values {
            has_numbers |= value
                .bytes()
                .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
            all.add_value(value);
        }
        let forms: Vec<_> = all.0.into_iter().collect();
        let mut anchor_groups: Vec<Range<usize>> = Vec::new();
        for (at, (form, _)) in forms.iter().enumerate() {
            match anchor_groups.last_mut() {
                Some(group) if anchor_of(&forms[group.start].0) == anchor_of(form) => {
                    group.end = at + 1;
                }
                _ => anchor_groups.push(at..at + 1),
            }
        }
        let anchors = AhoCorasick::new(
            anchor_groups
                .iter()
                .map(|group| anchor_of(&forms[group.start].0)),
        )
        .ok()?;
        let mut by_end: Vec<usize> = (0..forms.len()).collect();
        by_end.sort_unstable_by(|a, b| forms[*a].0.iter().rev().cmp(forms[*b].0.iter().rev()));
        let max_form_length = forms.iter().map(|(form, _)| form.len()).max()?;
        let grams = Grams::from_forms(forms.iter().map(|(form, _)| &**form));
        Some(Self {
            anchors,
            anchor_groups,
            forms,
            by_end,
            max_form_length,
            has_numbers,
            grams,
        })
    }

    /// Whether one of the values is a number, because JSON may contain it as a number.
    pub(super) fn has_numbers(&self) -> bool {
        self.has_numbers
    }

    /// The maximum number of bytes of a text that a form with insertions may take.
    pub(super) fn max_match_length(&self) -> usize {
        MAX_INSERTION_FACTOR * self.max_form_length
    }

    /// Whether a form is in these bytes.
    pub(super) fn is_match(&self, bytes: &[u8]) -> bool {
        self.anchors.is_match(bytes) && self.find_complete(bytes).next().is_some() || {
            let mut found = Vec::new();
            self.find_with_insertions(bytes, CutEnds::NONE, 0, &mut found);
            !found.is_empty()
        }
    }

    /// Adds the ranges of forms, and of parts of forms that a cut left. The ranges are unsorted and
    /// may overlap. A part with insertions counts only if it has `min_length` bytes.
    pub(super) fn find_ranges(
        &self,
        bytes: &[u8],
        cut: CutEnds,
        min_length: usize,
        found: &mut Vec<Range<usize>>,
    ) {
        if self.anchors.is_match(bytes) {
            found.extend(self.find_complete(bytes));
        }
        if cut.end {
            found.extend(self.cut_form_start(bytes).map(|start| start..bytes.len()));
        }
        if cut.start {
            found.extend(self.cut_form_end_after_escape(bytes).map(|end| 0..end));
        }
        self.find_with_insertions(bytes, cut, min_length, found);
    }

    /// Adds the ranges of forms with line breaks or invisible characters inside.
    fn find_with_insertions(
        &self,
        bytes: &[u8],
        cut: CutEnds,
        min_length: usize,
        found: &mut Vec<Range<usize>>,
    ) {
        let reach = self.max_match_length();
        for view in [View::LinesJoined, View::QuotedPrintableDecoded] {
            for window in candidate_windows(bytes, view, cut.end, reach, &self.grams) {
                self.find_condensed(bytes, window, (view, CutEnds::NONE, min_length), found);
            }
            if cut.start {
                self.find_condensed(
                    bytes,
                    0..bytes.len().min(reach),
                    (view, CutEnds::START, min_length),
                    found,
                );
            }
            if cut.end {
                self.find_condensed(
                    bytes,
                    bytes.len().saturating_sub(reach)..bytes.len(),
                    (view, CutEnds::END, min_length),
                    found,
                );
            }
        }
    }

    /// Searches one region of a text in a view. At a cut end, it searches for the part of a form
    /// there.
    fn find_condensed(
        &self,
        bytes: &[u8],
        window: Range<usize>,
        (view, cut, min_length): (View, CutEnds, usize),
        found: &mut Vec<Range<usize>>,
    ) {
        let part = &bytes[window.clone()];
        let Some(condensed) = condense(part, view, cut.end) else {
            return;
        };
        let mut ranges: Vec<Range<usize>> = match cut {
            CutEnds { start: true, .. } => self
                .cut_form_end_after_escape(&condensed)
                .map(|end| 0..end)
                .into_iter()
                .collect(),
            CutEnds { end: true, .. } => self
                .cut_form_start(&condensed)
                .map(|start| start..condensed.len())
                .into_iter()
                .collect(),
            CutEnds { .. } => self.find_complete(&condensed).collect(),
        };
        ranges.retain(|range| range.len() >= min_length);
        map_to_original(part, view, cut.end, &mut ranges);
        for Range { start, end } in ranges {
            let start = if cut.start { 0 } else { window.start + start };
            let end = if cut.end {
                bytes.len()
            } else {
                window.start + end
            };
            found.push(start..end);
        }
    }

    fn find_complete<'f>(&'f self, bytes: &'f [u8]) -> impl Iterator<Item = Range<usize>> + 'f {
        // Overlapping matches are needed, because half of a secret may follow the end of another.
        self.anchors
            .find_overlapping_iter(bytes)
            .flat_map(move |anchor| {
                let start = anchor.start();
                let forms = &self.forms[self.anchor_groups[anchor.pattern()].clone()];
                let matching = forms
                    .iter()
                    .filter(move |(form, _)| bytes[start..].starts_with(form));
                matching.map(move |(form, neighbors)| {
                    include_neighbors(bytes, start..start + form.len(), *neighbors)
                })
            })
    }

    /// The start of the longest suffix of these bytes with which a form begins.
    fn cut_form_start(&self, bytes: &[u8]) -> Option<usize> {
        let first = bytes.len().saturating_sub(self.max_form_length - 1);
        (first..bytes.len()).find_map(|start| {
            let suffix = &bytes[start..];
            let at = self.forms.partition_point(|(form, _)| **form < *suffix);
            let (_, neighbors) = self
                .forms
                .get(at)
                .filter(|(form, _)| form.starts_with(suffix))?;
            Some(include_neighbors(bytes, start..bytes.len(), *neighbors).start)
        })
    }

    /// The same as [`Finder::cut_form_end`]. It also skips what a cut may have left of an escape or
    /// a line break: two digits, one letter, or indentation.
    fn cut_form_end_after_escape(&self, bytes: &[u8]) -> Option<usize> {
        let is_rest = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'n' | b'r');
        let rest = bytes
            .iter()
            .take(MAX_CUT_ESCAPE)
            .take_while(|byte| is_rest(byte))
            .count();
        let spaces = bytes
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        let after_escape = (1..=rest).chain(Some(spaces).filter(|spaces| *spaces > 0));
        let after_escape = after_escape.filter_map(|at| {
            self.cut_form_end(&bytes[at..])
                .filter(|end| *end >= MIN_CUT_LENGTH)
                .map(|end| at + end)
        });
        self.cut_form_end(bytes)
            .into_iter()
            .chain(after_escape)
            .max()
    }

    /// The end of the longest prefix of these bytes with which a form ends.
    fn cut_form_end(&self, bytes: &[u8]) -> Option<usize> {
        let last = bytes.len().min(self.max_form_length - 1);
        (1..=last).rev().find_map(|end| {
            let prefix = &bytes[..end];
            let less = |at: &usize| {
                self.forms[*at].0.iter().rev().cmp(prefix.iter().rev()) == Ordering::Less
            };
            let at = *self.by_end.get(self.by_end.partition_point(less))?;
            let (form, neighbors) = &self.forms[at];
            form.ends_with(prefix)
                .then(|| include_neighbors(bytes, 0..end, *neighbors).end)
        })
    }
}

fn anchor_of(form: &[u8]) -> &[u8] {
    &form[..form.len().min(MAX_ANCHOR_LENGTH)]
}

/// Extends the range by the neighboring characters that contain bits of the value, and by padding.
fn include_neighbors(bytes: &[u8], range: Range<usize>, neighbors: NeighborBits) -> Range<usize> {
    let is_coded = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let Range { mut start, mut end } = range;
    if neighbors.before && start > 0 && is_coded(&bytes[start - 1]) {
        start -= 1;
    }
    if neighbors.after && bytes.get(end).is_some_and(is_coded) {
        end += 1;
    }
    if neighbors.after {
        end += bytes[end..]
            .iter()
            .take_while(|byte| **byte == b'=')
            .count();
    }
    start..end
}
