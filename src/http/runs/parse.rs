//! The bodies of requests that create or cancel runs.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    http::{
        parse::{
            address,
            fields::{self, Fields},
            ids,
            metadata::metadata,
            webhook,
        },
        server::{call::Call, error::Error},
    },
    runs::{
        Strategy,
        request::{
            Cancel, CancelStatus, Command, Durability, IfNotExists, Mode, Nodes, OnCompletion,
            OnDisconnect, Run, Star,
        },
    },
    value::{Map, Value},
};

/// The greatest limit of supersteps that a request may set.
const RECURSION_MAX: i64 = 10_000;
/// Longest delay of a run.
const AFTER_MAX: f64 = 366.0 * 86_400.0;

/// Most runs created by one request.
const BATCH_MAX: usize = 1000;

pub(in crate::http) const STRATEGIES: &[(&str, Strategy)] = &[
    ("reject", Strategy::Reject),
    ("rollback", Strategy::Rollback),
    ("interrupt", Strategy::Interrupt),
    ("enqueue", Strategy::Enqueue),
];

/// Reads and checks the body.
pub(super) async fn run(call: &mut Call, stateless: bool) -> Result<Run, Error> {
    let body = call.json().await?;
    let mut run = parse(&body, stateless, call.shared.options.webhook_allow_loopback)?;
    run.request_id = request_id(call);
    run.principal = call.principal();
    run.id = call.run_id;
    Ok(run)
}

/// Reads and checks a list of stateless runs: all of it before any is created.
pub(super) async fn batch(call: &mut Call) -> Result<Vec<Run>, Error> {
    let body = call.json().await?;
    let Some(items) = body.as_list() else {
        return Err(Error::invalid("A list of runs is needed"));
    };
    if items.is_empty() {
        return Err(Error::invalid("[] has less than 1 item"));
    }
    if items.len() > BATCH_MAX {
        return Err(Error::invalid(format!(
            "At most {BATCH_MAX} runs may be created together"
        )));
    }
    let loopback = call.shared.options.webhook_allow_loopback;
    let id = request_id(call);
    let principal = call.principal();
    let read = |item: &Value| {
        parse(item, true, loopback).map(|run| Run {
            request_id: id.clone(),
            principal: principal.clone(),
            ..run
        })
    };
    items.iter().map(read).collect()
}

/// Reads which runs to cancel.
pub(super) fn cancel(body: &Value) -> Result<Cancel, Error> {
    let fields = Fields::of(body)?;
    let (thread, runs) = (fields.text("thread_id")?, fields.texts("run_ids")?);
    if let Some(status) = fields.word("status", CancelStatus::ALL)? {
        // A request that names runs does not mean all of them.
        return match thread.is_none() && runs.is_none() {
            true => Ok(Cancel::Status(status)),
            false => Err(Error::invalid(
                "Give either `status`, or `thread_id` and `run_ids`, not both",
            )),
        };
    }
    let (Some(thread), Some(runs)) = (thread, runs) else {
        return Err(Error::invalid(
            "Either `status`, or `thread_id` and `run_ids` are needed",
        ));
    };
    let thread = ids::thread(thread)?;
    let runs = runs.iter().map(|id| id.parse());
    let runs = runs.collect::<Result<Vec<_>, _>>();
    let runs = runs.map_err(|_| Error::invalid("Invalid run ID: must be a UUID"))?;
    Ok(Cancel::Runs(thread, runs))
}

fn request_id(call: &Call) -> Arc<str> {
    match call.header("x-request-id").filter(|id| !id.is_empty()) {
        Some(id) => id.into(),
        None => Uuid::new_v4().to_string().into(),
    }
}

