//! Verifies a chain of entries.

use std::fmt;

use serde::Serialize;

use super::entry::{Entry, first_hash};

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// It is not what was appended here.
    Edited,
    /// It is missing.
    Deleted,
    /// It has another number.
    Reordered,
    /// No entry has the expected hash: the end was cut off, or the chain was written anew.
    CutOff,
}

/// The first place where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// What is wrong.
    pub fault: Fault,
    /// Number of the entry.
    pub seq: u64,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = self.seq;
        match self.fault {
            Fault::Edited => write!(f, "entry {seq} was edited: its hash does not fit"),
            Fault::Deleted => write!(f, "entry {seq} was deleted"),
            Fault::Reordered => write!(f, "entry {seq} was reordered: it has another number"),
            Fault::CutOff => write!(
                f,
                "no entry has the expected hash: the entries from {seq} on were cut off, or the chain was written anew"
            ),
        }
    }
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether every entry fits.
    pub valid: bool,
    /// Number of entries.
    pub entries: usize,
    /// Hash of the last entry; `None` if the chain is broken.
    pub last_hash: Option<String>,
    /// The first broken entry.
    pub broken: Option<Broken>,
}

/// Verifies a whole chain, the oldest entry first. `expected` is a hash that one of the entries must have.
pub fn verify(entries: &[Entry], expected: Option<&str>) -> Verdict {
    let (mut due, mut last) = (1, first_hash());
    let mut is_expected = expected.is_none_or(|hash| hash == last);
    let mut rest = entries;
    while let [entry, behind @ ..] = rest
        && entry.seq == due
        && entry.hash == entry.hash_after(&last)
    {
        last.clone_from(&entry.hash);
        is_expected |= expected == Some(&*last);
        (due, rest) = (due + 1, behind);
    }
    let fault = match rest.first() {
        Some(found) => Some(find_fault(rest, found, due, &last)),
        None => (!is_expected).then_some(Fault::CutOff),
    };
    Verdict {
        valid: fault.is_none(),
        entries: entries.len(),
        last_hash: fault.is_none().then_some(last),
        broken: fault.map(|fault| Broken { fault, seq: due }),
    }
}

/// What happened to the entry that is due after the hash `last`. `found` stands in its place.
fn find_fault(rest: &[Entry], found: &Entry, due: u64, last: &str) -> Fault {
    // It may stand elsewhere, with its own hash or without.
    let is_elsewhere = rest.iter().any(|entry| {
        let entry_here = Entry {
            seq: due,
            ..entry.clone()
        };
        let hash = entry_here.hash_after(last);
        entry.seq != due && (hash == entry.hash || hash == found.hash)
    });
    match (is_elsewhere, found.seq == due) {
        (true, _) => Fault::Reordered,
        (false, true) => Fault::Edited,
        (false, false) => Fault::Deleted,
    }
}
