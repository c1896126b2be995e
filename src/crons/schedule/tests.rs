//! Schedules in zones whose clocks are put forward and back.

use super::*;

fn schedule(text: &str, zone: &str) -> Schedule {
    Schedule::parse(text, Some(zone)).unwrap()
}

/// The first times after `start`, as UTC without seconds.
fn times(schedule: &Schedule, start: &str, count: usize) -> Vec<String> {
    let mut at = Timestamp::read(start).unwrap();
    let mut found = Vec::new();
    for _ in 0..count {
        at = schedule.after(at).unwrap();
        found.push(at.to_string()[5..16].to_owned());
    }
    found
}

/// Checks rows of a schedule, its zone, a start and the times that follow it.
fn check(table: &str) {
    let rows = table.lines().map(str::trim);
    for row in rows.filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [text, zone, start, expected] = cells[..] else {
            panic!("no four cells: {row}")
        };
        let expected: Vec<&str> = expected.split(' ').collect();
        let found = times(&schedule(text, zone), start, expected.len());
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn a_time_that_the_clock_skips_is_the_first_moment_after() {
    check(
        "
        # Berlin goes from 02:00 to 03:00, which is 01:00 UTC.
        30 2 * * *   | Europe/Berlin       | 2026-03-28T00:00:00Z | 03-28T01:30 03-29T01:00 03-30T00:30
        # New York, 02:00 to 03:00 at 07:00 UTC; what is due before and behind the gap is due once.
        0 1,3 8 3 *  | America/New_York    | 2026-03-08T00:00:00Z | 03-08T06:00 03-08T07:00
        # Lord Howe skips half an hour: 02:00 to 02:30 at 15:30 UTC of the day before.
        15 2 * * *   | Australia/Lord_Howe | 2026-10-03T00:00:00Z | 10-03T15:30 10-04T15:15
        */30 * * * * | Europe/Berlin       | 2026-03-29T00:00:00Z | 03-29T00:30 03-29T01:00 03-29T01:30
        ",
    );
}

#[test]
fn a_fixed_time_that_the_clock_shows_twice_is_the_first_of_them() {
    check(
        "
        # Berlin goes from 03:00 back to 02:00 at 01:00 UTC.
        30 2 * * * | Europe/Berlin    | 2026-10-24T12:00:00Z | 10-25T00:30 10-26T01:30
        # From between the two it is the next day's.
        30 2 * * * | Europe/Berlin    | 2026-10-25T00:30:00Z | 10-26T01:30
        30 1 * * * | America/New_York | 2026-11-01T00:00:00Z | 11-01T05:30 11-02T06:30
        ",
    );
}

#[test]
fn steps_and_wildcards_go_on_while_the_clock_shows_an_hour_twice() {
    check(
        "*/30 * * * * | Europe/Berlin | 2026-10-24T23:45:00Z \
         | 10-25T00:00 10-25T00:30 10-25T01:00 10-25T01:30 10-25T02:00 10-25T02:30",
    );
}

#[test]
fn lists_and_ranges_have_each_time_of_the_day_once() {
    check(
        "
        # What the gap takes is one moment, and what is due then anyway is no second one.
        0,30 2 * * *      | Europe/Berlin       | 2026-03-28T22:00:00Z | 03-29T01:00 03-30T00:00 03-30T00:30
        0-59/20 2 * * *   | Europe/Berlin       | 2026-03-28T22:00:00Z | 03-29T01:00 03-30T00:00 03-30T00:20
        0 1-3 * * *       | Europe/Berlin       | 2026-03-28T22:00:00Z | 03-29T00:00 03-29T01:00 03-29T23:00
        15,45 2 * * *     | Australia/Lord_Howe | 2026-10-03T15:00:00Z | 10-03T15:30 10-03T15:45 10-04T15:15
        0,30 2 * * *      | Europe/Berlin       | 2026-10-24T22:00:00Z | 10-25T00:00 10-25T00:30 10-26T01:00
        0 1,2,3 * * *     | Europe/Berlin       | 2026-10-24T22:00:00Z | 10-24T23:00 10-25T00:00 10-25T02:00
        # Between the two, in the second of them.
        0-59/30 2-3 * * * | Europe/Berlin       | 2026-10-25T01:15:00Z | 10-25T02:00 10-25T02:30 10-26T01:00
        15,45 1 * * *     | Australia/Lord_Howe | 2026-04-04T12:00:00Z | 04-04T14:15 04-04T14:45 04-05T14:45
        ",
    );
}

#[test]
fn a_wildcard_in_minute_or_hour_follows_the_clock() {
    check(
        "
        */30 2 * * * | Europe/Berlin | 2026-03-28T22:00:00Z | 03-30T00:00 03-30T00:30 03-31T00:00
        */30 2 * * * | Europe/Berlin | 2026-10-25T00:00:00Z | 10-25T00:30 10-25T01:00 10-25T01:30
        30 */2 * * * | Europe/Berlin | 2026-03-28T22:00:00Z | 03-28T23:30 03-29T02:30 03-29T04:30
        30 */2 * * * | Europe/Berlin | 2026-10-24T22:00:00Z | 10-24T22:30 10-25T00:30 10-25T01:30
        30 * * * *   | Europe/Berlin | 2026-10-24T23:45:00Z | 10-25T00:30 10-25T01:30 10-25T02:30
        ",
    );
}

#[test]
fn a_midnight_that_the_clock_skips_or_shows_twice_is_one_moment() {
    check(
        "
        # Cairo goes from 00:00 to 01:00 on 24 April 2026, Havana on 8 March.
        0 0 * * *    | Africa/Cairo   | 2026-04-23T12:00:00Z | 04-23T22:00 04-24T21:00
        30 0 * * *   | Africa/Cairo   | 2026-04-23T12:00:00Z | 04-23T22:00 04-24T21:30
        # The day itself is not passed over.
        0 0 * * 5    | Africa/Cairo   | 2026-04-22T12:00:00Z | 04-23T22:00 04-30T21:00
        0 0 * * *    | America/Havana | 2026-03-07T12:00:00Z | 03-08T05:00 03-09T04:00
        # Havana goes from 01:00 back to 00:00 on 1 November.
        0,30 0 * * * | America/Havana | 2026-10-31T12:00:00Z | 11-01T04:00 11-01T04:30
        30 0 * * *   | America/Havana | 2026-10-31T12:00:00Z | 11-01T04:30 11-02T05:30
        # Apia had no 30 December in 2011.
        0 0 30 12 *  | Pacific/Apia   | 2011-12-01T12:00:00Z | 12-30T10:00 12-29T10:00
        ",
    );
}

#[test]
fn the_day_of_a_schedule_is_that_of_its_zone() {
    check("0 0 * * * | Europe/Paris | 2026-11-20T22:07:41Z | 11-20T23:00 11-21T23:00");
    let utc = Schedule::parse("0 0 * * *", None).unwrap();
    assert_eq!(times(&utc, "2026-11-20T22:07:41Z", 1), ["11-21T00:00"]);
}

#[test]
fn fields_have_lists_ranges_steps_and_names() {
    let start = "2026-11-20T22:07:41Z";
    for (text, first) in [
        ("*/5 * * * *", "11-20T22:10"),
        ("1,7,30-40/5 * * * *", "11-20T22:30"),
        ("0 9 * * MON-FRI", "11-23T09:00"),
        ("0 9 * * mon", "11-23T09:00"),
        ("0 0 * * 7", "11-22T00:00"),
        ("0 0 * * 0", "11-22T00:00"),
        ("0 0 1 JAN,jul *", "01-01T00:00"),
        ("0 0 29 2 *", "02-29T00:00"),
        ("0 0 L * *", "11-30T00:00"),
        (" 0  0 * * * ", "11-21T00:00"),
        // Of the two days either is enough.
        ("0 0 13 * 6", "11-21T00:00"),
    ] {
        let schedule = Schedule::parse(text, None).unwrap();
        assert_eq!(times(&schedule, start, 1), [first], "{text}");
    }
}

#[test]
fn what_is_no_schedule_of_five_fields_is_refused() {
    let long = "1,".repeat(600) + "1 * * * *";
    for text in [
        "",
        "bad",
        "* * * *",
        "* * * * * *",
        "0 0 0 1 1 * 2030",
        "61 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "-1 * * * *",
        "5-1-2 * * * *",
        "1-60/5 * * * *",
        "@every 5m",
        "@reboot",
        "@daily @daily @daily @daily @daily",
        "R * * * *",
        "* * 15W * *",
        "* * * * +1",
        "* * * * MONDAY",
        "a b c d e",
        "* * * * \u{0}",
        "* * * * \u{2028}1 \u{1F600}",
        &long,
    ] {
        let refused = Schedule::parse(text, None);
        assert!(matches!(refused, Err(Error::Schedule(_))), "{text:?}");
    }
}

#[test]
fn a_schedule_that_no_date_fits_has_no_next_time() {
    let start = Timestamp::read("2026-11-20T22:07:41Z").unwrap();
    for text in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 *"] {
        let schedule = Schedule::parse(text, None).unwrap();
        assert_eq!(schedule.after(start), None, "{text}");
    }
}

