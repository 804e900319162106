//! What the APIs of model providers refuse in a tool's definition. A provider refuses the whole
//! request, with all tools, because of one invalid tool.
//!
//! Providers change these rules without notice and document only a part of them. Each row names its
//! source. Formats adapt definitions by this table, and `check` warns about problems that formats
//! cannot solve.

use crate::call::words;

/// An API to which tools are declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Chat Completions and Responses.
    OpenAi,
    /// Messages.
    Anthropic,
    /// `generateContent`.
    Gemini,
    /// Converse.
    Bedrock,
}

/// A way to declare tools that accepts less of JSON Schema than the provider accepts otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subset {
    /// OpenAI's functions with `strict: true`.
    OpenAiStrict,
    /// Gemini's `parameters`, an OpenAPI 3.0 schema. Its newer `parametersJsonSchema` accepts JSON
    /// Schema.
    GeminiParameters,
}

impl Provider {
    /// All providers.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Bedrock];

    /// The name that people know.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "OpenAI",
            Self::Anthropic => "Anthropic",
            Self::Gemini => "Gemini",
            Self::Bedrock => "Bedrock",
        }
    }

    /// Whether a tool may have this name.
    ///
    /// OpenAI, API reference: `^[a-zA-Z0-9_-]{1,64}$`. Anthropic, error text:
    /// `^[a-zA-Z0-9_-]{1,128}$` (64 until 2025). Bedrock, ToolSpecification: `[a-zA-Z0-9_-]+`, 1 to
    /// 64. Gemini, error text: begins with a letter or underscore; letters, digits, `_`, `.`, `:`,
    /// `-`; at most 64 (the API reference of 2026 says 128). (MCP 2025-11-25 allows 1 to 128 of
    /// letters, digits, `_`, `-`, `.`, which every name in Toolcrib satisfies.)
    pub fn accepts_name(self, name: &str) -> bool {
        let plain = |also: &[u8]| {
            name.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b) || also.contains(&b))
        };
        match self {
            Self::OpenAi | Self::Bedrock => name.len() <= 64 && plain(b""),
            Self::Anthropic => name.len() <= 128 && plain(b""),
            Self::Gemini => {
                name.len() <= 64
                    && plain(b".")
                    && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            }
        }
    }

    /// Whether a parameter may have this name.
    ///
    /// Anthropic, error text: `^[a-zA-Z0-9_.-]{1,64}$`, checked only in the root's `properties`.
    /// Bedrock passes the schema to the maker of the model, so there the rule applies to
    /// Anthropic's models.
    pub fn accepts_parameter(self, name: &str) -> bool {
        match self {
            Self::OpenAi | Self::Gemini => true,
            Self::Anthropic | Self::Bedrock => {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
                (1..=64).contains(&name.len()) && name.bytes().all(fits)
            }
        }
    }

    /// Keywords that are not allowed at the root of a tool's schema.
    ///
    /// From the error texts: OpenAI "schema must have type 'object' and not have
    /// 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level"; Anthropic (and its models on
    /// Bedrock) "`input_schema` does not support oneOf, allOf, or anyOf at the top level".
    pub fn forbidden_root_keywords(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi => &["oneOf", "anyOf", "allOf", "enum", "const", "not"],
            Self::Anthropic | Self::Bedrock => &["oneOf", "anyOf", "allOf"],
            Self::Gemini => &[],
        }
    }

    /// The most tools of one request, if there is a bound. OpenAI, error text: "array too long.
    /// Expected an array with maximum length 128".
    pub fn max_tools(self) -> Option<usize> {
        (self == Self::OpenAi).then_some(128)
    }

    /// The longest description of a tool in characters, if there is a bound. OpenAI documents
    /// 1,024. It refuses more for some models and resellers ("string too long. Expected a string
    /// with maximum length 1024"), not for all.
    pub fn max_description_len(self) -> Option<usize> {
        (self == Self::OpenAi).then_some(1024)
    }
}

/// The fields of Gemini's `Schema`. For any other key, the API returns "Unknown name …: Cannot find
/// field" (API reference, Schema).
const GEMINI_SCHEMA_FIELDS: [&str; 22] = words(
    "type format title description nullable enum maxItems minItems properties required
     minProperties maxProperties minLength maxLength pattern example anyOf
     propertyOrdering default items minimum maximum",
);

/// Keywords that OpenAI's guide to structured outputs does not list as supported.
const OPENAI_STRICT_REFUSED: [&str; 19] = words(
    "allOf oneOf not if then else dependentRequired dependentSchemas patternProperties
     propertyNames unevaluatedProperties unevaluatedItems minProperties maxProperties
     prefixItems contains minContains maxContains uniqueItems",
);

impl Subset {
    /// All subsets.
    pub const ALL: [Self; 2] = [Self::OpenAiStrict, Self::GeminiParameters];

    /// The name of the subset, for use after "by".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiStrict => "OpenAI with `strict: true`",
            Self::GeminiParameters => {
                "Gemini's `parameters` (its `parametersJsonSchema` takes them)"
            }
        }
    }

    /// Whether `type` may be a list. Gemini, error text: "Proto field is not repeating, cannot
    /// start list".
    pub fn accepts_type_lists(self) -> bool {
        self != Self::GeminiParameters
    }

    /// Whether a schema with this keyword is refused, at any position.
    pub fn refuses_keyword(self, keyword: &str) -> bool {
        match self {
            Self::OpenAiStrict => OPENAI_STRICT_REFUSED.contains(&keyword),
            Self::GeminiParameters => !GEMINI_SCHEMA_FIELDS.contains(&keyword),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusing(name: &str) -> Vec<Provider> {
        Provider::ALL
            .into_iter()
            .filter(|provider| !provider.accepts_name(name))
            .collect()
    }

    #[test]
    fn provider_name_rules_differ() {
        use Provider::{Anthropic, Bedrock, Gemini, OpenAi};
        assert_eq!(refusing("get_weather-2"), []);
        assert_eq!(refusing("weather.get"), [OpenAi, Anthropic, Bedrock]);
        assert_eq!(refusing("3d_render"), [Gemini]);
        assert_eq!(refusing(&"x".repeat(65)), [OpenAi, Gemini, Bedrock]);
        assert_eq!(refusing(&"x".repeat(128)), [OpenAi, Gemini, Bedrock]);
        assert!(
            !Anthropic.accepts_parameter("filter[id]") && Anthropic.accepts_parameter("filter.id")
        );
        assert!(
            OpenAi.accepts_parameter("filter[id]") && !Bedrock.accepts_parameter(&"x".repeat(65))
        );
    }

    #[test]
    fn subsets_refuse_keywords() {
        assert!(
            Subset::GeminiParameters.refuses_keyword("const")
                && !Subset::GeminiParameters.refuses_keyword("anyOf")
        );
        assert!(
            Subset::OpenAiStrict.refuses_keyword("oneOf")
                && !Subset::OpenAiStrict.refuses_keyword("anyOf")
        );
    }
}
