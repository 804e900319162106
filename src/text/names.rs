//! Other spellings of tools' names.
//!
//! Models change the case of a name, replace a separator by another, or add a prefix that their
//! provider uses for tools. The normal form of a name is without such differences. A prefix that
//! names a server (`mcp__github__create_issue`) identifies the tool, so it is not removed. An alias
//! helps there.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::ToolName;
use crate::text::suggest;

/// Prefixes of names, followed by `.` or `:`. `functions` is the namespace of OpenAI's harmony
/// format (and so of Kimi's ids). `default_api` is the module in Gemini's code-like calls. Other
/// models write `tools` in place of either.
const PREFIXES: [&str; 3] = ["functions", "tools", "default_api"];

/// The maximum length of a text that can be a spelling of a name.
const MAX_SPELLING_LEN: usize = 2 * ToolName::MAX_LEN;

/// The normal form of a complete name: lower case, and `_` for `-`, `.` and a space.
pub fn normalize_name(name: &str) -> String {
    let plain = |c: char| {
        if matches!(c, '-' | '.' | ' ') {
            '_'
        } else {
            c.to_ascii_lowercase()
        }
    };
    name.trim().chars().map(plain).collect()
}

/// The name after one of the prefixes, if there is one.
pub fn strip_known_prefix(name: &str) -> Option<&str> {
    let (prefix, rest) = name.trim().split_once(['.', ':'])?;
    PREFIXES
        .iter()
        .any(|known| known.eq_ignore_ascii_case(prefix))
        .then_some(rest)
}

/// The normal forms of a text: of the whole text, then of the text without its prefix.
fn normal_forms(requested: &str) -> impl Iterator<Item = String> {
    let requested = Some(requested).filter(|requested| requested.len() <= MAX_SPELLING_LEN);
    requested
        .into_iter()
        .flat_map(|requested| std::iter::once(requested).chain(strip_known_prefix(requested)))
        .map(normalize_name)
}

/// Normal forms, each with the tools that have a name or alias of that form.
#[derive(Clone, Default)]
pub struct Spellings(BTreeMap<String, Vec<ToolName>>);

/// Collects the spellings of tools, each with its aliases.
impl<'a> FromIterator<(&'a ToolName, &'a [ToolName])> for Spellings {
    fn from_iter<I: IntoIterator<Item = (&'a ToolName, &'a [ToolName])>>(tools: I) -> Self {
        let mut spellings = Self::default();
        for (real, aliases) in tools {
            for name in std::iter::once(real).chain(aliases) {
                spellings.insert(name, real);
            }
        }
        spellings
    }
}

impl Spellings {
    /// Adds a name or alias of the tool `real`.
    pub fn insert(&mut self, name: &ToolName, real: &ToolName) {
        let tools = self.0.entry(normalize_name(name.as_str())).or_default();
        if !tools.contains(real) {
            tools.push(real.clone());
        }
    }

    /// Removes all spellings of a tool.
    pub fn remove(&mut self, real: &str) {
        self.0.retain(|_, tools| {
            tools.retain(|tool| tool.as_str() != real);
            !tools.is_empty()
        });
    }

    /// The tools of which the text is a spelling. `usable` selects the tools that are considered.
    /// The whole text takes precedence over the text without its prefix.
    pub fn matching_tools(
        &self,
        requested: &str,
        usable: impl Fn(&ToolName) -> bool,
    ) -> Vec<&ToolName> {
        let found = |form: String| {
            let tools = self
                .0
                .get(&form)?
                .iter()
                .filter(|tool| usable(tool))
                .collect::<Vec<_>>();
            (!tools.is_empty()).then_some(tools)
        };
        normal_forms(requested).find_map(found).unwrap_or_default()
    }

    /// The tools with a name that begins with the text, in the order of their names. A text of one or
    /// two characters means nothing.
    pub fn tools_beginning_with(
        &self,
        requested: &str,
        usable: impl Fn(&ToolName) -> bool,
    ) -> Vec<&ToolName> {
        let beginning = normalize_name(requested);
        if beginning.len() < 3 {
            return Vec::new();
        }
        let range = self.0.range(beginning.clone()..);
        let tools = range
            .take_while(|(form, _)| form.starts_with(&beginning))
            .flat_map(|(_, tools)| tools)
            .filter(|tool| usable(tool));
        let found: BTreeSet<&ToolName> = tools.collect();
        found.into_iter().collect()
    }

