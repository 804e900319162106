//! Writes tool definitions in the formats of model APIs, ready to paste into a request.
//!
//! A format follows the types of the provider's own SDK (`tests/clients/test_formats.py` compares
//! them). Schemas use basic keywords of JSON Schema 2020-12 (`schema::to_standalone`), and names
//! follow the provider's rules (`names`). Problems that no format can solve are reported by
//! `toolcrib check`, from the same table (`crate::formats::providers`).

pub(crate) mod brief;
mod format;
pub(crate) mod mcp;
pub mod providers;
mod shape;
pub mod tokens;
pub(crate) mod toolbox;
pub mod types;

use serde_json::Value;

pub use self::format::Format;
pub use self::format::ListedTool;
pub use self::format::NameRules;
use crate::call::Definition;

/// The available tools in the format of an API. Their names lead back to the tools. The native
/// format has only the definition here; the code that knows the state of tools adds it.
pub fn render<'a>(
    format: Format,
    offers: impl IntoIterator<Item = ListedTool<'a>>,
    names: NameRules<'_>,
) -> Value {
    let usable = offers.into_iter().filter(|offer| offer.available);
    let shown = usable.map(|offer| {
        let Definition { name, aliases, .. } = offer.definition;
        let name = match format.provider() {
            Some(provider) => names.name_for(provider, name, aliases),
            None => name.as_str().into(),
        };
        shape::render_tool(format, &name, &offer)
    });
    shape::render_list(format, shown.collect())
}

#[cfg(test)]
mod tests;