pub(in crate::http) fn parse(
    body: &Value,
    stateless: bool,
    loopback_webhooks: bool,
) -> Result<Run, Error> {
    let fields = Fields::of(body)?;
    let assistant = fields.text("assistant_id")?;
    let assistant = assistant.ok_or_else(|| fields.required("assistant_id"))?;
    let mut run = Run::of(ids::assistant(assistant));
    run.input = fields.any("input").cloned();
    run.command = command(&fields, stateless)?;
    run.config = config(&fields)?;
    run.context = fields.map("context")?.cloned().unwrap_or_default();
    config_or_context(&run.config, &run.context)?;
    run.metadata = metadata(&fields)?;
    run.stream_mode = modes(&fields)?;
    run.stream_subgraphs = fields.flag("stream_subgraphs")?.unwrap_or(false);
    run.stream_resumable = fields.flag("stream_resumable")?.unwrap_or(false);
    let on_disconnect = fields.word("on_disconnect", OnDisconnect::ALL)?;
    run.on_disconnect = on_disconnect.unwrap_or(OnDisconnect::Continue);
    run.interrupt_before = nodes(&fields, "interrupt_before")?;
    run.interrupt_after = nodes(&fields, "interrupt_after")?;
    run.after = after(&fields)?;
    run.durability = fields.word("durability", Durability::ALL)?;
    run.checkpoint_during = fields.flag("checkpoint_during")?;
    if run.durability.is_none() && run.checkpoint_during == Some(false) {
        run.durability = Some(Durability::Exit);
    }
    // Feedback is not collected.
    fields.texts("feedback_keys")?;
    if let Some(url) = fields.text("webhook")? {
        webhook::check(url, loopback_webhooks)?;
        run.webhook = Some(url.clone());
    }
    if stateless {
        let on_completion = fields.word("on_completion", OnCompletion::ALL)?;
        run.on_completion = on_completion.unwrap_or(OnCompletion::Delete);
        return Ok(run);
    }
    run.address = address::state(&fields, true)?;
    if run.address.ns.is_empty() && run.address.map.is_none() {
        (run.address.ns, run.address.map) = address::configured_namespace(&run.config)?;
    }
    run.activate = address::coded_field(fields.flag("activate"))?;
    let strategy = fields.word("multitask_strategy", STRATEGIES)?;
    run.multitask_strategy = strategy.unwrap_or_default();
    let if_not_exists = fields.word("if_not_exists", IfNotExists::ALL)?;
    run.if_not_exists = if_not_exists.unwrap_or(IfNotExists::Reject);
    Ok(run)
}

fn command(fields: &Fields<'_>, stateless: bool) -> Result<Option<Value>, Error> {
    if fields.map("command")?.is_none() {
        return Ok(None);
    }
    let command = fields.any("command").cloned().unwrap_or_default();
    let parsed = Command::parse(&command).map_err(Error::invalid)?;
    if stateless && parsed.resume.is_some() {
        return Err(Error::bad_request(
            "You must provide a thread_id when resuming.",
        ));
    }
    Ok(Some(command))
}

/// 400 when both `config.configurable` and `context` have values.
pub(in crate::http) fn config_or_context(config: &Map, context: &Map) -> Result<(), Error> {
    if !context.is_empty() && has_configurable(config) {
        return Err(Error::bad_request(
            "Cannot specify both configurable and context. Prefer setting context alone: it \
             replaces configurable.",
        ));
    }
    Ok(())
}

/// The field `config`, its known fields checked.
pub(in crate::http) fn config(fields: &Fields<'_>) -> Result<Map, Error> {
    let Some(value) = fields.any("config") else {
        return Ok(Map::default());
    };
    let config = Fields::at(value, "config")?;
    config.map("configurable")?;
    config.map("metadata")?;
    config.texts("tags")?;
    // The run itself fails on less than one.
    config.integer("recursion_limit", i64::MIN, RECURSION_MAX)?;
    let mut map = value.as_map().cloned().unwrap_or_default();
    map.retain(|_, value| !value.is_null());
    Ok(map)
}

fn has_configurable(config: &Map) -> bool {
    let configurable = config.get("configurable").and_then(Value::as_map);
    // Where to start from is no configuration of the graph.
    let is_address = |key: &str| {
        matches!(
            key,
            "thread_id" | "checkpoint_id" | "checkpoint_ns" | "checkpoint_map"
        )
    };
    configurable.is_some_and(|map| map.keys().any(|key| !is_address(key)))
}

