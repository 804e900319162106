//! Finds all forms of all values in one pass, and the parts of a form that a cut leaves.
//!
//! The automaton knows only the first bytes of each form, the anchor. The remaining bytes are compared. So the size
//! of the automaton does not grow with the length of the values.

use std::cmp::Ordering;
use std::ops::Range;

use aho_corasick::AhoCorasick;

use super::condensed::{Grams, View, condense, locate, windows};
use super::forms::{Forms, Spill};
use crate::call::Torn;

/// Bytes of a text for each byte of a form with insertions: an invisible character takes up to four bytes.
const MOST_INSERTED: usize = 4;
/// Minimum number of bytes of a form with insertions that count as found at a cut. Fewer reveal little and would be
/// found too often.
pub(super) const FEWEST: usize = 4;
/// Maximum number of bytes that remain of a cut escape: two digits of quoted-printable.
const MOST_OF_ESCAPE: usize = 2;
/// Maximum number of bytes of an anchor.
const ANCHOR: usize = 16;

/// Finds the forms of a set of values.
pub(super) struct Finder {
    anchors: AhoCorasick,
    /// For each anchor, the forms that begin with it. They are adjacent in `forms`.
    groups: Vec<Range<usize>>,
    /// The forms, sorted by their bytes.
    forms: Vec<(Box<[u8]>, Spill)>,
    /// Indexes of the forms, sorted by their bytes read from the end.
    by_end: Vec<usize>,
    longest: usize,
    has_numbers: bool,
    grams: Grams,
}

