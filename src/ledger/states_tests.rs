//! The page about states has the tables of the code.

use strum::VariantArray;

use super::{ApprovalState, State};

/// The rows of the tables in `docs/dev/states.md`: a state, and the states that may follow.
fn rows_below(heading: &str) -> Vec<(String, Vec<String>)> {
    let page = include_str!("../../docs/dev/states.md");
    let (_, section) = page.split_once(heading).unwrap();
    let rows = section
        .lines()
        .skip_while(|line| !line.starts_with("| ---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let words = |cell: &str| {
            let words = cell
                .split(", ")
                .map(|word| word.trim_matches('`').to_owned());
            words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
        };
        (words(cells[1]).concat(), words(cells[4]))
    })
    .collect()
}

fn names<S: Copy>(next: &[S], name: impl Fn(S) -> &'static str) -> Vec<String> {
    let mut names: Vec<String> = next.iter().map(|state| name(*state).to_owned()).collect();
    names.sort();
    names
}

#[test]
fn page_has_the_transitions_of_the_code() {
    let sorted = |(state, mut next): (String, Vec<String>)| {
        next.sort();
        (state, next)
    };
    let calls = State::VARIANTS.iter().map(|state| {
        (
            state.as_str().to_owned(),
            names(state.next(), State::as_str),
        )
    });
    let page = rows_below("## The state of a call").into_iter().map(sorted);
    assert_eq!(page.collect::<Vec<_>>(), calls.collect::<Vec<_>>());
    let approvals = ApprovalState::VARIANTS.iter().map(|state| {
        let next = names(state.next(), ApprovalState::as_str);
        (state.as_str().to_owned(), next)
    });
    let page = rows_below("## The state of an approval")
        .into_iter()
        .map(sorted);
    assert_eq!(page.collect::<Vec<_>>(), approvals.collect::<Vec<_>>());
}
