//! What the entries of one file are read with. Reading changes none of it.

use std::collections::HashMap;
use std::path::Path;

use super::decode::Entry;
use super::node::Node;
use super::reference_context::EntryKind;
use super::references::{ManifestInput, OmittedValue, References, Secrets, UnsetVariable};
use super::sections::PolicyEntry;
use crate::access::callers::CallerSettings;
use crate::call::Origin;
use crate::kinds::sandbox::SandboxDefaults;
use crate::kinds::{Databases, HttpClients, Tool};

/// What the entries of one file are read with.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) input: &'a dyn ManifestInput,
    /// The folder at which relative paths start.
    pub(super) base: &'a Path,
    pub(super) defaults: &'a PolicyEntry,
    /// Tools of the embedding program. An entry of kind `native` may name one.
    pub(super) natives: &'a HashMap<String, Tool>,
    /// The origin of the tools. A tool that came over HTTP is trusted less.
    pub(super) origin: Origin,
    pub(super) clients: &'a HttpClients,
    pub(super) databases: &'a Databases,
    pub(super) sandboxes: &'a SandboxDefaults,
    /// The callers whose credentials tools may send.
    pub(super) callers: &'a [CallerSettings],
    /// Whether warnings about OpenAPI documents are reported.
    pub(super) warns_of_documents: bool,
    pub(super) secrets: &'a Secrets,
}

impl Inputs<'_> {
    /// Replaces references below `node`, which is a copy of the entry. `unset` contains the
    /// variables that it may refer to and that are not set. Returns the values that were left out.
    pub(super) fn resolve_references(
        &self,
        node: &mut Node,
        entry: Entry<'_>,
        entry_kind: EntryKind,
        unset: HashMap<String, UnsetVariable>,
    ) -> Vec<OmittedValue> {
        let references = References::new(self.input, self.base, self.secrets, entry.findings);
        let references = References {
            unset,
            entry_kind,
            callers: self.callers,
            ..references
        };
        references.resolve(node, entry.path)
    }
}
