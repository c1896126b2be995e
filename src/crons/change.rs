//! What a client changes of a cron.

use super::{CronRow, Error, Schedule, request::OnRunCompleted};
use crate::{
    id::CronId,
    time::Timestamp,
    tree::metadata,
    value::{Map, Value},
};

/// What a client changes of a cron; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Another schedule.
    pub schedule: Option<String>,
    /// Another time zone, or that of UTC.
    pub timezone: Option<Option<String>>,
    /// Another end, or none.
    pub end_time: Option<Option<Timestamp>>,
    /// Whether it creates runs.
    pub enabled: Option<bool>,
    /// What becomes of threads that it makes.
    pub on_run_completed: Option<OnRunCompleted>,
    /// Fields of metadata, which are added or replaced.
    pub metadata: Map,
    /// The body of the request, whose fields replace those of the payload. One that is null takes the
    /// field back, unless every cron has it.
    pub payload: Map,
}

/// What every cron has: null changes nothing of it.
const PERMANENT: [&str; 5] = [
    "assistant_id",
    "schedule",
    "enabled",
    "on_run_completed",
    "metadata",
];

impl CronRow {
    /// The row with a change that is made at `now`.
    ///
    /// # Errors
    /// It would have no valid schedule, an end that is past, or too much metadata.
    pub(super) fn changed(
        &self,
        change: &Change,
        now: Timestamp,
        limits: metadata::Limits,
    ) -> Result<Self, Error> {
        let mut new = self.clone();
        if let Some(schedule) = &change.schedule {
            new.schedule.clone_from(schedule);
        }
        if let Some(zone) = &change.timezone {
            new.timezone.clone_from(zone);
        }
        if let Some(end_time) = change.end_time {
            if end_time.is_some_and(|end| end <= now) {
                return Err(Error::Ended);
            }
            new.end_time = end_time;
        }
        if let Some(enabled) = change.enabled {
            new.enabled = enabled;
        }
        if self.thread.is_none() && change.on_run_completed.is_some() {
            new.on_run_completed = change.on_run_completed;
        }
        new.metadata.extend(change.metadata.clone());
        if let Some(excess) = limits.excess(&new.metadata) {
            return Err(Error::Metadata(excess));
        }
        for (name, value) in &change.payload {
            let is_permanent = PERMANENT.contains(&&**name);
            // That there is no end is shown as LangGraph's server does.
            if value.is_null() && !is_permanent && &**name != "end_time" {
                new.payload.remove(name);
            } else if (!value.is_null() || !is_permanent) && &**name != "assistant_id" {
                new.payload.insert(name.clone(), value.clone());
            }
        }
        if !change.metadata.is_empty() {
            // That of the runs is that of the cron.
            new.payload
                .insert("metadata", Value::map(new.metadata.clone()));
        }
        put_id(&mut new.payload, self.id);
        new.next_run = self.next_run_of(&new, now)?;
        Ok(new)
    }

    /// When the changed cron is due next. A time that has come and was not served yet stays.
    fn next_run_of(&self, new: &Self, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        let schedule = Schedule::parse(&new.schedule, new.timezone.as_deref())?;
        let is_enabled_now = new.enabled && !self.enabled;
        let has_other_times = self.schedule != new.schedule || self.timezone != new.timezone;
        let next = match self.next_run {
            Some(next) if !is_enabled_now && !has_other_times => next,
            _ => match schedule.after(now) {
                Some(next) => next,
                None => return Err(Error::Never(new.schedule.clone())),
            },
        };
        Ok(new.end_time.is_none_or(|end| next <= end).then_some(next))
    }
}

/// Puts the id of a cron where nodes of its runs find it.
pub(super) fn put_id(payload: &mut Map, id: CronId) {
    let map_of = |value: Option<&Value>| value.and_then(Value::as_map).cloned();
    let mut config = map_of(payload.get("config")).unwrap_or_default();
    let mut configurable = map_of(config.get("configurable")).unwrap_or_default();
    configurable.insert("cron_id", id.to_string());
    config.insert("configurable", Value::map(configurable));
    payload.insert("config", Value::map(config));
}
