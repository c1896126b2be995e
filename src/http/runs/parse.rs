//! The bodies of requests that create runs.

use std::{sync::Arc, time::Duration};

mod cancel;
mod config;

pub(super) use cancel::cancel;
pub(in crate::http) use config::{config, config_or_context};

use crate::{
    http::{
        Options,
        parse::{
            address,
            fields::{self, Fields},
            ids,
            metadata::{check_with_config, metadata},
        },
        server::{Call, Error},
    },
    runs::{
        Strategy,
        request::{
            Assistant, Command, Durability, IfNotExists, Mode, Nodes, OnCompletion, OnDisconnect,
            Requester, Run, Star,
        },
    },
    tree::metadata::Limits,
    value::{Map, Value},
};

/// Longest delay of a run.
const AFTER_MAX: f64 = 366.0 * 86_400.0;

/// Most runs created by one request.
const BATCH_MAX: usize = 1000;

/// Reads and checks the body.
pub(super) async fn run(call: &mut Call, stateless: bool) -> Result<Run, Error> {
    let body = call.json().await?;
    let run = parse(&body, stateless, &call.shared.options, call.requester())?;
    let id = call.run_id;
    Ok(Run { id, ..run })
}

/// The run of a request that says no more of it than its assistant.
pub(in crate::http) fn of_call(call: &Call, assistant: Assistant) -> Run {
    Run {
        id: call.run_id,
        ..Run::of(assistant, call.requester())
    }
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
    let options = &call.shared.options;
    let requester = call.requester();
    let read = |(at, item): (usize, &Value)| {
        parse(item, true, options, requester.clone()).map(|run| Run {
            // A repeated request finds all of its runs.
            id: call.run_id.map(|first| first.following(at)),
            ..run
        })
    };
    items.iter().enumerate().map(read).collect()
}

/// Reads and checks a body on behalf of a client.
pub(in crate::http) fn parse(
    body: &Value,
    stateless: bool,
    options: &Options,
    requester: Requester,
) -> Result<Run, Error> {
    let fields = Fields::of(body)?;
    let assistant = fields.text("assistant_id")?;
    let assistant = assistant.ok_or_else(|| fields.required("assistant_id"))?;
    let mut run = Run::of(ids::assistant(assistant), requester);
    run.input = fields.any("input").cloned();
    run.command = command(&fields, stateless)?;
    put_config(&mut run, &fields, options.metadata)?;
    run.context = fields.map("context")?.cloned().unwrap_or_default();
    config_or_context(&run.config, &run.context)?;
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
        let checked = options.webhooks.check(url);
        checked.map_err(|refused| Error::invalid(refused.to_string()))?;
        run.webhook = Some(url.clone());
    }
    if stateless {
        let on_completion = fields.word("on_completion", OnCompletion::ALL)?;
        run.on_completion = on_completion.unwrap_or(OnCompletion::Delete);
        return Ok(run);
    }
    put_address(&mut run, &fields)?;
    run.activate = address::coded_field(fields.flag("activate"))?;
    let strategy = fields.word("multitask_strategy", Strategy::ALL)?;
    run.multitask_strategy = strategy.unwrap_or_default();
    let if_not_exists = fields.word("if_not_exists", IfNotExists::ALL)?;
    run.if_not_exists = if_not_exists.unwrap_or(IfNotExists::Reject);
    Ok(run)
}

/// The config that a run has, and its metadata.
pub(in crate::http) fn put_config(
    run: &mut Run,
    fields: &Fields<'_>,
    limits: Limits,
) -> Result<(), Error> {
    run.config = config(fields, limits)?;
    run.metadata = metadata(fields, limits)?;
    check_with_config(fields, &run.config, &run.metadata, limits)
}

/// Where a run starts. Its config has been read.
pub(in crate::http) fn put_address(run: &mut Run, fields: &Fields<'_>) -> Result<(), Error> {
    run.address = address::state(fields, true)?;
    if run.address.ns.is_empty() && run.address.map.is_none() {
        (run.address.ns, run.address.map) = address::configured_namespace(&run.config)?;
    }
    Ok(())
}

fn command(fields: &Fields<'_>, stateless: bool) -> Result<Option<Value>, Error> {
    // Clients leave out what is null in a command, so that an empty one is none.
    if fields.map("command")?.is_none_or(Map::is_empty) {
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
mod tests;
