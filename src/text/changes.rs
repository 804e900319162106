//! The differences between two sets of named things, for events and for a log that people read.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// The names of things that differ, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Names that exist only after the change.
    pub added: Vec<String>,
    /// Names that existed only before the change.
    pub removed: Vec<String>,
    /// Names that exist before and after, with different things.
    pub changed: Vec<String>,
}

impl Changes {
    /// The differences. `same` returns whether two things with the same name are equal.
    pub fn between<'a, T>(
        before: impl Iterator<Item = (&'a str, T)>,
        after: impl Iterator<Item = (&'a str, T)>,
        same: impl Fn(&T, &T) -> bool,
    ) -> Self {
        let (before, after): (BTreeMap<_, _>, BTreeMap<_, _>) = (before.collect(), after.collect());
        let mut changes = Self::default();
        for (name, thing) in &after {
            match before.get(name) {
                None => changes.added.push((*name).to_owned()),
                Some(old) if !same(old, thing) => changes.changed.push((*name).to_owned()),
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        changes.removed.extend(gone.map(|name| (*name).to_owned()));
        changes
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
        ];
        let summaries: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{} {what} ({})", names.len(), names.join(", ")))
            .collect();
        if summaries.is_empty() {
            f.write_str("the same")
        } else {
            f.write_str(&summaries.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_displayed_in_one_line() {
        let (before, after) = (
            [("a", 1), ("b", 2), ("c", 3)],
            [("d", 4), ("c", 30), ("a", 1)],
        );
        let changes = Changes::between(before.into_iter(), after.into_iter(), |one, other| {
            one == other
        });
        assert_eq!(
            changes.to_string(),
            "1 added (d), 1 removed (b), 1 changed (c)"
        );
        let same = Changes::between(before.into_iter(), before.into_iter(), |one, other| {
            one == other
        });
        assert!(same.is_empty());
        assert_eq!(same.to_string(), "the same");
    }
}
