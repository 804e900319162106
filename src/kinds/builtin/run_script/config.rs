//! The bounds of scripts.

use std::time::Duration;

use serde::Deserialize;

use crate::call::units::{HumanDuration, Size};

/// `with:`.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::kinds::builtin) struct Config {
    /// Tools that scripts may use, by name or pattern. Default: all that the caller may use.
    #[schemars(extend("examples" = [["orders_*"]]))]
    pub(super) tools: Option<Vec<String>>,
    /// Most calls of tools in one script.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) calls: u32,
    /// Longest time that a script computes, without the time of its calls.
    #[schemars(extend("default" = "10s"))]
    pub(super) time: HumanDuration,
    /// Most memory of a script.
    #[schemars(extend("default" = "128MiB"))]
    pub(super) memory: Size,
    /// Longest result, longest arguments of a call, and most that is printed.
    #[schemars(extend("default" = "1MiB"))]
    pub(super) output: Size,
    /// Longest list of functions in the description. Instead of a longer list, it advises a search.
    pub(super) signatures: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tools: None,
            calls: 100,
            time: HumanDuration(Duration::from_secs(10)),
            memory: Size(128 << 20),
            output: Size(1 << 20),
            signatures: 6000,
        }
    }
}
