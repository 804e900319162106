//! Reads single values of the attribute: words, durations, numbers, lists of texts.

use std::fmt::Display;
use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, Expr, Lit, LitStr, Meta, Result};

/// The library shortens longer times to this one (`toolcrib::call::units::MAX_DURATION`).
const MAX_TIME: Duration = Duration::from_secs(10 * 366 * 86_400);
/// The longest name of a tool, in characters, as in MCP 2026-07-28.
const MAX_NAME_LENGTH: usize = 128;

/// The error with this message, at these tokens.
pub(crate) fn fail<T>(at: impl ToTokens, message: impl Display) -> Result<T> {
    Err(Error::new_spanned(at, message))
}

/// The value of `key = value`.
pub(crate) fn entry_value(entry: &Meta) -> Result<&Expr> {
    match entry {
        Meta::NameValue(pair) => Ok(&pair.value),
        other => fail(
            other,
            format!("`{}` needs a value: write `{0} = …`", entry_key(other)),
        ),
    }
}

/// The key of an entry, as written.
pub(crate) fn entry_key(entry: &Meta) -> String {
    entry
        .path()
        .get_ident()
        .map(ToString::to_string)
        .unwrap_or_else(|| {
            let path = entry.path();
            quote!(#path).to_string()
        })
}

fn as_literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(literal) => Some(&literal.lit),
        _ => None,
    }
}

/// A literal text.
pub(crate) fn parse_text(value: &Expr) -> Result<&LitStr> {
    match as_literal(value) {
        Some(Lit::Str(text)) => Ok(text),
        _ => fail(value, "a text in quotes is expected here"),
    }
}

/// `true` or `false`.
pub(crate) fn parse_bool(value: &Expr) -> Result<bool> {
    match as_literal(value) {
        Some(Lit::Bool(flag)) => Ok(flag.value),
        _ => fail(value, "`true` or `false` is expected here"),
    }
}

/// A key without a value, or with `= true` or `= false`.
pub(crate) fn parse_flag(entry: &Meta) -> Result<bool> {
    match entry {
        Meta::Path(_) => Ok(true),
        other => parse_bool(entry_value(other)?),
    }
}

/// An integer of at least `least`.
pub(crate) fn parse_integer(value: &Expr, least: u64) -> Result<u64> {
    let number = match as_literal(value) {
        Some(Lit::Int(number)) if number.suffix().is_empty() => number.base10_parse().ok(),
        _ => None,
    };
    match number.filter(|number| *number >= least) {
        Some(number) => Ok(number),
        None => fail(
            value,
            format!("a whole number of at least {least} is expected here"),
        ),
    }
}

/// An integer between `least` and `most`, as an unsuffixed literal.
pub(crate) fn parse_count(value: &Expr, least: u64, most: u64) -> Result<TokenStream> {
    let number = parse_integer(value, least)?;
    if number > most {
        return fail(value, format!("at most {most} is allowed"));
    }
    let number = proc_macro2::Literal::u64_unsuffixed(number);
    Ok(quote!(#number))
}

/// A duration such as `250ms`, in the syntax of the manifest.
pub(crate) fn parse_duration(value: &Expr) -> Result<Duration> {
    let message = "a duration in quotes is expected here: a number with a unit, such as \"250ms\", \"30s\", \"5m\" or \"24h\"";
    let Ok(text) = parse_text(value) else {
        return fail(value, message);
    };
    match humantime::parse_duration(text.value().trim()) {
        Ok(duration) if duration > MAX_TIME => fail(text, "ten years is the longest duration"),
        Ok(duration) => Ok(duration),
        Err(_) => fail(text, message),
    }
}

/// A duration that is not zero.
pub(crate) fn parse_positive_duration(value: &Expr) -> Result<Duration> {
    let duration = parse_duration(value)?;
    if duration.is_zero() {
        return fail(value, "a time of zero lets no call run");
    }
    Ok(duration)
}

/// Code for a duration.
pub(crate) fn duration_code(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanos))
}

/// One of these words, as the name of its variant.
pub(crate) fn parse_word(value: &Expr, words: &[&str]) -> Result<Ident> {
    let expected = |span: Span| {
        let known: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        Error::new(
            span,
            format!("one of {} is expected here", known.join(", ")),
        )
    };
    let text = parse_text(value).map_err(|_| expected(value.span()))?;
    let word = text.value();
    if !words.contains(&word.as_str()) {
        return Err(expected(text.span()));
    }
    let (initial, rest) = word.split_at(1);
    Ok(format_ident!("{}{rest}", initial.to_ascii_uppercase()))
}

/// A list of texts, such as `["a", "b"]`.
pub(crate) fn parse_texts(value: &Expr) -> Result<Vec<LitStr>> {
    match value {
        Expr::Array(list) => list
            .elems
            .iter()
            .map(|item| parse_text(item).cloned())
            .collect(),
        other => fail(
            other,
            "a list of texts is expected here, such as [\"one\", \"two\"]",
        ),
    }
}

/// Whether a tool can have this name.
pub(crate) fn is_tool_name(text: &str) -> bool {
    (1..=MAX_NAME_LENGTH).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && !matches!(text, "." | "..")
}

/// Checks that a context field can have this name.
pub(crate) fn check_field_name(text: &LitStr) -> Result<()> {
    let name = text.value();
    let fits = (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let message = "the name of a context field has 1 to 64 characters of A-Z a-z 0-9 _ - and begins with a letter or _";
    if fits { Ok(()) } else { fail(text, message) }
}

/// Checks that a tool can have this name.
pub(crate) fn check_tool_name(text: &LitStr) -> Result<()> {
    match is_tool_name(&text.value()) {
        true => Ok(()),
        false => fail(text, NAME_RULE),
    }
}

/// The message for an invalid tool name.
pub(crate) const NAME_RULE: &str =
    "a tool name has 1 to 128 characters of A-Z a-z 0-9 _ - . and is not . or ..";
