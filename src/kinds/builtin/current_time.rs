//! `current_time`: the current time in any time zone, which a model cannot know.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::tz::TimeZone;
use serde_json::json;

use super::arguments::text_argument;
use crate::call::{Clock, Effect, JsonObject, ToolContext, ToolError, ToolResult};
use crate::kinds::{Runner, Tool, ToolOutcome};

/// The tool, registered as `name`.
pub(super) fn tool(name: &str) -> Tool {
    let description = "Tells the current date, time and weekday, in UTC or in the time zone that you name. Use it \
        whenever the answer depends on what day or time it is now.";
    let zone = "IANA time zone name, e.g. Europe/Oslo or America/New_York. UTC if omitted.";
    let text = json!({"type": "string"});
    let output = json!({
        "type": "object",
        "properties": {
            "timezone": text, "iso": text, "unix": {"type": "integer"}, "weekday": text, "utc_offset": text,
        },
        "required": ["timezone", "iso", "unix", "weekday", "utc_offset"],
    });
    Tool::new(name, description)
        .param_opt("timezone", "string", zone)
        .example(json!({"timezone": "Europe/Oslo"}))
        .output_schema(output)
        .effect(Effect::Read)
        .repeatable()
        .with_runner(Arc::new(CurrentTime(Clock::system())))
}

struct CurrentTime(Clock);

#[async_trait]
impl Runner for CurrentTime {
    async fn call(&self, arguments: Arc<JsonObject>, _context: ToolContext) -> ToolOutcome {
        let name = match text_argument(&arguments, "timezone").trim() {
            "" => "UTC",
            name => name,
        };
        let zone = TimeZone::get(name).map_err(|_| unknown_zone_error(name))?;
        let name = zone.iana_name().unwrap_or(name).to_owned();
        let now = self.0.now().to_zoned(zone);
        Ok(ToolResult::json(json!({
            "timezone": name,
            "iso": now.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            "unix": now.timestamp().as_second(),
            "weekday": now.strftime("%A").to_string(),
            "utc_offset": now.strftime("%:z").to_string(),
        })))
    }
}

fn unknown_zone_error(name: &str) -> ToolError {
    let name: String = name.chars().take(60).collect();
    ToolError::ErrorResult(format!(
        "`{name}` is not an IANA time zone: use a name such as Europe/Oslo, America/New_York, Asia/Tokyo or UTC"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::call::{Caller, Invocation, ToolName, ToolSettings};

    async fn at(unix: i64, arguments: Value) -> Result<Value, ToolError> {
        let (clock, _) = Clock::manual(jiff::Timestamp::from_second(unix).unwrap());
        let tool = ToolName::parse("t").unwrap();
        let invocation = Invocation::new(
            tool,
            JsonObject::new(),
            Arc::new(Caller::anonymous()),
            clock.now(),
        );
        let context = ToolContext::new(
            &invocation,
            tokio::time::Instant::now(),
            Arc::new(ToolSettings::default()),
        );
        let arguments = Arc::new(arguments.as_object().unwrap().clone());
        let result = CurrentTime(clock).call(arguments, context).await?;
        Ok(result.structured_content.unwrap())
    }

    #[tokio::test]
    async fn time_is_given_in_requested_zone() {
        let expected = json!({
            "timezone": "UTC", "iso": "2026-07-01T12:30:05+00:00", "unix": 1_782_909_005, "weekday": "Wednesday",
            "utc_offset": "+00:00",
        });
        assert_eq!(at(1_782_909_005, json!({})).await.unwrap(), expected);
        let output = at(1_782_909_005, json!({"timezone": "europe/oslo"}))
            .await
            .unwrap();
        assert_eq!(
            (&output["iso"], &output["timezone"]),
            (&json!("2026-07-01T14:30:05+02:00"), &json!("Europe/Oslo"))
        );
        let output = at(1_782_909_005, json!({"timezone": "Asia/Kolkata"}))
            .await
            .unwrap();
        assert_eq!(output["utc_offset"], "+05:30");
        let output = at(1_767_225_599, json!({"timezone": "America/New_York"}))
            .await
            .unwrap();
        assert_eq!(
            (&output["iso"], &output["weekday"]),
            (&json!("2025-12-31T18:59:59-05:00"), &json!("Wednesday"))
        );
    }

    #[tokio::test]
    async fn unknown_zone_error_has_examples() {
        for zone in ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "CEST+1"] {
            let Err(ToolError::ErrorResult(text)) = at(0, json!({"timezone": zone})).await else {
                panic!("{zone}")
            };
            assert!(text.contains("Europe/Oslo"), "{text}");
        }
    }
}
