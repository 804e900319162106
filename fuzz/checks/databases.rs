//! What a hostile PostgreSQL or Redis answers, as far as it is read here: values of tools, stored
//! results, and notifications of replicas.

use toolcrib::cache::fuzzing as redis;
use toolcrib::kinds::sql::fuzzing::decode;
use toolcrib::ledger::fuzzing::{format_answered, parse_answered};

/// The numbers of the types that are decoded here.
const TYPES: [u32; 32] = [
    16, 17, 18, 19, 20, 21, 23, 25, 26, 114, 142, 650, 700, 701, 705, 869, 1042, 1043, 1082, 1083,
    1114, 1184, 1186, 1266, 1700, 2278, 2950, 3802, 0, 1, 600, 4294967295,
];
/// A numeric of eight bytes may have this many digits.
const LONGEST_NUMBER: usize = 200_000;

pub(crate) fn check(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind {
        0..64 => {
            let number = TYPES[usize::from(kind % 32)];
            let is_array = *kind >= 32;
            if let Some(value) = decode(number, is_array, bytes) {
                let longest = match is_array {
                    true => (bytes.len() / 12 + 1) * LONGEST_NUMBER,
                    false => LONGEST_NUMBER + 8 * bytes.len(),
                };
                assert!(value.to_string().len() <= longest);
            }
        }
        64..128 => {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return;
            };
            let now = "2026-06-15T12:00:30Z".parse().unwrap();
            if let Some(stored) = redis::decode(text, "t", now) {
                assert!(stored.tool == "t" && stored.expires_at > now);
                let written = redis::encode(&stored).expect("a result is JSON");
                assert_eq!(redis::decode(&written, "t", now), Some(stored));
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return;
            };
            if let Some(calls) = parse_answered(text) {
                assert_eq!(parse_answered(&format_answered(&calls)), Some(calls));
            }
        }
    }
}