impl Finder {
    /// A finder of these values. `None` if there are no values.
    pub(super) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let (mut all, mut has_numbers) = (Forms::default(), false);
        for value in values {
            has_numbers |= value.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
            all.add(value);
        }
        let forms = all.into_sorted();
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (at, (form, _)) in forms.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if anchor(&forms[group.start].0) == anchor(form) => group.end = at + 1,
                _ => groups.push(at..at + 1),
            }
        }
        let anchors = AhoCorasick::new(groups.iter().map(|group| anchor(&forms[group.start].0))).ok()?;
        let mut by_end: Vec<usize> = (0..forms.len()).collect();
        by_end.sort_unstable_by(|a, b| forms[*a].0.iter().rev().cmp(forms[*b].0.iter().rev()));
        let longest = forms.iter().map(|(form, _)| form.len()).max()?;
        let grams = Grams::of(forms.iter().map(|(form, _)| &**form));
        Some(Self { anchors, groups, forms, by_end, longest, has_numbers, grams })
    }

    /// Whether one of the values is a number, because JSON may contain it as a number.
    pub(super) fn has_numbers(&self) -> bool {
        self.has_numbers
    }

    /// The maximum number of bytes of a text that a form with insertions may take.
    pub(super) fn longest(&self) -> usize {
        MOST_INSERTED * self.longest
    }

    /// Whether a form is in these bytes.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        self.anchors.is_match(bytes) && self.matches(bytes).next().is_some() || {
            let mut found = Vec::new();
            self.find_broken(bytes, Torn::NOWHERE, 0, &mut found);
            !found.is_empty()
        }
    }

    /// Adds the ranges of forms, and of parts of forms that a cut left. The ranges are unsorted and may overlap. A
    /// part with insertions counts only if it has `least` bytes.
    pub(super) fn find(&self, bytes: &[u8], torn: Torn, least: usize, found: &mut Vec<Range<usize>>) {
        if self.anchors.is_match(bytes) {
            found.extend(self.matches(bytes));
        }
        if torn.end {
            found.extend(self.begun(bytes).map(|start| start..bytes.len()));
        }
        if torn.start {
            found.extend(self.ending_behind_escape(bytes).map(|end| 0..end));
        }
        self.find_broken(bytes, torn, least, found);
    }

    /// Adds the ranges of forms with line breaks or invisible characters inside.
    fn find_broken(&self, bytes: &[u8], torn: Torn, least: usize, found: &mut Vec<Range<usize>>) {
        let reach = self.longest();
        for view in [View::Unbroken, View::Unquoted] {
            for window in windows(bytes, view, torn.end, reach, &self.grams) {
                self.find_condensed(bytes, window, (view, Torn::NOWHERE, least), found);
            }
            if torn.start {
                self.find_condensed(bytes, 0..bytes.len().min(reach), (view, Torn::START, least), found);
            }
            if torn.end {
                self.find_condensed(
                    bytes,
                    bytes.len().saturating_sub(reach)..bytes.len(),
                    (view, Torn::END, least),
                    found,
                );
            }
        }
    }

    /// Searches one region of a text in a view. At a torn end, it searches for the part of a form there.
    fn find_condensed(
        &self,
        bytes: &[u8],
        window: Range<usize>,
        (view, torn, least): (View, Torn, usize),
        found: &mut Vec<Range<usize>>,
    ) {
        let part = &bytes[window.clone()];
        let Some(whole) = condense(part, view, torn.end) else { return };
        let mut broken: Vec<Range<usize>> = match torn {
            Torn { start: true, .. } => self.ending_behind_escape(&whole).map(|end| 0..end).into_iter().collect(),
            Torn { end: true, .. } => self.begun(&whole).map(|start| start..whole.len()).into_iter().collect(),
            Torn { .. } => self.matches(&whole).collect(),
        };
        broken.retain(|range| range.len() >= least);
        locate(part, view, torn.end, &mut broken);
        for Range { start, end } in broken {
            let start = if torn.start { 0 } else { window.start + start };
            let end = if torn.end { bytes.len() } else { window.start + end };
            found.push(start..end);
        }
    }

    fn matches<'f>(&'f self, bytes: &'f [u8]) -> impl Iterator<Item = Range<usize>> + 'f {
        // Overlapping matches are needed, because half of a secret may follow the end of another.
        self.anchors.find_overlapping_iter(bytes).flat_map(move |anchor| {
            let start = anchor.start();
            let forms = &self.forms[self.groups[anchor.pattern()].clone()];
            let whole = forms.iter().filter(move |(form, _)| bytes[start..].starts_with(form));
            whole.map(move |(form, spill)| spread(bytes, start..start + form.len(), *spill))
        })
    }

    /// The start of the longest suffix of these bytes with which a form begins.
    fn begun(&self, bytes: &[u8]) -> Option<usize> {
        let first = bytes.len().saturating_sub(self.longest - 1);
        (first..bytes.len()).find_map(|start| {
            let end = &bytes[start..];
            let at = self.forms.partition_point(|(form, _)| **form < *end);
            let (_, spill) = self.forms.get(at).filter(|(form, _)| form.starts_with(end))?;
            Some(spread(bytes, start..bytes.len(), *spill).start)
        })
    }

    /// The same as [`Finder::ending`]. It also skips what a cut may have left of an escape or a line break: two
    /// digits, one letter, or indentation.
    fn ending_behind_escape(&self, bytes: &[u8]) -> Option<usize> {
        let is_rest = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'n' | b'r');
        let rest = bytes.iter().take(MOST_OF_ESCAPE).take_while(|byte| is_rest(byte)).count();
        let spaces = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let behind = (1..=rest).chain(Some(spaces).filter(|spaces| *spaces > 0));
        let behind = behind.filter_map(|at| self.ending(&bytes[at..]).filter(|end| *end >= FEWEST).map(|end| at + end));
        self.ending(bytes).into_iter().chain(behind).max()
    }

    /// The end of the longest prefix of these bytes with which a form ends.
    fn ending(&self, bytes: &[u8]) -> Option<usize> {
        let last = bytes.len().min(self.longest - 1);
        (1..=last).rev().find_map(|end| {
            let begin = &bytes[..end];
            let less = |at: &usize| self.forms[*at].0.iter().rev().cmp(begin.iter().rev()) == Ordering::Less;
            let at = *self.by_end.get(self.by_end.partition_point(less))?;
            let (form, spill) = &self.forms[at];
            form.ends_with(begin).then(|| spread(bytes, 0..end, *spill).end)
        })
    }
}

fn anchor(form: &[u8]) -> &[u8] {
    &form[..form.len().min(ANCHOR)]
}

/// Extends the range by the neighboring characters that contain bits of the value, and by padding.
fn spread(bytes: &[u8], range: Range<usize>, spill: Spill) -> Range<usize> {
    let is_coded = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let Range { mut start, mut end } = range;
    if spill.before && start > 0 && is_coded(&bytes[start - 1]) {
        start -= 1;
    }
    if spill.after && bytes.get(end).is_some_and(is_coded) {
        end += 1;
    }
    if spill.after {
        end += bytes[end..].iter().take_while(|byte| **byte == b'=').count();
    }
    start..end
}
