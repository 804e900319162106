//! The party that wrote a schema.

/// Who wrote a schema. It decides how the schema is read, by one rule: strict with our own words,
/// lenient with a foreign party's.
///
/// An own schema is a contract, so each of its words binds. A foreign schema describes. Its types,
/// `required`, enums and bounds are checked, and a call that violates them is refused. But no call
/// is refused that the other side would accept, because that side checks the call itself:
///
/// - A default that does not fit, or is a time without an offset, is not filled in. The other side
///   fills in its own.
/// - A pattern that cannot be judged is no constraint, and stands in the description.
/// - `oneOf` is met by one form that fits.
/// - An `enum` whose values have another type than `type` accepts both spellings.
/// - A date-time may lack an offset. In results, `format` is an annotation.
/// - A result that does not fit is passed on with a warning.
///
/// What could not be judged is told in `meta.warnings`. The rule is only about schemas: it never
/// touches the place of a value in a request, its encoding, addresses, sizes, deny rules and
/// approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaOwner {
    /// The operator or the program: manifest, `PUT /tools`, library, `TOOL_SPEC`, overrides.
    #[default]
    Own,
    /// This service, from the types of a plain Python function. It is an own schema, too. But the
    /// worker reads the values once more, and it reads date-times as Python does.
    Derived,
    /// Another party that checks the arguments itself: an MCP server, the API of an OpenAPI
    /// document, an agent framework.
    Foreign,
}

impl SchemaOwner {
    /// Whether another party wrote the schema.
    pub fn is_foreign(self) -> bool {
        self == Self::Foreign
    }
}
