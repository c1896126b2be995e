//! Tests of every setting that is a number: what it may be, and what is refused.

use super::*;

/// A setting that is a number, with the least and the greatest value that it may have.
const NUMBERS: &[(&str, u64, u64)] = &[
    ("port", 0, 65_535),
    ("lease", 1, 3600),
    ("drain", 0, 3600),
    ("connections", 3, 1000),
    ("poll", 1, 3600),
    ("max_waiting", 1, 1_000_000),
    ("read_limit", 1, 3600),
    ("search_limit", 1, 3600),
    ("slots", 1, 100_000),
    ("max_queued", 1, 100_000),
    ("known_waiting", 0, 1_000_000),
    ("max_streams", 1, 1_000_000),
    ("stream_log", 1 << 20, 1 << 40),
    ("stream_log_share", 16 << 20, 1 << 50),
    ("graph_timeout", 1, 3600),
    ("max_tasks", 1, 1_000_000),
    ("run_ahead", 1, 1000),
    ("run_ahead_bytes", 1, 1 << 30),
    ("run_ahead_age", 1, 60_000),
    ("memory_budget", 64, 1 << 20),
    ("share", 1, 100),
    ("body_grace", 1, 3600),
    ("body_pace", 1, 1 << 30),
    ("response_pace", 1, 1 << 30),
    ("max_connections", 1, 1 << 20),
    ("stall", 1, 3600),
    ("requests", 2, 1 << 20),
    ("connection_requests", 1, 1 << 20),
    ("request_wait", 1, 3600),
    ("stored_response", 1, 1 << 30),
    ("body_values", 1000, 1 << 30),
    ("body_limit", 1024, 1 << 30),
    ("edit_limit", 1024, 1 << 30),
    ("page_bytes", 1024, 1 << 30),
    ("message_id_length", 64, 500),
    ("metadata_keys", 1, 1000),
    ("metadata_bytes", 1000, 1 << 20),
    ("assistant_bytes", 1, 1 << 24),
    ("assistant_versions", 1, 1 << 20),
    ("sweep_interval", 1, 3600),
    ("cron_bytes", 1, 1 << 24),
    ("max_crons", 1, 1 << 30),
    ("max_assistants", 1, 1 << 30),
    ("max_store_items", 1, 1 << 30),
    ("store_item_bytes", 1, 1 << 30),
    ("store_scan_items", 1, 1 << 30),
    ("store_scan_bytes", 1, 1 << 30),
    ("store_page_bytes", 1, 1 << 30),
];

/// Values that are no whole number of 64 bits.
const NO_NUMBERS: [&str; 7] = [
    "-1",
    "1.5",
    "1e3",
    "many",
    "5 apples",
    " ",
    "18446744073709551616",
];

fn key(name: &str) -> &'static Key {
    KEYS.iter().find(|key| key.name == name).unwrap()
}

/// The refusal of a value names the setting, where it was set, and what would do.
fn check_refusal(key: &Key, value: &str, what_would_do: &str) {
    let by_variable = refusal(&[(key.variable, value)], "");
    let begin = format!("{} (environment {}): `{value}` ", key.name, key.variable);
    assert!(by_variable.starts_with(&begin), "{by_variable}");
    assert!(by_variable.contains(what_would_do), "{by_variable}");
    let by_file = refusal(&[], &format!("{} = \"{value}\"", key.name));
    assert!(
        by_file.starts_with(&format!("{} (file ", key.name)),
        "{by_file}"
    );
    assert!(by_file.contains(what_would_do), "{by_file}");
}

fn is_accepted(key: &Key, value: &str) {
    let read = settings(Flags::default(), &[(key.variable, value)], "");
    assert!(read.is_ok(), "{} {value}: {read:?}", key.name);
}

#[test]
fn every_setting_whose_default_is_a_number_is_checked_here() {
    for key in KEYS {
        let is_number = key.default.is_some_and(|text| text.parse::<f64>().is_ok());
        let is_listed = NUMBERS.iter().any(|(name, ..)| *name == key.name);
        assert_eq!(is_number, is_listed, "{}", key.name);
    }
}

#[test]
fn numbers_at_the_ends_of_their_range_are_accepted() {
    for (name, least, most) in NUMBERS {
        for value in [least, most] {
            is_accepted(key(name), &value.to_string());
        }
    }
}

#[test]
fn numbers_out_of_their_range_are_refused_in_words_that_say_what_would_do() {
    for (name, least, most) in NUMBERS {
        let range = format!("write {least} to {most}");
        let below = least
            .checked_sub(1)
            .into_iter()
            .chain((*least > 0).then_some(0));
        let out = below
            .chain([most + 1, u64::MAX])
            .map(|value| value.to_string());
        for value in out.chain(NO_NUMBERS.map(str::to_owned)) {
            check_refusal(key(name), &value, &range);
        }
        // A file may have it as a number too.
        let by_file = refusal(&[], &format!("{name} = -1"));
        assert!(by_file.contains(&range), "{by_file}");
    }
}

#[test]
fn times_out_of_their_range_are_refused_in_words_that_say_what_would_do() {
    let retention = key("stream_retention");
    for value in ["1", "1s", "31536000s", "365d"] {
        is_accepted(retention, value);
    }
    for value in [
        "0",
        "0d",
        "31536001s",
        "366d",
        "18446744073709551615d",
        "-1s",
        "s",
        "1w",
        "h24",
    ] {
        check_refusal(retention, value, "write 1s to 365d, for example 24h");
    }
    let ttl = key("thread_ttl");
    for value in ["0.5", "1", "52560000"] {
        is_accepted(ttl, value);
    }
    for value in ["0", "-1", "52560001", "NaN", "inf", "1e99", "soon"] {
        check_refusal(
            ttl,
            value,
            "write minutes, more than 0 and at most 52560000",
        );
    }
}
