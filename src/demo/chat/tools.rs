//! What the chat agent can do besides talking.

use std::sync::Arc;

use anyhow::Context;
use backstitch::prelude::*;

use super::{PACE, calculator};

/// The tools.
pub fn all() -> Vec<Arc<Tool>> {
    vec![weather(), calculate(), clock()]
}

/// Looks up the weather in a city. (Made up, but always the same for the same city.)
#[tool]
async fn weather(
    /// The city, for example `Oslo`.
    city: String,
    ctx: Ctx,
) -> String {
    ctx.emit(json!({"tool": "weather", "looking_up": city}));
    tokio::time::sleep(PACE * 8).await;
    const SKIES: [&str; 6] = [
        "clear skies",
        "scattered clouds",
        "light rain",
        "heavy showers",
        "morning fog",
        "a stiff breeze",
    ];
    let seed: u32 = city.to_lowercase().bytes().fold(7, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let sky = SKIES[seed as usize % SKIES.len()];
    format!("{} °C and {sky} in {city}", 4 + seed / 7 % 25)
}

/// Calculates an arithmetic expression with + - * / and parentheses.
#[tool]
async fn calculate(
    /// The expression, for example `(2 + 3) * 4.5`.
    expression: String,
) -> Result<String> {
    let result = calculator::evaluate(&expression)?;
    Ok(format!("{} = {result}", expression.trim()))
}

/// Tells date and time.
#[tool]
async fn clock(
    /// An IANA time zone, for example `Europe/Oslo`; UTC if there is none.
    time_zone: Option<String>,
    ctx: Ctx,
) -> Result<String> {
    let zone = time_zone.unwrap_or_else(|| "UTC".to_owned());
    // A step stores its result: a run that is taken over after a crash has one time.
    let now: jiff::Timestamp = ctx
        .step("now", async { Ok(jiff::Timestamp::now()) })
        .await?;
    let there = now
        .in_tz(&zone)
        .with_context(|| format!("no time zone `{zone}`"))?;
    Ok(format!(
        "{} in {zone}",
        there.strftime("%A %-d %B %Y, %H:%M")
    ))
}
