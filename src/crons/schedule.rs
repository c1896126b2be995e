//! Schedules in the form of cron, in time zones.

use std::borrow::Cow;

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    Timestamp as Instant,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};

use super::Error;
use crate::time::Timestamp;

/// Longest text of a schedule or a time zone that is read, in bytes.
const TEXT_MAX: usize = 1024;

/// Five fields (minute, hour, day of the month, month, day of the week) in a time zone, or a nickname as `@daily`.
///
/// Where minute and hour are numbers, lists or ranges, each time of the day has its run once, whatever
/// the clock does: where it is put forward, the times that it skips are together the first moment
/// after, also at midnight; where it is put back, a time that it shows twice is the first of them.
///
/// Where one of the two has a `*` (also with a step, as `*/15`), the schedule follows the clock as it
/// goes: what is skipped has no run, and what is shown twice has two.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
    /// Minute or hour are a wildcard.
    follows_clock: bool,
}

/// Names of schedules.
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The first and the last number of each field.
const BOUNDS: [(u8, u8); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A schedule with five fields for its nickname, and with two ranges for one that goes over the end of its field, as
/// `22-2` does.
fn written_out(text: &str) -> Cow<'_, str> {
    let name = text.trim().to_ascii_lowercase();
    if let Some((_, fields)) = NICKNAMES.iter().find(|(nickname, _)| *nickname == name) {
        return Cow::Borrowed(fields);
    }
    if !text.contains('-') || text.len() > TEXT_MAX {
        return Cow::Borrowed(text);
    }
    let fields = text.split_whitespace().enumerate().map(|(at, field)| {
        let parts = field.split(',').map(|part| in_order(at, part));
        parts.collect::<Vec<_>>().join(",")
    });
    Cow::Owned(fields.collect::<Vec<_>>().join(" "))
}

/// A part of a field, as two ranges if it is one whose end comes before its beginning.
fn in_order(field: usize, part: &str) -> Cow<'_, str> {
    let number = |text: &str| -> Option<u8> {
        let named = |names: &[&str]| {
            let found = names
                .iter()
                .position(|name| text.eq_ignore_ascii_case(name))?;
            u8::try_from(found).ok()
        };
        let name = match field {
            3 => named(&MONTHS).map(|month| month + 1),
            4 => named(&DAYS),
            _ => None,
        };
        let is_number = !text.is_empty() && text.chars().all(|char| char.is_ascii_digit());
        name.or_else(|| text.parse().ok().filter(|_| is_number))
    };
    let fits = |number: u8| {
        BOUNDS
            .get(field)
            .is_some_and(|(least, most)| (least..=most).contains(&&number))
    };
    let ends = part
        .split_once('-')
        .and_then(|(first, last)| Some((number(first)?, number(last)?)));
    match (ends, BOUNDS.get(field)) {
        (Some((first, last)), Some((least, most))) if first > last && fits(first) && fits(last) => {
            Cow::Owned(format!("{first}-{most},{least}-{last}"))
        }
        _ => Cow::Borrowed(part),
    }
}

impl Schedule {
    /// Reads a schedule and the IANA name of its zone, UTC without one.
    ///
    /// # Errors
    /// It is none, or there is no such zone.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, Error> {
        let invalid = || Error::Schedule(shortened(text));
        let text = &*written_out(text);
        // Seconds, random fields and what other crons do not know are refused.
        let is_known =
            |c: char| c.is_ascii_alphanumeric() || c.is_whitespace() || "*,/-#?".contains(c);
        // Of words with a W one is known: the others are days nearest to a date.
        let nearest = text.to_ascii_uppercase().replace("WED", "").contains('W');
        let is_plain = text.len() <= TEXT_MAX
            && !nearest
            && text.chars().all(is_known)
            && text.split_whitespace().count() == 5;
        if !is_plain {
            return Err(invalid());
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(text).map_err(|_| invalid())?;
        let zone = match zone {
            Some(name) => zone_named(name)?,
            None => TimeZone::UTC,
        };
        let follows_clock = text
            .split_whitespace()
            .take(2)
            .any(|field| field.contains(['*', '?']));
        Ok(Self {
            cron,
            zone,
            follows_clock,
        })
    }

    /// The first time after `time`; `None` when there is none any more.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = Instant::from_microsecond(time.0).ok()?;
        let zoned = time.to_zoned(self.zone.clone());
        let next = if self.follows_clock {
            self.cron
                .find_next_occurrence(&zoned, false)
                .ok()?
                .timestamp()
        } else {
            self.next_time_of_day(zoned.datetime(), time)?
        };
        Some(Timestamp(next.as_microsecond()))
    }

    /// The first moment after `time` that stands for one of the schedule's times of the day. Later ones
    /// of those stand for later moments or the same, so that the first behind `time` is the one; before
    /// it come only what a clock that was put back shows again.
    fn next_time_of_day(&self, from: DateTime, time: Instant) -> Option<Instant> {
        // Without a zone, so that the clock is never changed.
        let mut at = from.to_zoned(TimeZone::UTC).ok()?;
        loop {
            at = self.cron.find_next_occurrence(&at, false).ok()?;
            let moment = self.moment_of(at.datetime())?;
            if moment > time {
                return Some(moment);
            }
        }
    }

    /// The moment that the clock of the zone shows this time first, or else first shows a later one.
    fn moment_of(&self, local: DateTime) -> Option<Instant> {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                let earlier = after.to_timestamp(local).ok()?;
                let change = self.zone.following(earlier).next()?;
                Some(change.timestamp())
            }
        }
    }
}

/// The zone of exactly this name.
fn zone_named(name: &str) -> Result<TimeZone, Error> {
    let unknown = || Error::Zone(shortened(name));
    if name.len() > TEXT_MAX || name == "Etc/Unknown" {
        return Err(unknown());
    }
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    let is_exact = name == "UTC" || zone.iana_name() == Some(name);
    is_exact.then_some(zone).ok_or_else(unknown)
}

/// The beginning of a text, enough to recognise it.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests;
