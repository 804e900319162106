//! Splits the keys of the attribute, and the parts inside `key(…)`.

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Meta, Result, Token};

use crate::values::{entry_key, fail};

/// Keys that may occur several times.
const REPEATED: &[&str] = &["limits", "env"];

/// The entries inside `key(…)`.
pub(crate) fn nested_entries(entry: &Meta, known: &[&str]) -> Result<Vec<Meta>> {
    match entry {
        Meta::List(list) => split_entries(list.tokens.clone(), known),
        other => {
            let (key, parts) = (entry_key(other), known.join(" = …, "));
            fail(
                other,
                format!("a list is expected here: `{key}({parts} = …)`"),
            )
        }
    }
}

/// Splits entries. Each key must be known and may occur only once, except those in `REPEATED`.
pub(crate) fn split_entries(tokens: TokenStream, known: &[&str]) -> Result<Vec<Meta>> {
    let entries: Vec<Meta> = Punctuated::<Meta, Token![,]>::parse_terminated
        .parse2(tokens)?
        .into_iter()
        .collect();
    let mut faults: Vec<Error> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let word = entry_key(entry);
        if !known.contains(&word.as_str()) {
            let message = format!("unknown key `{word}`; known: {}", known.join(", "));
            faults.push(Error::new_spanned(entry.path(), message));
        } else if !REPEATED.contains(&word.as_str())
            && entries[..at].iter().any(|other| entry_key(other) == word)
        {
            faults.push(Error::new_spanned(
                entry.path(),
                format!("`{word}` is used twice"),
            ));
        }
    }
    check_faults(faults).map(|()| entries)
}

/// All faults as one error, if there are any.
pub(crate) fn check_faults(faults: Vec<Error>) -> Result<()> {
    let all = faults.into_iter().reduce(|mut all, fault| {
        all.combine(fault);
        all
    });
    all.map_or(Ok(()), Err)
}
