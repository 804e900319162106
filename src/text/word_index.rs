//! An index of short texts by their words, ranked by BM25.
//!
//! Each word has the list of its texts, with the part of the score that does not depend on the
//! query. So a query adds up a few lists. `benches/find` measures how often it finds the right tool.

use std::collections::{BTreeMap, HashMap};

use crate::call::words;

/// How soon a repeated word stops counting, and how much a long text counts less: the usual values.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Words that say nothing about a tool. They are left out of texts and queries.
const STOP_WORDS: [&str; 59] = words(
    "a an and are as at be by can could do for from get has have how i if in into is it its like
     me my need not of on or our please should so such that the then there these this to use want
     was we what when where which will with would you your they them",
);

/// The index. Texts have the numbers in which they came.
#[derive(Debug, Default)]
pub(crate) struct WordIndex {
    texts_by_word: HashMap<String, Vec<(u32, f32)>>,
    texts: usize,
}

impl WordIndex {
    /// Indexes texts. Each has parts with weights.
    pub(crate) fn new<'t>(texts: impl Iterator<Item = Vec<(&'t str, f32)>>) -> Self {
        let (mut lengths, mut all) = (Vec::new(), HashMap::<String, Vec<(u32, f32)>>::new());
        for (number, parts) in (0..).zip(texts) {
            let mut counts = BTreeMap::<String, f32>::new();
            for (text, weight) in parts {
                for word in split_words(text) {
                    *counts.entry(word).or_default() += weight;
                }
            }
            lengths.push(counts.values().sum::<f32>());
            for (word, count) in counts {
                all.entry(word).or_default().push((number, count));
            }
        }
        let texts = lengths.len();
        let mean = lengths.iter().sum::<f32>() / texts.max(1) as f32;
        for found in all.values_mut() {
            let (with, without) = (found.len() as f32, (texts - found.len()) as f32);
            let rarity = (1.0 + (without + 0.5) / (with + 0.5)).ln();
            for (number, score) in found {
                let length = lengths.get(*number as usize).copied().unwrap_or(mean);
                let damping = K1 * (1.0 - B + B * length / mean.max(1.0));
                *score = rarity * *score * (K1 + 1.0) / (*score + damping);
            }
        }
        Self {
            texts_by_word: all,
            texts,
        }
    }

    /// The numbers of the texts that have a word of the query, the best first.
    pub(crate) fn find(&self, query: &str) -> Vec<usize> {
        let mut scores = vec![0.0_f32; self.texts];
        let mut query: Vec<String> = split_words(query).collect();
        query.sort_unstable();
        query.dedup();
        for (number, score) in query
            .iter()
            .filter_map(|word| self.texts_by_word.get(word))
            .flatten()
        {
            if let Some(sum) = scores.get_mut(*number as usize) {
                *sum += score;
            }
        }
        let mut found: Vec<(usize, f32)> = scores
            .into_iter()
            .enumerate()
            .filter(|(_, score)| *score > 0.0)
            .collect();
        found.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        found.into_iter().map(|(number, _)| number).collect()
    }
}

/// The words of a text, without endings: `listOpenIssues` has `list`, `open` and `issu`, which
/// `issue` has, too.
fn split_words(text: &str) -> impl Iterator<Item = String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    let mut last = ' ';
    while let Some(c) = chars.next() {
        let next_is_lower = chars.peek().is_some_and(|next| next.is_lowercase());
        let is_start = c.is_uppercase() && (!last.is_uppercase() || next_is_lower)
            // Scripts without spaces between words.
            || is_ideograph(c)
            || is_ideograph(last);
        if (is_start || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        last = c;
    }
    words.push(word);
    words
        .into_iter()
        .filter(|word| !word.is_empty() && !STOP_WORDS.contains(&word.as_str()))
        .map(without_ending)
}

fn is_ideograph(c: char) -> bool {
    ('\u{2e80}'..'\u{ac00}').contains(&c)
}

/// The word without the endings of English. Two forms of a word usually become equal.
fn without_ending(mut word: String) -> String {
    const ENDINGS: [(&str, &str); 7] = [
        ("ies", "y"),
        ("sses", "ss"),
        ("ing", ""),
        ("ed", ""),
        ("es", ""),
        ("ss", "ss"),
        ("s", ""),
    ];
    for (ending, instead) in ENDINGS {
        if let Some(stem) = word.strip_suffix(ending).filter(|stem| stem.len() >= 3) {
            word = format!("{stem}{instead}");
            break;
        }
    }
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Vec<String> {
        split_words(text).collect()
    }

    #[test]
    fn words_are_split_at_marks_and_case() {
        assert_eq!(words_of("issues/list-for_repo"), ["issu", "list", "repo"]);
        assert_eq!(words_of("getHTTPStatus2"), ["http", "status2"]);
        assert_eq!(words_of("Größe 天气"), ["größ", "天", "气"]);
        assert_eq!(words_of(" — the of "), [""; 0]);
    }

    #[test]
    fn forms_of_a_word_are_equal() {
        for forms in [
            &["create", "creates", "created", "creating"][..],
            &["repository", "repositories"],
            &["address", "addresses"],
            &["issue", "Issues"],
        ] {
            let stems: Vec<_> = forms.iter().map(|form| words_of(form)).collect();
            assert!(stems.windows(2).all(|two| two[0] == two[1]), "{stems:?}");
        }
    }

    #[test]
    fn rare_and_heavy_words_decide() {
        let texts = [
            vec![("send_mail", 3.0), ("Sends a message to a person.", 1.0)],
            vec![("list_rooms", 3.0), ("Lists the rooms of a house.", 1.0)],
            vec![("send_fax", 3.0), ("Sends a page. Not by mail.", 1.0)],
            vec![("empty", 1.0)],
        ];
        let index = WordIndex::new(texts.into_iter());
        assert_eq!(index.find("Please send a mail"), [0, 2]);
        assert_eq!(index.find("FAX"), [2]);
        assert_eq!(index.find("room room house"), [1]);
        assert_eq!(index.find("the unknown"), [0; 0]);
        assert_eq!(WordIndex::default().find("mail"), [0; 0]);
    }
}
