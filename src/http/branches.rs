//! Branches of threads: create, rewind, restore, activate, rename and delete.

use std::sync::Arc;

use hyper::{Response, StatusCode};

use super::{
    parse::{
        address::{self},
        fields::Fields,
    },
    server::{Body, Call, Error, body},
};
use crate::{
    threads::branches::{BranchStart, Branched, Branches, NewBranch},
    tree::{
        Address,
        address::parse_name,
        branch::{BranchView, QueuedRuns, SwitchPolicy},
    },
    value::{Map, Value},
};

const PENDING: &[(&str, QueuedRuns)] = &[("cancel", QueuedRuns::Cancel), ("keep", QueuedRuns::Pin)];

/// `GET /threads/{thread_id}/branches`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let found = call.threads().branches(call.path.thread()?).await?;
    Ok(body::json(StatusCode::OK, &listed(&found)))
}

/// `POST /threads/{thread_id}/branches`
pub(super) async fn create(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json_or_nothing().await?;
    let fields = Fields::of(&body)?;
    let activate = fields.flag("activate")?.unwrap_or(false);
    let leave = leave(&fields, QueuedRuns::Float)?;
    let new = NewBranch {
        from: BranchStart::Address(address::of_body(&fields)?.address(false)?),
        name: wanted_name(&fields)?,
        origin: "checkpoint",
        activate: activate.then_some(leave),
    };
    let made = call.threads().make_branch(call.path.thread()?, new).await?;
    let mut map = made_map(&made);
    if !made.cancelled.is_empty() {
        map.insert("cancelled_runs", cancelled(&made));
    }
    Ok(body::json(StatusCode::CREATED, &Value::map(map)))
}

/// `POST /threads/{thread_id}/rewind`
pub(super) async fn rewind(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json_or_nothing().await?;
    let fields = Fields::of(&body)?;
    let address = address::of_body(&fields)?;
    if address.is_empty() {
        return Err(Error::invalid(
            "Say where to go back to: message_id, checkpoint_id, event_number, branch or tag",
        ));
    }
    let new = NewBranch {
        from: BranchStart::Address(address.address(false)?),
        name: wanted_name(&fields)?,
        origin: "rewind",
        activate: Some(leave(&fields, QueuedRuns::Cancel)?),
    };
    let made = call.threads().make_branch(call.path.thread()?, new).await?;
    let mut map = made_map(&made);
    map.insert("cancelled_runs", cancelled(&made));
    if let Some(text) = &made.prefill {
        map.insert("prefill", text.clone());
    }
    Ok(body::json(StatusCode::CREATED, &Value::map(map)))
}

/// `POST /threads/{thread_id}/btw`
pub(super) async fn btw(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json_or_nothing().await?;
    let fields = Fields::of(&body)?;
    let address = address::of_body(&fields)?.address(false)?;
    let new = NewBranch {
        from: if address == Address::default() {
            BranchStart::Side
        } else {
            BranchStart::Address(address)
        },
        name: wanted_name(&fields)?,
        origin: "btw",
        activate: None,
    };
    let made = call.threads().make_branch(call.path.thread()?, new).await?;
    Ok(body::json(
        StatusCode::CREATED,
        &Value::map(made_map(&made)),
    ))
}

/// `POST /threads/{thread_id}/restore`
pub(super) async fn restore(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json_or_nothing().await?;
    let fields = Fields::of(&body)?;
    let address = address::of_body(&fields)?;
    if address.tag.is_none() {
        return Err(fields.required("tag"));
    }
    let new = NewBranch {
        from: BranchStart::Address(address.address(false)?),
        name: wanted_name(&fields)?,
        origin: "restore",
        activate: Some(leave(&fields, QueuedRuns::Cancel)?),
    };
    let made = call.threads().make_branch(call.path.thread()?, new).await?;
    let mut map = made_map(&made);
    map.insert("cancelled_runs", cancelled(&made));
    Ok(body::json(StatusCode::CREATED, &Value::map(map)))
}

/// `POST /threads/{thread_id}/branches/{name}/activate`
pub(super) async fn activate(mut call: Call) -> Result<Response<Body>, Error> {
    let (thread, name) = (call.path.thread()?, call.path.name()?);
    let body = call.json_or_nothing().await?;
    let how = leave(&Fields::of(&body)?, QueuedRuns::Cancel)?;
    let made = call.threads().activate_branch(thread, &name, how).await?;
    let mut map = made_map(&made);
    map.insert("cancelled_runs", cancelled(&made));
    Ok(body::json(StatusCode::OK, &Value::map(map)))
}

