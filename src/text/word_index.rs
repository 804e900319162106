//! An index of short texts by their words, ranked by BM25.
//!
//! Each word has the list of its texts, with the part of the score that does not depend on the
//! query. So a query adds up a few lists. BM25 alone prefers short texts, so a text also gets points
//! if the query has all words of its name. `benches/find` measures how often the right tool is found.

use std::collections::{BTreeMap, HashMap};

use super::suggest::closest_name;
use crate::call::words;

/// How soon a repeated word stops counting, and how much a long text counts less. Definitions of
/// tools are long because they explain more, so this is less than the usual 0.75.
const K1: f32 = 1.2;
const B: f32 = 0.5;
/// How similar a known word must be to replace an unknown one, and how much it then counts.
const MIN_RATIO: f32 = 0.79;
const MISSPELT_WEIGHT: f32 = 0.5;
/// Most unknown words of a query that are replaced, which bounds the work.
const MAX_MISSPELT: usize = 8;

/// Words that say nothing about a tool. They are left out of texts and queries.
const STOP_WORDS: [&str; 59] = words(
    "a an and are as at be by can could do for from get has have how i if in into is it its like
     me my need not of on or our please should so such that the then there these this to use want
     was we what when where which will with would you your they them",
);

/// The index. Texts have the numbers in which they came.
#[derive(Debug, Default)]
pub(crate) struct WordIndex {
    texts_by_word: BTreeMap<String, Vec<WordUse>>,
    /// The rarity of all words in the name of each text.
    names: Vec<f32>,
}

/// A word in a text.
#[derive(Debug)]
struct WordUse {
    text: usize,
    score: f32,
    /// Its rarity if it is in the name of the text, else 0.
    name_rarity: f32,
}

