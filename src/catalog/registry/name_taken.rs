//! Names that a registered tool cannot have, because another tool has them.

use crate::call::Origin;
use crate::catalog::{Catalog, Entry};

/// A name that a registered tool cannot have, and the tool that has it.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` {holder}")]
pub struct NameTaken {
    pub(crate) name: String,
    /// As the rest of the sentence.
    pub(crate) holder: String,
}

/// Checks that no other tool has one of these names or another spelling of one. A registered tool
/// of the same name does not count, because the new tool replaces it.
pub(crate) fn check_registered_names(catalog: &Catalog, entry: &Entry) -> Result<(), NameTaken> {
    let own = &entry.definition.name;
    for name in entry.names() {
        let holder = catalog
            .get(name.as_str())
            .filter(|holder| holder.origin != Origin::Registered || holder.definition.name != *own);
        if let Some(holder) = holder.or_else(|| catalog.find_spelling_conflict(name, own)) {
            return Err(NameTaken::new(name.as_str(), holder));
        }
    }
    Ok(())
}

impl NameTaken {
    pub(crate) fn new(name: &str, holder: &Entry) -> Self {
        let real = holder.definition.name.as_str();
        let relation = match real == name {
            true => "is".to_owned(),
            false if holder.names().any(|own| own.as_str() == name) => {
                format!("is an alias of `{real}`,")
            }
            false => format!("is another spelling of `{real}`,"),
        };
        let consequence = match holder.origin {
            Origin::Manifest | Origin::Program => ", which the API does not change",
            Origin::Registered => " already",
        };
        let holder = format!("{relation} {}{consequence}", describe_origin(holder));
        let name = name.to_owned();
        Self { name, holder }
    }
}

/// The party that a tool comes from, as part of a sentence.
pub(crate) fn describe_origin(tool: &Entry) -> &'static str {
    match tool.origin {
        Origin::Manifest => "a tool of the manifest",
        Origin::Program => "a tool of the program",
        Origin::Registered => "a tool that is registered",
    }
}