#[test]
fn zones_are_known_by_their_exact_names_alone() {
    for zone in [
        "Mars/X",
        "",
        "europe/paris",
        "+01:00",
        "UTC+1",
        "../etc/passwd",
        "a\0b",
    ] {
        let refused = Schedule::parse("* * * * *", Some(zone));
        assert!(matches!(refused, Err(Error::Zone(_))), "{zone:?}");
    }
    for zone in [
        "UTC",
        "Etc/UTC",
        "Europe/Paris",
        "America/Argentina/Buenos_Aires",
    ] {
        assert!(Schedule::parse("* * * * *", Some(zone)).is_ok(), "{zone}");
    }
}

#[test]
fn nicknames_and_ranges_over_the_end_of_a_field_are_written_out() {
    check(
        "
        @yearly       | UTC           | 2026-03-01T00:00:00Z | 01-01T00:00 01-01T00:00
        @annually     | UTC           | 2026-03-01T00:00:00Z | 01-01T00:00
        @monthly      | UTC           | 2026-03-01T00:00:00Z | 04-01T00:00 05-01T00:00
        @weekly       | UTC           | 2026-03-03T00:00:00Z | 03-08T00:00 03-15T00:00
        @daily        | Europe/Berlin | 2026-03-03T00:00:00Z | 03-03T23:00 03-04T23:00
        @Midnight     | UTC           | 2026-03-03T00:00:00Z | 03-04T00:00
        @hourly       | UTC           | 2026-03-03T00:10:00Z | 03-03T01:00 03-03T02:00
        0 22-1 * * *  | UTC           | 2026-03-03T12:00:00Z | 03-03T22:00 03-03T23:00 03-04T00:00 03-04T01:00 03-04T22:00
        58-1 3 * * *  | UTC           | 2026-03-03T00:00:00Z | 03-03T03:00 03-03T03:01 03-03T03:58 03-03T03:59 03-04T03:00
        0 0 * * FRI-MON | UTC         | 2026-03-03T00:00:00Z | 03-06T00:00 03-07T00:00 03-08T00:00 03-09T00:00 03-13T00:00
        0 0 1 NOV-feb * | UTC         | 2026-03-03T00:00:00Z | 11-01T00:00 12-01T00:00 01-01T00:00 02-01T00:00 11-01T00:00
        ",
    );
}
