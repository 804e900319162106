//! The purges that this service knows: those in Redis, and those that Redis does not know yet.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

/// The field of the hash that stands for all tools. No tool has this name.
pub(super) const ALL_TOOLS: &str = "*";

/// Writes a number for a purge that is higher than all before, and returns it. The number is the
/// server's time in milliseconds where possible, so that a service that was away can compare it with
/// the times in its ledger.
pub(super) const PURGE_SCRIPT: &str = "\
    local time = redis.call('TIME') \
    local number = time[1] * 1000 + math.floor(time[2] / 1000) \
    for _, other in ipairs(redis.call('HVALS', KEYS[1])) do \
        number = math.max(number, tonumber(other) + 1) \
    end \
    redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', number)) \
    return number";

/// The purges that this service knows.
#[derive(Default)]
pub(super) struct KnownPurges(Mutex<Purges>);

#[derive(Default)]
struct Purges {
    /// The newest number of each tool, and of all.
    numbers: HashMap<String, u64>,
    /// The numbers whose results this service has deleted in its memory and ledger. `None` before the
    /// first reading: what is purged then, was purged before this service started.
    applied: Option<HashMap<String, u64>>,
    /// Purges that Redis does not know yet.
    unsent: BTreeSet<String>,
    /// Purges that this service has sent since a reading began. The answer may be older.
    sent_meanwhile: HashMap<String, u64>,
}

impl KnownPurges {
    /// The number of the newest purge that concerns a tool; 0 without one.
    pub(super) fn newest(&self, tool: &str) -> u64 {
        let purges = self.0.lock();
        let number = |field| purges.numbers.get(field).copied().unwrap_or_default();
        number(ALL_TOOLS).max(number(tool))
    }

    /// Notes that Redis knows a purge of this service.
    pub(super) fn note_sent(&self, field: &str, number: u64) {
        let mut purges = self.0.lock();
        purges.unsent.remove(field);
        purges.numbers.insert(field.to_owned(), number);
        purges.sent_meanwhile.insert(field.to_owned(), number);
    }

    /// Notes a purge that Redis does not know yet.
    pub(super) fn note_unsent(&self, field: &str) {
        self.0.lock().unsent.insert(field.to_owned());
    }

    /// Notes that this service has deleted its own results for a purge.
    pub(super) fn note_applied(&self, field: &str, number: u64) {
        if let Some(applied) = &mut self.0.lock().applied {
            applied.insert(field.to_owned(), number);
        }
    }

    /// The purges that Redis does not know yet.
    pub(super) fn unsent(&self) -> Vec<String> {
        self.0.lock().unsent.iter().cloned().collect()
    }

    /// Notes that the numbers of Redis are being read.
    pub(super) fn begin_reading(&self) {
        self.0.lock().sent_meanwhile.clear();
    }

    /// Replaces the numbers by those of Redis. Returns the fields for which this service must delete
    /// its own results.
    pub(super) fn replace(&self, mut numbers: HashMap<String, u64>) -> Vec<String> {
        let mut purges = self.0.lock();
        for (field, sent) in purges.sent_meanwhile.drain() {
            let number = numbers.entry(field).or_default();
            *number = sent.max(*number);
        }
        let applied = purges.applied.replace(numbers.clone());
        purges.numbers = numbers;
        let Some(applied) = applied else {
            return Vec::new();
        };
        let is_new = |(field, number): &(&String, &u64)| {
            applied.get(*field).is_none_or(|known| known < *number)
        };
        let new = purges.numbers.iter().filter(is_new);
        new.map(|(field, _)| field.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(fields: &[(&str, u64)]) -> HashMap<String, u64> {
        let fields = fields
            .iter()
            .map(|(field, number)| ((*field).to_owned(), *number));
        fields.collect()
    }

    #[test]
    fn purge_during_a_reading_stays_known() {
        let known = KnownPurges::default();
        known.begin_reading();
        known.note_sent("t", 7);
        assert_eq!(known.replace(numbers(&[("t", 5), ("u", 6)])), [""; 0]);
        assert_eq!((known.newest("t"), known.newest("u")), (7, 6));
        // A server that was emptied counts anew.
        known.begin_reading();
        known.replace(numbers(&[]));
        assert_eq!(known.newest("t"), 0);
    }

    #[test]
    fn purges_of_others_are_found_once() {
        let known = KnownPurges::default();
        assert_eq!(known.newest("t"), 0);
        let before_start = numbers(&[("t", 5), (ALL_TOOLS, 3)]);
        assert!(known.replace(before_start.clone()).is_empty());
        assert!(known.replace(before_start).is_empty());
        assert_eq!((known.newest("t"), known.newest("u")), (5, 3));
        known.note_unsent("u");
        assert_eq!(known.unsent(), ["u"]);
        known.note_sent("u", 7);
        assert!(known.unsent().is_empty());
        assert_eq!(known.newest("u"), 7);
        known.note_applied("u", 7);
        let later = numbers(&[("t", 5), ("u", 7), (ALL_TOOLS, 9)]);
        assert_eq!(known.replace(later), [ALL_TOOLS]);
        assert_eq!((known.newest("t"), known.newest("x")), (9, 9));
        // A purge of this service whose own results were not deleted, because its caller left.
        known.note_sent("t", 11);
        let own = numbers(&[("t", 11), ("u", 7), (ALL_TOOLS, 9)]);
        assert_eq!(known.replace(own), ["t"]);
    }
}
