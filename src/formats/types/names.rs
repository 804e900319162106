//! Names of types. Each is an identifier in every language, and stands for one type.

use std::collections::{HashMap, HashSet};

/// The names that are taken.
#[derive(Default)]
pub(super) struct Names {
    taken: HashSet<String>,
    /// The next number to try for each name, because many types may have the same one.
    next: HashMap<String, usize>,
}

impl Names {
    /// The name, with a number if it is taken.
    pub(super) fn claim(&mut self, name: &str) -> String {
        let next = self.next.entry(name.to_owned()).or_insert(1);
        loop {
            let numbered = match *next {
                1 => name.to_owned(),
                number => format!("{name}{number}"),
            };
            *next += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// The words of a text as one identifier: `get_weather` is `GetWeather`.
pub(super) fn pascal_case(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let joined: String = words
        .filter_map(|word| Some((word.get(..1)?, word.get(1..)?)))
        .map(|(first, rest)| first.to_ascii_uppercase() + rest)
        .collect();
    match joined.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("N{joined}"),
        false => joined,
    }
}
