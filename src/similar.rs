//! Finding the name that was probably meant.

use difflib::sequencematcher::SequenceMatcher;

/// Least ratio for `did_you_mean` and similar dispatch (the first seed's rule).
pub const MEANT: f32 = 0.85;
/// Least ratio for a hint in a message, where being wrong costs nothing.
pub const HINT: f32 = 0.55;
/// Longer names are not compared: the matcher's cost grows with the square of the length.
const MAX_LEN: usize = 128;

/// How alike two names are, from 0 to 1: the ratio of Python's `difflib.SequenceMatcher`, on lower case.
pub fn ratio(a: &str, b: &str) -> f32 {
    if a.len() > MAX_LEN || b.len() > MAX_LEN {
        return 0.0;
    }
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    SequenceMatcher::new(&a, &b).ratio()
}

/// What the ratio cannot exceed, by the lengths alone (`real_quick_ratio` of Python's difflib): spares most comparisons.
pub fn at_most(a: &str, b: &str) -> f32 {
    let (a, b) = (a.chars().count(), b.chars().count());
    if a + b == 0 { 1.0 } else { 2.0 * a.min(b) as f32 / (a + b) as f32 }
}

/// The most alike of the candidates, if it is alike enough.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>, least: f32) -> Option<&'a str> {
    let rated = candidates.into_iter().map(|candidate| (ratio(name, candidate), candidate));
    rated.filter(|(ratio, _)| *ratio > least).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_wins_and_a_far_one_does_not() {
        let names = ["get_weather", "get_water", "delete_rows"];
        assert_eq!(closest("get_wether", names, MEANT), Some("get_weather"));
        assert_eq!(closest("frobnicate", names, HINT), None);
        for (a, b) in
            [("get_wether", "get_weather"), ("a", "aaaa"), ("", ""), ("", "a"), ("éé", "éa"), ("same", "same")]
        {
            assert!(ratio(a, b) <= at_most(a, b), "{a} {b}");
        }
        assert!(at_most("get_weather", "get_weather_forecast") < MEANT);
        assert_eq!(closest(&"x".repeat(100_000), names, 0.0), None);
    }
}
