//! `current_time`: the time now, in any time zone.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::NoSettings;
use crate::call::{Effect, JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::{Runner, Tool};

struct CurrentTime;

pub(super) fn tool(name: &str, _: NoSettings) -> Tool {
    Tool::new(
        name,
        "Tells the current date and time in a time zone. Use it whenever an answer depends on today's date or the \
         time now: you cannot know them otherwise.",
    )
    .param_opt("timezone", "string", "IANA time zone name, e.g. Europe/Oslo or America/New_York; UTC if left out")
    .effect(Effect::Read)
    .with_runner(Arc::new(CurrentTime))
}

#[async_trait]
impl Runner for CurrentTime {
    async fn call(&self, arguments: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
        let zone = arguments.get("timezone").and_then(Value::as_str).unwrap_or("UTC");
        let now = Timestamp::now().in_tz(zone).map_err(|_| {
            let zone: String = zone.chars().take(64).collect();
            format!("There is no time zone `{zone}`. Use an IANA name such as Europe/Oslo, Asia/Tokyo or UTC.")
        })?;
        Ok(ToolResult::json(json!({
            "timezone": zone,
            "iso": now.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            "unix": now.timestamp().as_second(),
            "weekday": now.strftime("%A").to_string(),
            "utc_offset": now.strftime("%:z").to_string(),
        })))
    }
}