/// `PATCH /threads/{thread_id}/branches/{name}`
pub(super) async fn rename(mut call: Call) -> Result<Response<Body>, Error> {
    let (thread, old) = (call.path.thread()?, call.path.name()?);
    let body = call.json_or_nothing().await?;
    let fields = Fields::of(&body)?;
    let new = wanted_name(&fields)?.ok_or_else(|| fields.required("name"))?;
    let made = call.threads().rename_branch(thread, &old, new).await?;
    Ok(body::json(StatusCode::OK, &Value::map(made_map(&made))))
}

/// `DELETE /threads/{thread_id}/branches/{name}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let (thread, name) = (call.path.thread()?, call.path.name()?);
    call.threads().delete_branch(thread, &name).await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// The address in a body; one without an address names the active branch.
pub(super) fn address_of(body: &Value) -> Result<Address, Error> {
    let address = address::of_body(&Fields::of(body)?)?;
    Ok(address.address(false)?)
}

fn wanted_name(fields: &Fields<'_>) -> Result<Option<Arc<str>>, Error> {
    let text = fields.text("name")?;
    Ok(text.map(|text| parse_name(text)).transpose()?)
}

fn leave(fields: &Fields<'_>, queued: QueuedRuns) -> Result<SwitchPolicy, Error> {
    Ok(SwitchPolicy {
        queued: fields.word("pending", PENDING)?.unwrap_or(queued),
        cancel_running: fields.flag("cancel_running")?.unwrap_or(false),
    })
}

fn cancelled(made: &Branched) -> Value {
    let ids = made.cancelled.iter();
    Value::list(ids.map(|id| id.to_string().into()).collect())
}

fn made_map(made: &Branched) -> Map {
    let mut map = branch(&made.branch);
    map.insert("event_number", made.event_number);
    if made.dangling {
        let warnings = vec![Value::str("dangling_tool_calls")];
        map.insert("warnings", Value::list(warnings));
    }
    map
}

/// A branch in the form clients see.
pub(super) fn branch(branch: &BranchView) -> Map {
    let row = &branch.row;
    let text = |text: &Option<Arc<str>>| Value::from(text.clone().map(Value::Str));
    Map::from([
        ("name", Value::Str(row.name.clone())),
        ("is_active", branch.is_active.into()),
        (
            "head_checkpoint_id",
            row.head.map(|id| id.to_string()).into(),
        ),
        ("head_message_id", text(&branch.head_message)),
        ("message_count", i64::from(branch.messages).into()),
        ("origin", Value::Str(row.origin.clone())),
        ("source_branch", text(&branch.source)),
        ("status", branch.status().into()),
        ("version", row.version.into()),
        ("created_at", row.created_at.to_string().into()),
        ("updated_at", row.updated_at.to_string().into()),
    ])
}

fn listed(found: &Branches) -> Value {
    let branches = found.branches.iter();
    let leaves = found.leaves.iter().map(|(node, names)| {
        let names = names.iter().map(|name| Value::Str(name.clone()));
        Value::map(Map::from([
            ("message_id", Value::Str(node.message_id.clone())),
            ("depth", i64::from(node.ordinal).into()),
            ("created_at", node.created_at.to_string().into()),
            ("branches", Value::list(names.collect())),
        ]))
    });
    let forks = found.forks.iter().map(|fork| {
        Value::map(Map::from([
            ("thread_id", fork.id.to_string().into()),
            (
                "parent_thread_id",
                fork.parent.map(|id| id.to_string()).into(),
            ),
            ("from_event_number", fork.fork_event_number.into()),
            ("created_at", fork.created_at.to_string().into()),
        ]))
    });
    let mut map = Map::from([
        ("active", found.active.clone().map(Value::Str).into()),
        (
            "branches",
            Value::list(branches.map(|one| Value::map(branch(one))).collect()),
        ),
        ("leaves", Value::list(leaves.collect())),
        ("forks", Value::list(forks.collect())),
    ]);
    if found.more_forks {
        map.insert("more_forks", true);
    }
    Value::map(map)
}
