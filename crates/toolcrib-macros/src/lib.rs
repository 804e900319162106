//! The attribute `#[tool]` of the crate `toolcrib`, which exports it as `toolcrib::tool` and
//! documents it.
//!
//! - `function` reads the function.
//! - `options` reads the keys in the attribute's parentheses. It uses `entries` to split them,
//!   `cache` for one key, and `values` for single values.
//! - `expand` writes the code.
//!
//! Each fault is an error at the token that causes it.

mod cache;
mod entries;
mod expand;
mod function;
mod options;
mod values;

use proc_macro::TokenStream;

/// Makes a tool of a function. See the documentation of `toolcrib::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = expand::expand(attribute.into(), item.into());
    expanded
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
