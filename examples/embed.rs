//! A service with tools of its own: `cargo run --example embed`, then
//!
//! ```sh
//! curl -s localhost:7411/tools/get_weather/invoke -H 'content-type: application/json' \
//!   -d '{"arguments": {"city": "Oslo"}}'
//! ```

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use toolcrib::{App, Effect, Tool, ToolContext, ToolError, tool};

/// What a tool may share with others: here a table, elsewhere a pool or a client.
struct Thermometers(HashMap<&'static str, f64>);

#[derive(Serialize, JsonSchema)]
struct Weather {
    /// Degrees Celsius
    temperature: f64,
}

/// Temperature in a city now.
// Results depend on no field of the caller's context: `context = []`.
#[tool(effect = "read", timeout = "10s", cache(ttl = "5m", context = []))]
async fn get_weather(
    /// City, e.g. Oslo
    city: String,
    context: ToolContext,
) -> Result<Weather, ToolError> {
    let thermometers = context
        .service::<Thermometers>()
        .ok_or("no thermometers are shared")?;
    let temperature = thermometers.0.get(city.as_str());
    let temperature =
        *temperature.ok_or_else(|| format!("There is no thermometer in {city}. Try Oslo."))?;
    Ok(Weather { temperature })
}

/// Writes a text in capitals.
// It is not async, so it may take its time without holding up anybody.
#[tool(effect = "read", limits(calls = 100, per = "day", scope = "caller"))]
fn shout(
    /// The text
    text: String,
    /// How many exclamation marks to add
    #[tool(default = 0)]
    #[schemars(range(max = 10))]
    marks: usize,
) -> String {
    text.to_uppercase() + &"!".repeat(marks)
}

/// The same without the attribute, for tools of which not everything is known when the program is
/// compiled.
fn repeat(words: &'static str) -> Tool {
    Tool::new("repeat", format!("Says {words} a number of times."))
        .param("times", "integer", "How often, up to ten")
        .effect(Effect::Read)
        .call(move |arguments, _context| async move {
            let times = arguments["times"].as_u64().unwrap_or(1).min(10);
            Ok(vec![words; times as usize].join(" "))
        })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = App::builder()
        .share(Thermometers(HashMap::from([
            ("Oslo", -4.5),
            ("Accra", 29.0),
        ])))
        .tool(get_weather::tool())
        .tool(shout::tool())
        .tool(repeat("hello"))
        .build()
        .await?;
    Ok(app.serve().await?)
}