impl WordIndex {
    /// Indexes texts. Each has parts with weights. Parts that weigh more than 1 are its name.
    pub(crate) fn new<'t>(texts: impl Iterator<Item = Vec<(&'t str, f32)>>) -> Self {
        let (mut lengths, mut all) = (Vec::new(), HashMap::<String, Vec<WordUse>>::new());
        for (text, parts) in texts.enumerate() {
            let mut counts = BTreeMap::<String, (f32, f32)>::new();
            for (part, weight) in parts {
                for word in split_words(part) {
                    let (count, in_name) = counts.entry(word).or_default();
                    *count += weight;
                    if weight > 1.0 {
                        *in_name = 1.0;
                    }
                }
            }
            lengths.push(counts.values().map(|(count, _)| count).sum::<f32>());
            for (word, (score, name_rarity)) in counts {
                all.entry(word).or_default().push(WordUse {
                    text,
                    score,
                    name_rarity,
                });
            }
        }
        let texts = lengths.len();
        let mean = lengths.iter().sum::<f32>() / texts.max(1) as f32;
        let mut names = vec![0.0; texts];
        let mut all: BTreeMap<_, _> = all.into_iter().collect();
        for uses in all.values_mut() {
            let (with, without) = (uses.len() as f32, (texts - uses.len()) as f32);
            let rarity = (1.0 + (without + 0.5) / (with + 0.5)).ln();
            for one in uses {
                let length = lengths.get(one.text).copied().unwrap_or(mean);
                let damping = K1 * (1.0 - B + B * length / mean.max(1.0));
                one.score = rarity * one.score * (K1 + 1.0) / (one.score + damping);
                one.name_rarity *= rarity;
                if let Some(name) = names.get_mut(one.text) {
                    *name += one.name_rarity;
                }
            }
        }
        Self {
            texts_by_word: all,
            names,
        }
    }

    /// The numbers of the texts that have a word of the query, the best first. A word that no text
    /// has stands for the most similar one.
    pub(crate) fn find(&self, query: &str) -> Vec<usize> {
        let mut scores = vec![(0.0_f32, 0.0_f32); self.names.len()];
        let mut query: Vec<String> = split_words(query).collect();
        query.sort_unstable();
        query.dedup();
        let (known, unknown): (Vec<&str>, Vec<&str>) = query
            .iter()
            .map(String::as_str)
            .partition(|word| self.texts_by_word.contains_key(*word));
        let meant = unknown.into_iter().take(MAX_MISSPELT);
        let meant = meant.filter_map(|word| self.similar_word(word));
        let meant: Vec<&str> = meant.filter(|word| !known.contains(word)).collect();
        let words = known.into_iter().map(|word| (word, 1.0));
        for (word, weight) in words.chain(meant.into_iter().map(|word| (word, MISSPELT_WEIGHT))) {
            for one in self.texts_by_word.get(word).into_iter().flatten() {
                if let Some((sum, name)) = scores.get_mut(one.text) {
                    *sum += weight * one.score;
                    *name += weight * one.name_rarity;
                }
            }
        }
        let scores = scores.into_iter().zip(&self.names).enumerate();
        let mut found: Vec<(usize, f32)> = scores
            .map(|(text, ((sum, name), whole))| (text, sum + name * name / whole.max(1.0)))
            .filter(|(_, score)| *score > 0.0)
            .collect();
        found.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        found.into_iter().map(|(text, _)| text).collect()
    }

    /// The known word that a misspelt one probably means. The first letter is rarely wrong.
    fn similar_word(&self, word: &str) -> Option<&str> {
        let first = word.chars().next().filter(|_| word.len() > 2)?;
        let known = self.texts_by_word.range(first.to_string()..);
        let known = known.map(|(known, _)| known.as_str());
        closest_name(
            word,
            known.take_while(|known| known.starts_with(first)),
            MIN_RATIO,
        )
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
        ("ings", ""),
        ("ing", ""),
        ("ed", ""),
        ("es", ""),
        ("s", ""),
    ];
    for (ending, instead) in ENDINGS {
        // `string` and `pass` have no ending.
        let is_word = |stem: &&str| {
            stem.len() >= 3
                && stem.contains(['a', 'e', 'i', 'o', 'u', 'y'])
                && !(ending == "s" && stem.ends_with('s'))
        };
        if let Some(stem) = word.strip_suffix(ending).filter(is_word) {
            word = format!("{stem}{instead}");
            break;
        }
    }
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    // `movie` and `movies`.
    if word.len() > 3 && word.ends_with('i') {
        word.replace_range(word.len() - 1.., "y");
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
            &["settings", "setting"],
            &["strings", "string"],
            &["call", "calls", "called", "calling"],
            &["movie", "movies"],
            &["pass", "passes"],
        ] {
            let stems: Vec<_> = forms.iter().map(|form| words_of(form)).collect();
            assert!(stems.windows(2).all(|two| two[0] == two[1]), "{stems:?}");
        }
    }

    #[test]
    fn whole_name_outweighs_a_short_text() {
        let many =
            "Creates one with a title, a body, labels, a milestone and assignees. ".repeat(20);
        let texts = [
            vec![
                ("reactions_create_for_issue", 3.0),
                ("Create a reaction to an issue.", 1.0),
            ],
            vec![("issues_create", 3.0), (many.as_str(), 1.0)],
            vec![
                ("issues_create_comment", 3.0),
                ("Create a comment on an issue.", 1.0),
            ],
            vec![("repos_list", 3.0), ("Lists.", 1.0)],
        ];
        let index = WordIndex::new(texts.into_iter());
        assert_eq!(index.find("create an issue")[0], 1);
        assert_eq!(index.find("react to an issue with a reaction")[0], 0);
    }

    #[test]
    fn misspelt_word_finds_the_similar_one() {
        let texts = ["create_issue", "list_milestones", "crate_label"];
        let index = WordIndex::new(texts.into_iter().map(|name| vec![(name, 3.0)]));
        assert_eq!(index.find("milestnoe"), [1]);
        assert_eq!(index.find("isue"), [0]);
        assert_eq!(index.find("a crate"), [2], "a known word means itself");
        assert_eq!(index.find("xilestone"), [0; 0], "its first letter is wrong");
        assert_eq!(index.find("me sa \u{1F389}"), [0; 0]);
    }

    #[test]
    fn long_query_is_bounded() {
        let names: Vec<String> = (0..2000).map(|n| format!("word{n}")).collect();
        let texts = names.iter().map(|name| vec![(name.as_str(), 3.0)]);
        let index = WordIndex::new(texts);
        let query: String = (0..2000).map(|n| format!("werd{n} ")).collect();
        assert!(
            index.find(&query).len() <= MAX_MISSPELT,
            "{}",
            index.find(&query).len()
        );
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
