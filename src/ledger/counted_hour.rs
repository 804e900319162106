//! The counts of one hour, as the ledger keeps them: JSON with few names and many numbers, because
//! an answer may put hundreds of hours together.

use serde::{Deserialize, Serialize};

use super::counts::Counts;
use super::latency::Latencies;

/// Length of an hour, in milliseconds.
pub(super) const HOUR_MS: i64 = 3_600_000;

/// The calls that started in one hour, by tool and caller.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountedHour {
    pub(super) callers: Vec<String>,
    pub(super) tools: Vec<String>,
    /// For each pair: the places of the caller and of the tool, the calls, those that succeeded, failed
    /// and were refused, the cache hits, the number of buckets of the sketch, and each of these: its
    /// index and its calls.
    counts: Vec<u64>,
}

/// Numbers of a pair before those of its sketch.
const PAIR_NUMBERS: usize = 8;

/// The calls of one pair.
pub(super) struct HourGroup<L> {
    /// The place of the tool among the tools.
    pub(super) tool: usize,
    /// The place of the caller among the callers.
    pub(super) caller: usize,
    pub(super) counts: Counts,
    /// The buckets of the sketch, with their calls.
    pub(super) latencies: L,
}

impl CountedHour {
    /// Adds a pair, once.
    pub(super) fn add(&mut self, tool: &str, caller: &str, counts: Counts, latencies: &Latencies) {
        let (caller, tool) = (
            place(&mut self.callers, caller),
            place(&mut self.tools, tool),
        );
        self.counts.extend([caller, tool]);
        self.counts.extend(counts.numbers());
        self.counts.push(latencies.buckets().count() as u64);
        for (bucket, calls) in latencies.buckets() {
            self.counts.extend([bucket.unsigned_abs(), calls]);
        }
    }

    /// The text in the ledger.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the text. `None`: it is not a whole hour, such as one that a later version has written.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let hour: Self = serde_json::from_str(text).ok()?;
        let mut rest = hour.counts.as_slice();
        while let Some((pair, others)) = rest.split_at_checked(PAIR_NUMBERS) {
            let is_named =
                (pair[0] as usize) < hour.callers.len() && (pair[1] as usize) < hour.tools.len();
            let sketch = usize::try_from(pair[7]).ok()?.checked_mul(2)?;
            rest = others.get(sketch..).filter(|_| is_named)?;
        }
        rest.is_empty().then_some(hour)
    }

    /// The pairs with their counts.
    pub(super) fn groups(
        &self,
    ) -> impl Iterator<Item = HourGroup<impl Iterator<Item = (i64, u64)> + '_>> {
        let mut rest = self.counts.as_slice();
        std::iter::from_fn(move || {
            let (pair, others) = rest.split_at_checked(PAIR_NUMBERS)?;
            let (sketch, others) = others.split_at_checked(pair[7] as usize * 2)?;
            rest = others;
            let bucket = |pair: &[u64]| (i64::try_from(pair[0]).unwrap_or(i64::MAX), pair[1]);
            Some(HourGroup {
                tool: pair[1] as usize,
                caller: pair[0] as usize,
                counts: Counts {
                    calls: pair[2],
                    succeeded: pair[3],
                    failed: pair[4],
                    refused: pair[5],
                    cache_hits: pair[6],
                },
                latencies: sketch.chunks_exact(2).map(bucket),
            })
        })
    }
}

/// The place of a name in a list, which gets the name if it lacks it. An hour has few names.
fn place(names: &mut Vec<String>, name: &str) -> u64 {
    let found = names.iter().position(|one| one == name);
    let place = found.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    place as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(calls: u64) -> Counts {
        Counts {
            calls,
            succeeded: calls - 1,
            refused: 1,
            ..Counts::default()
        }
    }

    #[test]
    fn hour_is_read_as_it_was_written() {
        let mut hour = CountedHour::default();
        hour.add("t", "a", counts(3), &[1, 40, 40].into_iter().collect());
        hour.add("u", "a", counts(1), &Latencies::default());
        hour.add("t", "b", counts(2), &[7].into_iter().collect());
        let read = CountedHour::from_text(&hour.to_text()).unwrap();
        assert_eq!(read, hour);
        let shown = |group: HourGroup<_>| {
            let names = (&*read.tools[group.tool], &*read.callers[group.caller]);
            let durations: u64 = Iterator::map(group.latencies, |(_, calls)| calls).sum();
            (names, group.counts, durations)
        };
        let groups: Vec<_> = read.groups().map(shown).collect();
        assert_eq!(
            groups,
            [
                (("t", "a"), counts(3), 3),
                (("u", "a"), counts(1), 0),
                (("t", "b"), counts(2), 1)
            ]
        );
        assert_eq!(read.groups().next().unwrap().latencies.next(), Some((0, 1)));
    }

    #[test]
    fn incomplete_hours_are_not_read() {
        let text =
            |counts: &str| format!(r#"{{"callers":["a"],"tools":["t"],"counts":[{counts}]}}"#);
        for whole in ["", "0,0,1,1,0,0,0,0", "0,0,1,1,0,0,0,1,5,1"] {
            assert!(CountedHour::from_text(&text(whole)).is_some(), "{whole}");
        }
        for broken in [
            "0",
            "0,0,1,1,0,0,0,1,5",
            "1,0,1,1,0,0,0,0",
            "0,1,1,1,0,0,0,0",
            "0,0,1,1,0,0,0,18446744073709551615",
            "0,0,1,1,0,0,0,-1",
        ] {
            assert!(CountedHour::from_text(&text(broken)).is_none(), "{broken}");
        }
        assert!(CountedHour::from_text("{}").is_none());
    }
}
