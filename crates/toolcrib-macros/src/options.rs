//! Reads the keys in the attribute's parentheses, which are those of the manifest, and converts them to calls of the
//! library's builder.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, LitStr, Meta, Path, Result, Token, parse_quote};

use crate::cache::Cache;
use crate::values::{
    boolean, count, duration, duration_code, field_name, flag, key, number, positive_duration, text, texts, tool_name,
    value, word,
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
    "result_as_answer",
    "paging",
    "tags",
    "aliases",
    "env",
    "context",
    "annotations",
    "crate",
];
/// Keys that may occur several times.
const REPEATED: &[&str] = &["limits", "env"];

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
    pub(crate) fn read(attribute: TokenStream) -> Result<Self> {
        let entries = split(attribute, KEYS)?;
        let root = entries.iter().find(|entry| key(entry) == "crate").map(|entry| path(value(entry)?)).transpose()?;
        let root = root.unwrap_or_else(|| parse_quote!(::toolcrib));
        let mut options = Self { name: None, description: None, root, cache: None, context: None, calls: Vec::new() };
        let mut faults: Option<Error> = None;
        let mut note = |outcome: Result<()>| match (outcome, &mut faults) {
            (Err(error), Some(faults)) => faults.combine(error),
            (Err(error), none) => *none = Some(error),
            (Ok(()), _) => {}
        };
        for entry in &entries {
            note(options.take(entry));
        }
        faults.map_or(Ok(()), Err)?;
        ineffective(&entries)?;
        Ok(options)
    }

    fn take(&mut self, entry: &Meta) -> Result<()> {
        let root = &self.root;
        let call = match key(entry).as_str() {
            "crate" => return Ok(()),
            "name" => {
                let name = text(value(entry)?)?;
                tool_name(name)?;
                self.name = Some(name.clone());
                return Ok(());
            }
            "description" => {
                self.description = Some(description(value(entry)?)?);
                return Ok(());
            }
            "cache" => return self.keep(entry, Cache::read(entry)?),
            "cache_ttl" => return self.keep(entry, Cache::of_ttl(entry)?),
            "effect" => {
                let effect = variant(entry, &[("read", "Read"), ("idempotent", "Idempotent"), ("write", "Write")])?;
                quote!(.effect(#root::Effect::#effect))
            }
            "timeout" => {
                let time = duration_code(positive_duration(value(entry)?)?);
                quote!(.timeout(#time))
            }
            "deadline" => {
                let time = duration_code(positive_duration(value(entry)?)?);
                quote!(.deadline(#time))
            }
            "retry" => {
                let attempts = attempts(entry)?;
                quote!(.attempts(#attempts))
            }
            "limits" => limit(entry, root)?,
            "should_cache" => {
                let function = path(value(entry)?)?;
                quote!(.should_cache(#function))
            }
            "concurrency" => concurrency(entry, root)?,
            "on_disconnect" => {
                let what = variant(entry, &[("cancel", "Cancel"), ("finish", "Finish")])?;
                quote!(.on_disconnect(#root::call::OnDisconnect::#what))
            }
            "idempotency" => {
                let words = [("off", "Off"), ("optional", "Optional"), ("required", "Required")];
                let idempotency = variant(entry, &words)?;
                quote!(.idempotency(#root::Idempotency::#idempotency))
            }
            "capture" => {
                let capture = variant(entry, &[("full", "Full"), ("digest", "Digest")])?;
                quote!(.capture(#root::Capture::#capture))
            }
            word @ ("repeatable" | "strict" | "result_as_answer") => {
                let method = format_ident!("{word}");
                if !flag(entry)? {
                    return Ok(());
                }
                quote!(.#method())
            }
            "paging" => {
                let paging = variant(entry, &[("caller", "Caller"), ("model", "Model")])?;
                quote!(.paging(#root::Paging::#paging))
            }
            "tags" => {
                let tags = texts(value(entry)?)?;
                quote!(#(.tag(#tags))*)
            }
            "aliases" => {
                let aliases = texts(value(entry)?)?;
                aliases.iter().try_for_each(tool_name)?;
                quote!(#(.alias(#aliases))*)
            }
            "env" => variable(entry, root)?,
            "context" => {
                let fields = texts(value(entry)?)?;
                fields.iter().try_for_each(field_name)?;
                let call = quote!(.context(&[#(#fields),*]));
                self.context = Some(Context { entry: entry.clone(), fields });
                call
            }
            _ => annotations(entry, root)?,
        };
        self.calls.push(call);
        Ok(())
    }

    fn keep(&mut self, entry: &Meta, cache: Cache) -> Result<()> {
        if self.cache.replace(cache).is_some() {
            return Err(Error::new_spanned(entry, "`cache` and `cache_ttl` say the same: keep one of them"));
        }
        Ok(())
    }
}

/// The entries inside `key(…)`.
pub(crate) fn entries(entry: &Meta, known: &[&str]) -> Result<Vec<Meta>> {
    match entry {
        Meta::List(list) => split(list.tokens.clone(), known),
        other => {
            let (key, parts) = (key(other), known.join(" = …, "));
            Err(Error::new_spanned(other, format!("more is expected here: `{key}({parts} = …)`")))
        }
    }
}

/// Splits entries. Each key must be known and may occur only once, except those in `REPEATED`.
fn split(tokens: TokenStream, known: &[&str]) -> Result<Vec<Meta>> {
    let entries: Vec<Meta> = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens)?.into_iter().collect();
    let mut faults: Vec<Error> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let word = key(entry);
        if !known.contains(&word.as_str()) {
            let message = format!("unknown key `{word}`; known: {}", known.join(", "));
            faults.push(Error::new_spanned(entry.path(), message));
        } else if !REPEATED.contains(&word.as_str()) && entries[..at].iter().any(|other| key(other) == word) {
            faults.push(Error::new_spanned(entry.path(), format!("`{word}` is there twice")));
        }
    }
    let all = faults.into_iter().reduce(|mut all, fault| {
        all.combine(fault);
        all
    });
    all.map_or(Ok(entries), Err)
}

/// Finds a setting that has no effect with this `effect`. In a manifest this is a warning; a macro can only report
/// errors.
fn ineffective(entries: &[Meta]) -> Result<()> {
    let find = |word: &str| entries.iter().find(|entry| key(entry) == word);
    let effect = find("effect").and_then(|entry| text(value(entry).ok()?).ok()).map(LitStr::value);
    let is_one_of = |effects: &[&str]| effects.contains(&effect.as_deref().unwrap_or("write"));
    if let Some(retry) = find("retry").filter(|_| is_one_of(&["write"])) {
        let message = "has no effect: a tool with effect \"write\", the default, runs once; add effect = \"read\" or \"idempotent\"";
        return Err(Error::new_spanned(retry, message));
    }
    let cache = ["cache", "cache_ttl", "should_cache"].into_iter().find_map(find);
    if let Some(cache) = cache.filter(|_| is_one_of(&["write", "idempotent"])) {
        let message = "has no effect: only results of a tool with effect = \"read\" are cached";
        return Err(Error::new_spanned(cache, message));
    }
    Ok(())
}

fn description(value: &Expr) -> Result<Expr> {
    match value {
        Expr::Macro(_) => Ok(value.clone()),
        other if text(other)?.value().trim().is_empty() => {
            Err(Error::new_spanned(other, "an empty description: a model cannot know when to use this tool"))
        }
        other => Ok(other.clone()),
    }
}

fn path(value: &Expr) -> Result<Path> {
    match value {
        Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
        other => Err(Error::new_spanned(other, "a path is expected here")),
    }
}

fn variant(entry: &Meta, words: &[(&str, &str)]) -> Result<proc_macro2::Ident> {
    Ok(format_ident!("{}", word(value(entry)?, words)?))
}

fn attempts(entry: &Meta) -> Result<TokenStream> {
    let parts = entries(entry, &["attempts"])?;
    let [part] = parts.as_slice() else {
        return Err(Error::new_spanned(entry, "`attempts` is missing: `retry(attempts = 3)` is two retries"));
    };
    count(value(part)?, 1, u32::MAX.into())
}

fn limit(entry: &Meta, root: &Path) -> Result<TokenStream> {
    const SPANS: &[(&str, &str)] = &[
        ("minute", "Minute"),
        ("hour", "Hour"),
        ("day", "Day"),
        ("month", "Month"),
        ("run", "Run"),
        ("lifetime", "Lifetime"),
    ];
    let (mut calls, mut per, mut scope) = (None, None, quote!(::core::default::Default::default()));
    for part in entries(entry, &["calls", "per", "scope"])? {
        match key(&part).as_str() {
            "calls" => calls = Some(number(value(&part)?, 0)?),
            "per" => per = Some(variant(&part, SPANS)?),
            _ => {
                let whose = variant(&part, &[("tool", "Tool"), ("caller", "Caller")])?;
                scope = quote!(#root::LimitScope::#whose);
            }
        }
    }
    match (calls, per) {
        (Some(calls), Some(per)) => {
            Ok(quote!(.limit(#root::Limit { calls: #calls, per: #root::Per::#per, scope: #scope })))
        }
        (None, _) => Err(Error::new_spanned(entry, "`calls` is missing: how many calls there may be")),
        _ => Err(Error::new_spanned(entry, "`per` is missing: the span that calls are counted in, such as \"day\"")),
    }
}

fn concurrency(entry: &Meta, root: &Path) -> Result<TokenStream> {
    // Tokio's own bound, `Semaphore::MAX_PERMITS`, on a 64-bit system.
    let most = u64::MAX >> 3;
    const FIELDS: &[&str] = &["max", "queue", "wait", "per_caller"];
    let mut fields = Vec::new();
    for part in entries(entry, FIELDS)? {
        let value = value(&part)?;
        fields.push(match key(&part).as_str() {
            "max" => {
                let max = count(value, 1, most)?;
                quote!(max: #max)
            }
            "queue" => {
                let queue = count(value, 0, most)?;
                quote!(queue: #queue)
            }
            "wait" => {
                let wait = duration_code(duration(value)?);
                quote!(wait: #wait)
            }
            _ => {
                let most = count(value, 1, most)?;
                quote!(per_caller: ::core::option::Option::Some(#most))
            }
        });
    }
    // Clippy reports `..` if no field remains.
    let rest = (fields.len() < FIELDS.len()).then(|| quote!(..::core::default::Default::default()));
    Ok(quote!(.concurrency(#root::call::Concurrency { #(#fields,)* #rest })))
}

fn variable(entry: &Meta, root: &Path) -> Result<TokenStream> {
    let (mut name, mut description, mut required) = (None, String::new(), true);
    let mut default = quote!(::core::option::Option::None);
    for part in entries(entry, &["name", "description", "required", "default"])? {
        let value = value(&part)?;
        match key(&part).as_str() {
            "name" => name = Some(text(value)?.clone()),
            "description" => description = text(value)?.value(),
            "required" => required = boolean(value)?,
            _ => {
                let text = text(value)?;
                default = quote!(::core::option::Option::Some(::core::convert::From::from(#text)));
            }
        }
    }
    let name = name.filter(|name| !name.value().is_empty());
    let name = name.ok_or_else(|| Error::new_spanned(entry, "`name` is missing: which variable the tool reads"))?;
    Ok(quote! {
        .env_var(#root::call::EnvVar {
            name: ::core::convert::From::from(#name),
            description: ::core::convert::From::from(#description),
            required: #required,
            default: #default,
        })
    })
}

fn annotations(entry: &Meta, root: &Path) -> Result<TokenStream> {
    let Meta::List(list) = entry else {
        return Err(Error::new_spanned(entry, "write `annotations(title = \"…\", openWorldHint = true)`"));
    };
    let pairs: Punctuated<Meta, Token![,]> = list.parse_args_with(Punctuated::parse_terminated)?;
    let mut calls = TokenStream::new();
    for pair in &pairs {
        let (name, value) = (key(pair), value(pair)?);
        // These are the types of MCP's annotations.
        if name == "title" {
            text(value)?;
        } else if name.ends_with("Hint") {
            boolean(value)?;
        } else if !matches!(value, Expr::Lit(_)) {
            return Err(Error::new_spanned(value, "a text, a number, `true` or `false` is expected here"));
        }
        calls.extend(quote!(.annotation(#name, #root::__private::json(#value))));
    }
    Ok(calls)
}
