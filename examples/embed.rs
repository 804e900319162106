//! A service with tools of its own: `cargo run --example embed`, then
//!
//! ```sh
//! curl -s localhost:7411/tools/get_weather/invoke -H 'content-type: application/json' \
//!   -d '{"arguments": {"city": "Oslo"}}'
//! ```

use std::collections::HashMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib::{App, Effect, Limit, LimitScope, Per, Tool, ToolContext, ToolError};

/// What a tool may share with others: here a table, elsewhere a pool or a client.
struct Thermometers(HashMap<&'static str, f64>);

#[derive(Deserialize, JsonSchema)]
struct WeatherArgs {
    /// City, e.g. Oslo
    city: String,
}

#[derive(Serialize, JsonSchema)]
struct Weather {
    /// Degrees Celsius
    temperature: f64,
}

/// A typed tool: both schemas come from the types.
async fn get_weather(args: WeatherArgs, context: ToolContext) -> Result<Weather, ToolError> {
    let thermometers = context.service::<Thermometers>().ok_or("no thermometers are shared")?;
    let temperature = thermometers.0.get(args.city.as_str());
    let temperature = *temperature.ok_or_else(|| format!("There is no thermometer in {}. Try Oslo.", args.city))?;
    Ok(Weather { temperature })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = App::builder()
        .share(Thermometers(HashMap::from([("Oslo", -4.5), ("Accra", 29.0)])))
        .tool(
            Tool::typed("get_weather", "Temperature in a city now.", get_weather)
                .effect(Effect::Read)
                .timeout(Duration::from_secs(10))
                .cache(Duration::from_secs(300), &[]),
        )
        .tool(
            Tool::new("shout", "Writes a text in capitals.")
                .param("text", "string", "The text")
                .param_opt("marks", "integer", "How many exclamation marks to add")
                .effect(Effect::Read)
                .limit(Limit { calls: 100, per: Per::Day, scope: LimitScope::Caller })
                // May take its time without holding up anybody.
                .call_blocking(|arguments, _context| {
                    let text = arguments["text"].as_str().unwrap_or_default().to_uppercase();
                    let marks = arguments["marks"].as_u64().unwrap_or(0).min(10);
                    Ok(text + &"!".repeat(marks as usize))
                }),
        )
        .build()
        .await?;
    Ok(app.serve().await?)
}
