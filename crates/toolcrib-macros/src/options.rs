//! Reads the keys in the attribute's parentheses, which are those of the manifest, and converts
//! them to calls of the library's builder.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::punctuated::Punctuated;
use syn::{Expr, LitStr, Meta, Path, Result, Token, parse_quote};

use crate::cache::Cache;
use crate::entries::{check_faults, nested_entries, split_entries};
use crate::values::{
    check_field_name, check_tool_name, duration_code, entry_key, entry_value, fail, parse_bool,
    parse_count, parse_duration, parse_flag, parse_integer, parse_positive_duration, parse_text,
    parse_texts, parse_word,
};

/// Every key.
const KEYS: &[&str] = &[
    "name",
    "description",
    "effect",
    "timeout",
    "deadline",
    "retry",
    "limits",
    "cache_ttl",
    "cache",
    "should_cache",
    "concurrency",
    "on_disconnect",
    "idempotency",
    "capture",
    "repeatable",
    "strict",
    "output_check",
    "result_as_answer",
    "paging",
    "tags",
    "aliases",
    "env",
    "context",
    "annotations",
    "crate",
];

/// The keys whose value is a word, each with its type in the library and the words. A word is the name
/// of a variant in lower case.
const WORD_KEYS: &[(&str, &str, &[&str])] = &[
    ("effect", "Effect", &["read", "idempotent", "write"]),
    ("on_disconnect", "OnDisconnect", &["cancel", "finish"]),
    (
        "idempotency",
        "Idempotency",
        &["off", "optional", "required"],
    ),
    ("output_check", "OutputCheckMode", &["warn", "fail", "off"]),
    ("capture", "Capture", &["full", "digest"]),
    ("paging", "Paging", &["caller", "model"]),
];

/// The context fields that the tool declares.
pub(crate) struct Context {
    /// The position of errors that concern the whole entry.
    pub(crate) entry: Meta,
    /// Their names.
    pub(crate) fields: Vec<LitStr>,
}

/// The attribute after reading.
pub(crate) struct Options {
    /// `name = "…"`.
    pub(crate) name: Option<LitStr>,
    /// `description = "…"`, or a macro that expands to a text.
    pub(crate) description: Option<Expr>,
    /// The path of the library.
    pub(crate) root: Path,
    /// `cache(…)` or `cache_ttl = …`.
    pub(crate) cache: Option<Cache>,
    /// `context = ["tenant"]`.
    pub(crate) context: Option<Context>,
    /// Calls of the builder, in the order of the entries.
    pub(crate) calls: Vec<TokenStream>,
}

impl Options {
    /// Reads the attribute.
    ///
    /// # Errors
    /// All faults at once.
    pub(crate) fn parse(attribute: TokenStream) -> Result<Self> {
        let entries = split_entries(attribute, KEYS)?;
        let root = entries
            .iter()
            .find(|entry| entry_key(entry) == "crate")
            .map(|entry| parse_path(entry_value(entry)?))
            .transpose()?;
        let root = root.unwrap_or_else(|| parse_quote!(::toolcrib));
        let mut options = Self {
            name: None,
            description: None,
            root,
            cache: None,
            context: None,
            calls: Vec::new(),
        };
        let faults = entries.iter().map(|entry| options.read_entry(entry));
        check_faults(faults.filter_map(Result::err).collect())?;
        check_effects(&entries)?;
        Ok(options)
    }

