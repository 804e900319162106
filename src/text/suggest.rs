//! Finds the name that was probably meant.
//!
//! Callers choose the names that are compared, so the work for one name is bounded. Names have a
//! maximum length, few candidates are compared in full, and a cheap bound from lengths and letters
//! avoids most comparisons.

/// Minimum ratio for `did_you_mean` and for calls by a similar name (the rule of the first seed).
pub const MIN_MEANT_RATIO: f32 = 0.85;
/// Minimum ratio for a hint in a message, where a wrong suggestion does no harm.
pub const MIN_HINT_RATIO: f32 = 0.55;
/// Maximum length of names that are compared, in bytes, because the work grows with the third power
/// of the length. A tool's name may have up to 128 characters; names above this bound are never
/// suggested.
const MAX_NAME_LEN: usize = 96;
/// Maximum number of candidates that [`closest_name`] compares in full.
const MAX_COMPARED: usize = 100;

/// The similarity of two names, from 0 to 1: the ratio of Python's `difflib.SequenceMatcher` on
/// lower case. `None` if it is not above `min_ratio`.
pub fn ratio_above(a: &str, b: &str, min_ratio: f32) -> Option<f32> {
    Letters::from_name(a)?.ratio_above(&Letters::from_name(b)?, min_ratio)
}

/// The most similar candidate, if it is similar enough.
pub fn closest_name<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    min_ratio: f32,
) -> Option<&'a str> {
    let name = Letters::from_name(name)?;
    let near = candidates.into_iter().filter_map(|candidate| {
        let letters = Letters::from_name(candidate)?;
        (name.ratio_bound(&letters) > min_ratio).then_some((letters, candidate))
    });
    let rated = near.take(MAX_COMPARED).filter_map(|(letters, candidate)| {
        Some((name.ratio_above(&letters, min_ratio)?, candidate))
    });
    rated
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The most similar candidate, for a hint in a message.
pub fn near_name<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest_name(name, candidates, MIN_HINT_RATIO)
}

/// A name in lower case, with the number of each letter.
struct Letters {
    letters: Vec<char>,
    /// Indexed by the lowest six bits of the letter. Letters with the same index only make names
    /// appear more similar.
    counts: [u8; 64],
}

impl Letters {
    /// `None` for a name that is too long to be compared.
    fn from_name(name: &str) -> Option<Self> {
        if name.len() > MAX_NAME_LEN {
            return None;
        }
        let letters: Vec<char> = name.chars().flat_map(char::to_lowercase).collect();
        let mut counts = [0_u8; 64];
        for &letter in &letters {
            let count = &mut counts[letter as usize % 64];
            *count = count.saturating_add(1);
        }
        Some(Self { letters, counts })
    }

    /// The upper bound of the ratio, from the letters alone (`quick_ratio` of Python's difflib).
    fn ratio_bound(&self, other: &Self) -> f32 {
        let shared = self
            .counts
            .iter()
            .zip(&other.counts)
            .map(|(a, b)| usize::from(*a.min(b)))
            .sum();
        self.ratio_for(other, shared)
    }

    fn ratio_above(&self, other: &Self, min_ratio: f32) -> Option<f32> {
        if self.ratio_bound(other) <= min_ratio {
            return None;
        }
        Some(self.ratio_for(other, count_matching(&self.letters, &other.letters)))
            .filter(|ratio| *ratio > min_ratio)
    }

    fn ratio_for(&self, other: &Self, shared: usize) -> f32 {
        let all = self.letters.len() + other.letters.len();
        if all == 0 {
            1.0
        } else {
            2.0 * shared as f32 / all as f32
        }
    }
}