fn modes(fields: &Fields<'_>) -> Result<Vec<Mode>, Error> {
    let one_of = |value: &Value| {
        fields::pick(value, Mode::ALL)
            .ok_or_else(|| fields.refuse("stream_mode", fields::not_one_of(value, Mode::ALL)))
    };
    let mut modes = Vec::new();
    match fields.any("stream_mode") {
        None => {}
        Some(Value::List(items)) => {
            for item in items.iter() {
                let mode = one_of(item)?;
                if !modes.contains(&mode) {
                    modes.push(mode);
                }
            }
        }
        Some(value) => modes.push(one_of(value)?),
    }
    if modes.is_empty() {
        modes.push(Mode::Values);
    }
    Ok(modes)
}

fn nodes(fields: &Fields<'_>, name: &str) -> Result<Option<Nodes>, Error> {
    match fields.any(name) {
        None => Ok(None),
        Some(Value::Str(star)) if &**star == "*" => Ok(Some(Nodes::All(Star::Star))),
        Some(Value::List(_)) => {
            let names: Option<Vec<Arc<str>>> = fields.texts(name)?;
            Ok(names.map(Nodes::Named))
        }
        Some(_) => Err(fields.refuse(name, "Either \"*\" or a list of node names is needed")),
    }
}

fn after(fields: &Fields<'_>) -> Result<Duration, Error> {
    let seconds = fields.number("after_seconds")?.unwrap_or(0.0);
    if seconds > AFTER_MAX {
        let reason = format!("{seconds} is greater than the maximum of {AFTER_MAX}");
        return Err(fields.refuse("after_seconds", reason));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{runs::request::Assistant, value};

    fn parsed(body: Value) -> Result<Run, Error> {
        parse(&body, false, false)
    }

    fn refused(mut body: Value, stateless: bool) -> (u16, String) {
        let map = body.make_map_mut().unwrap();
        map.insert("assistant_id", "counter");
        let error = parse(&body, stateless, false).unwrap_err();
        (error.status.as_u16(), error.detail.into_owned())
    }

    #[test]
    fn a_bare_request_gets_the_documented_defaults() {
        let run = parsed(value!({"assistant_id": "counter", "bogus": 1, "input": null})).unwrap();
        assert_eq!(run.assistant, Assistant::Graph("counter".into()));
        assert_eq!(run.input, None);
        assert_eq!(run.stream_mode, [Mode::Values]);
        assert_eq!(run.on_disconnect, OnDisconnect::Continue);
        assert_eq!(run.multitask_strategy, Strategy::Enqueue);
        assert_eq!(run.if_not_exists, IfNotExists::Reject);
        assert_eq!(run.durability, None);
        assert_eq!(run.after, Duration::ZERO);
        let id = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
        let run = parsed(value!({"assistant_id": id, "stream_mode": [], "input": {}})).unwrap();
        assert_eq!(run.assistant, Assistant::Id(id.parse().unwrap()));
        assert_eq!(run.stream_mode, [Mode::Values]);
        assert_eq!(run.input, Some(value!({})));
    }

    #[test]
    fn the_checkpoint_is_read_wherever_clients_put_it() {
        let id = "1f1e52d3-b51d-655d-8000-078d7d9aa83f";
        for body in [
            value!({"assistant_id": "a", "checkpoint_id": id}),
            value!({"assistant_id": "a", "checkpoint": {"checkpoint_id": id, "checkpoint_ns": ""}}),
            value!({"assistant_id": "a", "config": {"configurable": {"checkpoint_id": id}}}),
        ] {
            let run = parsed(body).unwrap();
            assert_eq!(run.address.checkpoint.unwrap().to_string(), id);
        }
        let both = parsed(value!({
            "assistant_id": "a", "context": {"k": 1},
            "config": {"configurable": {"checkpoint_id": id}}
        }));
        assert!(both.is_ok(), "an address is no configuration");
        let nested = value!({"assistant_id": "a", "checkpoint": {
            "checkpoint_id": id, "checkpoint_ns": "child:1", "checkpoint_map": {"": id}
        }});
        let address = parsed(nested).unwrap().address;
        assert_eq!(&*address.ns, "child:1");
        assert!(address.map.is_some());
    }

    #[test]
    fn each_wrong_field_is_refused_with_its_reason() {
        let long = Map::from_iter((0..65).map(|n| (n.to_string().into(), Value::Null)));
        for (body, status, part) in [
            (
                value!({"stream_mode": "bogus"}),
                422,
                "\"bogus\" is not one of \"values\"",
            ),
            (
                value!({"stream_mode": ["values", "tools"]}),
                422,
                "\"tools\" is not one of",
            ),
            (
                value!({"multitask_strategy": "bogus"}),
                422,
                "\"reject\", \"rollback\"",
            ),
            (
                value!({"durability": "x"}),
                422,
                "\"sync\", \"async\" or \"exit\"",
            ),
            (
                value!({"after_seconds": "x"}),
                422,
                "not of type \"number\"",
            ),
            (
                value!({"after_seconds": 1e300}),
                422,
                "greater than the maximum",
            ),
            (
                value!({"checkpoint_id": "nope"}),
                422,
                "Invalid checkpoint ID",
            ),
            (
                value!({"checkpoint": {"checkpoint_id": "nope"}}),
                422,
                "Invalid checkpoint ID",
            ),
            (
                value!({"config": {"recursion_limit": 10001}}),
                422,
                "maximum of 10000",
            ),
            (value!({"config": {"tags": [1]}}), 422, "in `config.tags`"),
            (value!({"config": []}), 422, "in `config`"),
            (value!({"interrupt_before": "first"}), 422, "\"*\""),
            (
                value!({"interrupt_after": [1]}),
                422,
                "not of type \"string\"",
            ),
            (value!({"command": 1}), 422, "not of type \"object\""),
            (value!({"command": {"goto": 1}}), 422, "`command.goto`"),
            (value!({"webhook": "http://"}), 422, "Webhook"),
            (value!({"metadata": Value::map(long)}), 422, "at most 64"),
            (
                value!({"config": {"configurable": {"a": 1}}, "context": {"b": 2}}),
                400,
                "Cannot specify both",
            ),
        ] {
            let (got, detail) = refused(body, false);
            assert_eq!(got, status, "{detail}");
            assert!(detail.contains(part), "{detail} has no {part}");
        }
        let error = parsed(value!({"input": {}})).unwrap_err();
        assert_eq!(error.detail, "\"assistant_id\" is a required property");
        let (status, detail) = refused(value!({"command": {"resume": 1}}), true);
        assert_eq!(
            (status, &*detail),
            (400, "You must provide a thread_id when resuming.")
        );
    }

    #[test]
    fn the_old_word_for_durability_is_understood() {
        let body = value!({"assistant_id": "a", "checkpoint_during": false});
        assert_eq!(parsed(body).unwrap().durability, Some(Durability::Exit));
    }

    #[test]
    fn runs_to_cancel_are_named_by_status_or_by_id() {
        let id = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
        let all = cancel(&value!({"status": "all"})).unwrap();
        assert_eq!(all, Cancel::Status(CancelStatus::All));
        let some = cancel(&value!({"thread_id": id, "run_ids": [id]})).unwrap();
        assert_eq!(
            some,
            Cancel::Runs(id.parse().unwrap(), vec![id.parse().unwrap()])
        );
        for body in [
            value!({}),
            value!({"status": "bogus"}),
            value!({"thread_id": id}),
            value!({"thread_id": "x", "run_ids": []}),
            value!({"thread_id": id, "run_ids": ["x"]}),
        ] {
            assert_eq!(cancel(&body).unwrap_err().status, 422, "{body}");
        }
    }
}