    /// The tools with a name similar enough to the text, the most similar first, each with its
    /// ratio.
    pub fn similar_tools(
        &self,
        requested: &str,
        usable: impl Fn(&ToolName) -> bool,
    ) -> Vec<(f32, &ToolName)> {
        let requested: Vec<String> = normal_forms(requested).collect();
        let mut best: BTreeMap<&ToolName, f32> = BTreeMap::new();
        for (form, tools) in &self.0 {
            let ratios = requested.iter().filter_map(|requested| {
                suggest::ratio_above(requested, form, suggest::MIN_MEANT_RATIO)
            });
            let Some(ratio) = ratios.max_by(f32::total_cmp) else {
                continue;
            };
            for tool in tools.iter().filter(|tool| usable(tool)) {
                let known = best.entry(tool).or_default();
                *known = known.max(ratio);
            }
        }
        let mut rated: Vec<(f32, &ToolName)> = best
            .into_iter()
            .map(|(tool, ratio)| (ratio, tool))
            .collect();
        rated.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        rated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a search for `other` may find the name `name`.
    fn is_spelling_of(other: &str, name: &str) -> bool {
        let name = normalize_name(name);
        normal_forms(other).any(|form| form == name)
    }

    #[test]
    fn spelling_covers_case_separators_and_prefixes() {
        for other in [
            "get_weather",
            "Get-Weather",
            "GET.WEATHER",
            "get weather",
            " get_weather\n",
            "functions.get_weather",
            "Tools.Get-Weather",
            "default_api.get_weather",
            "default_api:get_weather",
        ] {
            assert!(is_spelling_of(other, "get_weather"), "{other}");
        }
        let padded = format!("get_weather{}", " ".repeat(MAX_SPELLING_LEN));
        for other in [
            "getweather",
            "get__weather",
            "weather",
            "functions_get_weather",
            "functions.functions.get_weather",
            "mcp__crib__get_weather",
            "other.get_weather",
            "get_weather()",
            "functions.",
            "",
            &padded,
        ] {
            assert!(!is_spelling_of(other, "get_weather"), "{other}");
        }
    }

    #[test]
    fn declared_name_takes_precedence_over_prefix() {
        let name = |text| ToolName::parse(text).unwrap();
        let mut spellings = Spellings::default();
        for tool in ["list", "tools.list"] {
            spellings.insert(&name(tool), &name(tool));
        }
        assert_eq!(
            spellings.matching_tools("Tools-List", |_| true),
            [&name("tools.list")]
        );
        assert_eq!(
            spellings.matching_tools("TOOLS.LIST", |_| true),
            [&name("tools.list")]
        );
        assert_eq!(
            spellings.matching_tools("TOOLS.LIST", |tool| tool.as_str() == "list"),
            [&name("list")]
        );
        spellings.remove("tools.list");
        assert_eq!(
            spellings.matching_tools("TOOLS.LIST", |_| true),
            [&name("list")]
        );
        assert!(spellings.matching_tools("frobnicate", |_| true).is_empty());
    }

    #[test]
    fn alias_spellings_match_too() {
        let name = |text| ToolName::parse(text).unwrap();
        let (real, aliases) = (name("send_mail"), [name("mailer")]);
        let spellings: Spellings = [(&real, &aliases[..])].into_iter().collect();
        for requested in ["Send-Mail", "MAILER", "tools.mailer"] {
            assert_eq!(
                spellings.matching_tools(requested, |_| true),
                [&real],
                "{requested}"
            );
        }
        let padded = format!("send_mail{}", " ".repeat(MAX_SPELLING_LEN - 9));
        assert_eq!(
            (
                spellings.matching_tools(&padded, |_| true),
                MAX_SPELLING_LEN
            ),
            (vec![&real], 256)
        );
        assert!(
            spellings
                .matching_tools(&format!("{padded} "), |_| true)
                .is_empty()
        );
    }

    #[test]
    fn removed_tool_has_no_spelling() {
        let name = |text| ToolName::parse(text).unwrap();
        let mut spellings = Spellings::default();
        for (spelt, real) in [("send_mail", "a"), ("Send-Mail", "b"), ("mailer", "a")] {
            spellings.insert(&name(spelt), &name(real));
        }
        spellings.remove("a");
        let found = |requested| spellings.matching_tools(requested, |_| true);
        assert_eq!(found("SEND.MAIL"), [&name("b")]);
        assert!(found("mailer").is_empty());
    }

    #[test]
    fn similar_tools_are_sorted_and_unique() {
        let name = |text| ToolName::parse(text).unwrap();
        let mut spellings = Spellings::default();
        for (spelt, real) in [
            ("get_weather", "a"),
            ("get_weathers", "a"),
            ("got_weathers", "b"),
            ("other", "c"),
        ] {
            spellings.insert(&name(spelt), &name(real));
        }
        let found = |requested| {
            spellings
                .similar_tools(requested, |_| true)
                .into_iter()
                .map(|(_, tool)| tool.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(found("functions.Get-Weathers"), ["a", "b"]);
        assert_eq!(found("frobnicate"), [""; 0]);
        let beginning = |text| spellings.tools_beginning_with(text, |_| true).len();
        assert_eq!(
            [
                beginning("Get_W"),
                beginning("got-"),
                beginning("ge"),
                beginning("weather")
            ],
            [1, 1, 0, 0]
        );
    }
}
