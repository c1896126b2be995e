//! Values of settings as their texts are read: durations, numbers and switches.

use std::time::Duration;

pub(super) fn seconds(text: &str, least: u64) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) if (least..=3600).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!(
            "`{text}` does not do; write {least} to 3600 seconds"
        )),
    }
}

pub(super) fn count(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(count) if (least..=most).contains(&count) => Ok(count),
        _ => Err(format!("`{text}` does not do; write {least} to {most}")),
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "yes" => Ok(true),
        "false" | "0" | "off" | "no" => Ok(false),
        _ => Err(format!("`{text}` is neither; write `true` or `false`")),
    }
}

/// A time with its unit, `90s`, `30m`, `24h` or `7d`; without one, seconds.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 24 * 3600),
        _ => (text, 1),
    };
    let seconds = number
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=365 * 24 * 3600).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("`{text}` does not do; write 1s to 365d, for example 24h"))
}
