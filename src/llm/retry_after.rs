//! How long a server wants to be left alone before the next attempt, from the headers of its refusal.

use std::time::Duration;

use http::HeaderMap;
use jiff::{Timestamp, fmt::rfc2822};

/// The wait that `retry-after-ms` or `retry-after` names, in seconds or as the date at which it ends.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(wait) = text("retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(wait));
    }
    let text = text("retry-after")?;
    // Some servers name a fraction of a second.
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let end = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    // A date that has passed means at once.
    Some(Duration::try_from(end.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("a header"));
        let now = "2026-11-06T08:49:30Z".parse().expect("a time");
        retry_after(&headers, now)
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_read() {
        for (name, value, wait) in [
            ("retry-after", "7", 7000),
            ("retry-after", "0.25", 250),
            ("retry-after-ms", "40", 40),
            ("retry-after", "Fri, 06 Nov 2026 08:49:37 GMT", 7000),
            ("retry-after", "Fri, 06 Nov 2026 08:00:00 GMT", 0),
        ] {
            assert_eq!(
                read(name, value),
                Some(Duration::from_millis(wait)),
                "{value}"
            );
        }
    }

    #[test]
    fn what_is_no_wait_is_none() {
        for value in ["", "soon", "-3", "NaN", "1e300"] {
            assert_eq!(read("retry-after", value), None, "{value}");
        }
        assert_eq!(read("date", "7"), None);
    }
}