/// The number of letters in matching blocks: the longest common block, then recursively to its left
/// and right (Ratcliff and Obershelp). Of equally long blocks, the first in `a` counts, then the
/// first in `b`, as in Python.
fn count_matching(a: &[char], b: &[char]) -> usize {
    let mut matched = 0;
    let mut pairs = vec![(a, b)];
    while let Some((a, b)) = pairs.pop() {
        let (at_a, at_b, length) = longest_common_block(a, b);
        if length > 0 {
            matched += length;
            pairs.push((&a[..at_a], &b[..at_b]));
            pairs.push((&a[at_a + length..], &b[at_b + length..]));
        }
    }
    matched
}

/// The start of the longest common block in both, and its length.
fn longest_common_block(a: &[char], b: &[char]) -> (usize, usize, usize) {
    let mut best = (0, 0, 0);
    // Lengths of the blocks that end at the previous letter of `a`, for each letter of `b`, shifted
    // by one index.
    let (mut above, mut here) = (vec![0; b.len() + 1], vec![0; b.len() + 1]);
    for (i, of_a) in a.iter().enumerate() {
        for (j, of_b) in b.iter().enumerate() {
            let length = if of_a == of_b { above[j] + 1 } else { 0 };
            here[j + 1] = length;
            if length > best.2 {
                best = (i + 1 - length, j + 1 - length, length);
            }
        }
        std::mem::swap(&mut above, &mut here);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(a: &str, b: &str) -> f32 {
        ratio_above(a, b, -1.0).unwrap()
    }

    #[test]
    fn closest_name_must_be_similar_enough() {
        let names = ["get_weather", "get_water", "delete_rows"];
        assert_eq!(
            closest_name("get_wether", names, MIN_MEANT_RATIO),
            Some("get_weather")
        );
        assert_eq!(
            closest_name("Get_Wether", names, MIN_MEANT_RATIO),
            Some("get_weather")
        );
        assert_eq!(closest_name("frobnicate", names, MIN_HINT_RATIO), None);
        assert_eq!(
            ratio_above("get_weather", "get_weather_forecast", MIN_MEANT_RATIO),
            None
        );
        assert_eq!(closest_name(&"x".repeat(100_000), names, 0.0), None);
    }

    /// The expected values are the results of Python 3.13.
    #[test]
    fn ratios_match_python_difflib() {
        for (a, b, expected) in [
            ("get_wether", "get_weather", 0.952_381),
            ("a", "aaaa", 0.4),
            ("", "", 1.0),
            ("", "a", 0.0),
            ("éé", "éa", 0.5),
            ("same", "SAME", 1.0),
            ("abcd", "bcde", 0.75),
            ("tide", "diet", 0.25),
            ("diet", "tide", 0.5),
            ("list_files", "file_list", 0.421_053),
            ("private_thread", "private_volatile", 0.666_667),
            ("aabbaabb", "abababab", 0.75),
        ] {
            assert!(
                (ratio(a, b) - expected).abs() < 1e-5,
                "{a} {b} {}",
                ratio(a, b)
            );
            let (a, b) = (
                Letters::from_name(a).unwrap(),
                Letters::from_name(b).unwrap(),
            );
            assert!(a.ratio_bound(&b) >= expected - 1e-5);
        }
    }

    #[test]
    fn no_ratio_exceeds_its_bound() {
        proptest::proptest!(|(a in "[a-eéß_]{0,24}", b in "[a-eéß_]{0,24}")| {
            let bound = Letters::from_name(&a).unwrap().ratio_bound(&Letters::from_name(&b).unwrap());
            proptest::prop_assert!(ratio(&a, &b) <= bound);
        });
    }

    /// A generous bound on time: these names once took half a second each.
    #[test]
    fn similar_names_are_compared_quickly() {
        let began = std::time::Instant::now();
        let (a, b) = ("a".repeat(MAX_NAME_LEN), "ab".repeat(MAX_NAME_LEN / 2));
        for _ in 0..4 {
            closest_name(&a, std::iter::repeat_n(b.as_str(), 10_000), MIN_HINT_RATIO);
        }
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }
}
