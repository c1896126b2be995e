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
