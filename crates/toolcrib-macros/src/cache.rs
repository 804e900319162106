//! Reads the keys `cache_ttl = "5m"` and
//! `cache(ttl = "5m", scope = "shared", context = ["tenant"])`.

use proc_macro2::TokenStream;
use quote::quote;
use std::time::Duration;
use syn::{LitStr, Meta, Result};

use crate::entries::nested_entries;
use crate::values::{
    duration_code, entry_key, entry_value, fail, parse_duration, parse_texts, parse_word,
};

/// The cache settings of a tool.
pub(crate) struct Cache {
    /// The position of errors that concern the whole entry.
    pub(crate) entry: Meta,
    ttl: Duration,
    is_shared: bool,
    context: Option<Vec<LitStr>>,
}

impl Cache {
    /// Reads the short form.
    pub(crate) fn from_ttl(entry: &Meta) -> Result<Self> {
        Ok(Self {
            entry: entry.clone(),
            ttl: parse_duration(entry_value(entry)?)?,
            is_shared: false,
            context: None,
        })
    }

    /// Reads the long form.
    pub(crate) fn from_entry(entry: &Meta) -> Result<Self> {
        let (mut ttl, mut is_shared, mut context) = (None, false, None);
        for part in nested_entries(entry, &["ttl", "scope", "context"])? {
            let value = entry_value(&part)?;
            match entry_key(&part).as_str() {
                "ttl" => ttl = Some(parse_duration(value)?),
                "scope" => {
                    is_shared = parse_word(value, &["caller", "shared"])? == "Shared";
                }
                _ => context = Some(parse_texts(value)?),
            }
        }
        let Some(ttl) = ttl else {
            let message = "`ttl` is missing: how long a result may be served, such as \"5m\"";
            return fail(entry, message);
        };
        Ok(Self {
            entry: entry.clone(),
            ttl,
            is_shared,
            context,
        })
    }

    /// The calls of the builder. A function without the context cannot depend on it. A function
    /// that declares context fields depends on no others.
    pub(crate) fn builder_calls(
        &self,
        takes_context: bool,
        declared: Option<&[LitStr]>,
    ) -> Result<TokenStream> {
        let context = match self
            .context
            .as_deref()
            .or(declared.filter(|_| takes_context))
        {
            Some(context) => context,
            None if takes_context => {
                let message = "results may depend on the caller's context, since this function takes a `ToolContext`: write \
                               `cache(ttl = …, context = […])` with the fields that they depend on, `[]` if there are none";
                return fail(&self.entry, message);
            }
            None => &[],
        };
        let ttl = duration_code(self.ttl);
        let shared = self.is_shared.then(|| quote!(.cache_shared()));
        Ok(quote!(.cache(#ttl, &[#(#context),*]) #shared))
    }
}
