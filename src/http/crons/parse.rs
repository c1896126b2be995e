//! The bodies of requests about crons, and the runs that crons request.

use crate::{
    crons::{Change, CronRow, request::OnRunCompleted},
    http::{
        Options,
        parse::{fields::Fields, metadata::metadata},
        runs::parse_run,
        server::Error,
    },
    runs::request::{Requester, Run, identity},
    time::Timestamp,
    tree::metadata::Limits,
    value::{Map, Value},
};

/// The fields of a cron that are those of its runs.
const OF_RUNS: [&str; 15] = [
    "assistant_id",
    "input",
    "config",
    "context",
    "metadata",
    "webhook",
    "interrupt_before",
    "interrupt_after",
    "stream_mode",
    "stream_subgraphs",
    "stream_resumable",
    "durability",
    "checkpoint_during",
    "multitask_strategy",
    "feedback_keys",
];

/// The fields of a cron beside those.
const OWN: [&str; 5] = [
    "schedule",
    "timezone",
    "end_time",
    "enabled",
    "on_run_completed",
];

/// What is configurable only of a run that a client addresses.
const OF_ADDRESSES: [&str; 5] = [
    "cron_id",
    "thread_id",
    "checkpoint_id",
    "checkpoint_ns",
    "checkpoint_map",
];

/// The fields that are a cron's own. Those of its runs are in the payload.
pub(super) fn content(fields: &Fields<'_>, limits: Limits) -> Result<Change, Error> {
    let text = |name| Ok::<_, Error>(fields.text(name)?.map(|text| text.to_string()));
    let end_time = match fields.map_of().get("end_time") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(_) => {
            let text = text("end_time")?.unwrap_or_default();
            let time = end_time(&text).ok_or_else(|| {
                let reason = "A date and time in the form of ISO 8601 is needed, such as \
                              2030-01-01T00:00:00Z";
                fields.refuse("end_time", reason)
            })?;
            Some(time)
        }
    };
    let timezone = match fields.map_of().get("timezone") {
        Some(Value::Null) => Some(None),
        _ => text("timezone")?.map(Some),
    };
    let mut payload = fields.map_of().clone();
    payload.retain(|name, _| OF_RUNS.contains(&&**name) || OWN.contains(&&**name));
    if let Some(config) = payload.get_mut("config").and_then(Value::make_map_mut) {
        identity::remove_servers(config);
    }
    if let Some(Value::Map(context)) = payload.get("context") {
        let context = identity::without_servers(context);
        payload.insert("context", Value::map(context));
    }
    Ok(Change {
        schedule: text("schedule")?,
        timezone,
        end_time,
        enabled: fields.flag("enabled")?,
        on_run_completed: fields.word("on_run_completed", OnRunCompleted::ALL)?,
        metadata: metadata(fields, limits)?,
        payload,
    })
}

/// The time that an end names. The last days that a calendar has mean that there is none.
fn end_time(text: &str) -> Option<Option<Timestamp>> {
    if let Some(time) = Timestamp::read(text) {
        return Some(Some(time));
    }
    let rest = text.strip_prefix("9999-12-3")?;
    let is_day = rest.starts_with(['0', '1']);
    // The day before the last ones tells whether the rest makes sense.
    let earlier = Timestamp::read(&format!("9999-12-2{rest}")).filter(|_| is_day);
    earlier.map(|_| None)
}

/// Checks what a change says of the runs, as if it said no more.
pub(super) fn check(change: &Map, options: &Options, requester: Requester) -> Result<(), Error> {
    let mut body = change.clone();
    body.retain(|_, value| !value.is_null());
    // Whatever it says, the assistant stays.
    body.insert("assistant_id", uuid::Uuid::nil().to_string());
    request(&body, options, requester).map(drop)
}

/// The run that a body or a payload requests.
pub(super) fn request(
    payload: &Map,
    options: &Options,
    requester: Requester,
) -> Result<Run, Error> {
    let mut body = Map::with_capacity(OF_RUNS.len());
    for name in OF_RUNS {
        if let Some(value) = payload.get(name) {
            body.insert(name, value.clone());
        }
    }
    let configurable = body
        .get_mut("config")
        .and_then(Value::make_map_mut)
        .and_then(|config| config.get_mut("configurable")?.make_map_mut());
    if let Some(configurable) = configurable {
        configurable.retain(|key, _| !OF_ADDRESSES.contains(&&**key));
    }
    parse_run(&Value::map(body), false, options, requester)
}

/// The run that a cron requests. Its metadata was checked when it was stored; so was
/// its webhook, and it is when it is called.
pub(in crate::http) fn request_of(cron: &CronRow) -> Result<Run, String> {
    let mut payload = cron.payload.clone();
    let webhook = payload.remove("webhook");
    let requester = Requester::of_cron(cron);
    let options = Options {
        metadata: Limits::NONE,
        ..Options::default()
    };
    let run = request(&payload, &options, requester).map_err(|error| error.to_string())?;
    Ok(Run {
        webhook: webhook.and_then(|url| url.as_str().map(Into::into)),
        ..run
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_days_of_the_calendar_are_no_end() {
        for text in [
            "9999-12-31T23:59:59Z",
            "9999-12-31",
            "9999-12-30T23:00:00+00:00",
        ] {
            assert_eq!(end_time(text), Some(None), "{text}");
        }
        for text in ["9999-12-32", "9999-12-31T25:00:00Z", "9999-12-3", "never"] {
            assert_eq!(end_time(text), None, "{text}");
        }
        let time = Timestamp::read("9999-12-01T00:00:00Z");
        assert_eq!(end_time("9999-12-01T00:00:00Z"), Some(time));
    }
}
