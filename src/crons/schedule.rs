//! Schedules in the form of cron, in time zones.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{Timestamp as Instant, tz::TimeZone};

use super::Error;
use crate::time::Timestamp;

/// Longest text of a schedule or a time zone that is read, in bytes.
const TEXT_MAX: usize = 1024;

/// Five fields (minute, hour, day of the month, month, day of the week) in a time zone.
///
/// Where the clock is put forward, a fixed time that it skips is the first moment after. Where it is
/// put back, a fixed time that it shows twice is the first of them; steps and wildcards go on in both.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a schedule and the IANA name of its zone, UTC without one.
    ///
    /// # Errors
    /// It is none, or there is no such zone.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, Error> {
        let invalid = || Error::Schedule(shortened(text));
        // Nicknames, seconds, random fields and what other crons do not know are refused.
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
        Ok(Self { cron, zone })
    }

    /// The first time after `time`; `None` when there is none any more.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = Instant::from_microsecond(time.0).ok()?;
        let zoned = time.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&zoned, false).ok()?;
        Some(Timestamp(next.timestamp().as_microsecond()))
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