    fn read_entry(&mut self, entry: &Meta) -> Result<()> {
        let root = &self.root;
        let key = entry_key(entry);
        let call = match key.as_str() {
            "crate" => return Ok(()),
            "name" => {
                let name = parse_text(entry_value(entry)?)?;
                check_tool_name(name)?;
                self.name = Some(name.clone());
                return Ok(());
            }
            "description" => {
                self.description = Some(check_description(entry_value(entry)?)?);
                return Ok(());
            }
            "cache" => return self.set_cache(entry, Cache::from_entry(entry)?),
            "cache_ttl" => return self.set_cache(entry, Cache::from_ttl(entry)?),
            word @ ("timeout" | "deadline") => {
                let method = format_ident!("{word}");
                let time = duration_code(parse_positive_duration(entry_value(entry)?)?);
                quote!(.#method(#time))
            }
            "retry" => {
                let attempts = parse_attempts(entry)?;
                quote!(.attempts(#attempts))
            }
            "limits" => limit_call(entry, root)?,
            "should_cache" => {
                let function = parse_path(entry_value(entry)?)?;
                quote!(.should_cache(#function))
            }
            "concurrency" => concurrency_call(entry, root)?,
            word @ ("repeatable" | "strict" | "result_as_answer") => {
                let method = format_ident!("{word}");
                if !parse_flag(entry)? {
                    return Ok(());
                }
                quote!(.#method())
            }
            "tags" => {
                let tags = parse_texts(entry_value(entry)?)?;
                quote!(#(.tag(#tags))*)
            }
            "aliases" => {
                let aliases = parse_texts(entry_value(entry)?)?;
                aliases.iter().try_for_each(check_tool_name)?;
                quote!(#(.alias(#aliases))*)
            }
            "env" => env_call(entry, root)?,
            "context" => {
                let fields = parse_texts(entry_value(entry)?)?;
                fields.iter().try_for_each(check_field_name)?;
                let call = quote!(.context(&[#(#fields),*]));
                self.context = Some(Context {
                    entry: entry.clone(),
                    fields,
                });
                call
            }
            word => match WORD_KEYS.iter().find(|(known, ..)| *known == word) {
                Some((_, of, words)) => {
                    let (method, of) = (format_ident!("{word}"), format_ident!("{of}"));
                    let variant = parse_word(entry_value(entry)?, words)?;
                    quote!(.#method(#root::call::#of::#variant))
                }
                None => annotation_calls(entry, root)?,
            },
        };
        self.calls.push(call);
        Ok(())
    }

    fn set_cache(&mut self, entry: &Meta, cache: Cache) -> Result<()> {
        if self.cache.replace(cache).is_some() {
            return fail(
                entry,
                "`cache` and `cache_ttl` say the same: keep one of them",
            );
        }
        Ok(())
    }
}

/// Finds a setting that has no effect with this `effect`. In a manifest this is a warning; a macro
/// can only report errors.
fn check_effects(entries: &[Meta]) -> Result<()> {
    let find = |word: &str| entries.iter().find(|entry| entry_key(entry) == word);
    let effect = find("effect")
        .and_then(|entry| parse_text(entry_value(entry).ok()?).ok())
        .map(LitStr::value);
    let is_one_of = |effects: &[&str]| effects.contains(&effect.as_deref().unwrap_or("write"));
    if let Some(retry) = find("retry").filter(|_| is_one_of(&["write"])) {
        let message = "has no effect: a tool with effect \"write\", the default, runs once; add effect = \"read\" or \"idempotent\"";
        return fail(retry, message);
    }
    let cache = ["cache", "cache_ttl", "should_cache"]
        .into_iter()
        .find_map(find);
    if let Some(cache) = cache.filter(|_| is_one_of(&["write", "idempotent"])) {
        let message = "has no effect: only results of a tool with effect = \"read\" are cached";
        return fail(cache, message);
    }
    Ok(())
}

fn check_description(value: &Expr) -> Result<Expr> {
    match value {
        Expr::Macro(_) => Ok(value.clone()),
        other if parse_text(other)?.value().trim().is_empty() => fail(
            other,
            "an empty description: a model cannot know when to use this tool",
        ),
        other => Ok(other.clone()),
    }
}

fn parse_path(value: &Expr) -> Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        other => fail(other, "a path is expected here"),
    }
}

fn parse_attempts(entry: &Meta) -> Result<TokenStream> {
    let parts = nested_entries(entry, &["attempts"])?;
    let [part] = parts.as_slice() else {
        return fail(
            entry,
            "`attempts` is missing: `retry(attempts = 3)` is two retries",
        );
    };
    parse_count(entry_value(part)?, 1, u32::MAX.into())
}

fn limit_call(entry: &Meta, root: &Path) -> Result<TokenStream> {
    const SPANS: &[&str] = &["minute", "hour", "day", "month", "run", "lifetime"];
    let (mut calls, mut per, mut scope) = (None, None, quote!(::core::default::Default::default()));
    for part in nested_entries(entry, &["calls", "per", "scope"])? {
        match entry_key(&part).as_str() {
            "calls" => calls = Some(parse_integer(entry_value(&part)?, 0)?),
            "per" => per = Some(parse_word(entry_value(&part)?, SPANS)?),
            _ => {
                let variant = parse_word(entry_value(&part)?, &["tool", "caller"])?;
                scope = quote!(#root::LimitScope::#variant);
            }
        }
    }
    match (calls, per) {
        (Some(calls), Some(per)) => {
            Ok(quote!(.limit(#root::Limit { calls: #calls, per: #root::Per::#per, scope: #scope })))
        }
        (None, _) => fail(entry, "`calls` is missing: the maximum number of calls"),
        _ => fail(
            entry,
            "`per` is missing: the window of the limit, such as \"day\"",
        ),
    }
}

fn concurrency_call(entry: &Meta, root: &Path) -> Result<TokenStream> {
    // Tokio's own bound, `Semaphore::MAX_PERMITS`, on a 64-bit system.
    let most = u64::MAX >> 3;
    const FIELDS: &[&str] = &["max", "queue", "wait", "per_caller"];
    let mut fields = Vec::new();
    for part in nested_entries(entry, FIELDS)? {
        let value = entry_value(&part)?;
        let key = entry_key(&part);
        let code = match key.as_str() {
            "max" => parse_count(value, 1, most)?,
            "queue" => parse_count(value, 0, most)?,
            "wait" => duration_code(parse_duration(value)?),
            _ => {
                let most = parse_count(value, 1, most)?;
                quote!(::core::option::Option::Some(#most))
            }
        };
        let field = format_ident!("{key}");
        fields.push(quote!(#field: #code));
    }
    // Clippy reports `..` if no field remains.
    let rest = (fields.len() < FIELDS.len()).then(|| quote!(..::core::default::Default::default()));
    Ok(quote!(.concurrency(#root::call::Concurrency { #(#fields,)* #rest })))
}

fn env_call(entry: &Meta, root: &Path) -> Result<TokenStream> {
    let (mut name, mut description, mut required) = (None, String::new(), true);
    let mut default = quote!(::core::option::Option::None);
    for part in nested_entries(entry, &["name", "description", "required", "default"])? {
        let value = entry_value(&part)?;
        match entry_key(&part).as_str() {
            "name" => name = Some(parse_text(value)?.clone()),
            "description" => description = parse_text(value)?.value(),
            "required" => required = parse_bool(value)?,
            _ => {
                let text = parse_text(value)?;
                default = quote!(::core::option::Option::Some(::core::convert::From::from(#text)));
            }
        }
    }
    let Some(name) = name.filter(|name| !name.value().is_empty()) else {
        return fail(entry, "`name` is missing: the variable that the tool reads");
    };
    Ok(quote! {
        .env_var(#root::call::EnvVar {
            name: ::core::convert::From::from(#name),
            description: ::core::convert::From::from(#description),
            required: #required,
            default: #default,
        })
    })
}

fn annotation_calls(entry: &Meta, root: &Path) -> Result<TokenStream> {
    let Meta::List(list) = entry else {
        return fail(
            entry,
            "write `annotations(title = \"…\", openWorldHint = true)`",
        );
    };
    let pairs: Punctuated<Meta, Token![,]> = list.parse_args_with(Punctuated::parse_terminated)?;
    let mut calls = TokenStream::new();
    for pair in &pairs {
        let (name, value) = (entry_key(pair), entry_value(pair)?);
        // These are the types of MCP's annotations.
        if name == "title" {
            parse_text(value)?;
        } else if name.ends_with("Hint") {
            parse_bool(value)?;
        } else if !matches!(value, Expr::Lit(_)) {
            return fail(
                value,
                "a text, a number, `true` or `false` is expected here",
            );
        }
        calls.extend(quote!(.annotation(#name, #root::__private::json(#value))));
    }
    Ok(calls)
}
