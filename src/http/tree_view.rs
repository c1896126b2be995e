//! Heads of branches, and the tree of a whole thread.

use std::sync::Arc;

use hyper::{Response, StatusCode};

use super::{
    parse::address::refuse_others,
    server::{Body, Call, Error, body},
};
use crate::{
    threads::tree_view::{Format, Leaf, Outline, OutlineSelection},
    tree::address::parse_name,
    value::{Map, Value},
};

/// Most nodes of a tree, and how many there are when the request does not say.
const MOST: i64 = 10_000;

/// `GET /threads/{thread_id}/head`
pub(super) async fn head(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    refuse_others(&call.query, &["branch"])?;
    let branch = call.query.get("branch").map(parse_name).transpose()?;
    let head = call.threads().head(thread, branch.as_deref()).await?;
    let map = Map::from([
        ("thread_id", thread.to_string().into()),
        ("branch", Value::Str(head.branch)),
        (
            "latest_checkpoint_id",
            head.checkpoint.map(|id| id.to_string()).into(),
        ),
        ("latest_ai_message_id", text(head.reply)),
        ("event_number", head.event_number.into()),
    ]);
    Ok(body::json(StatusCode::OK, &Value::map(map)))
}

/// `GET /threads/{thread_id}/tree`
pub(super) async fn tree(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let limit = call.query.limit(MOST, MOST)?;
    let below = call.query.integer("after_depth")?.map(|depth| match depth {
        // Nothing is deeper than the greatest depth there can be.
        0.. => Ok(i32::try_from(depth).unwrap_or(i32::MAX)),
        _ => Err(Error::invalid(format!(
            "Invalid after_depth {depth}: 0 or more"
        ))),
    });
    let selection = OutlineSelection {
        format: call.query.word("format", Format::ALL)?.unwrap_or_default(),
        limit,
        below: below.transpose()?,
    };
    let found = call.threads().outline(thread, selection).await?;
    Ok(body::json(StatusCode::OK, &shown(&found)))
}

fn text(text: Option<Arc<str>>) -> Value {
    text.map(Value::Str).into()
}

fn shown(found: &Outline) -> Value {
    let nodes = found.nodes.iter().map(node);
    let branches = found.branches.iter().map(|branch| {
        let head = branch.row.head.map(|id| id.to_string());
        Value::map(Map::from([
            ("name", Value::Str(branch.row.name.clone())),
            ("head_message_id", text(branch.head_message.clone())),
            ("head_checkpoint_id", head.into()),
            ("is_active", branch.is_active.into()),
        ]))
    });
    let tags = found.tags.iter().map(|tag| {
        Value::map(Map::from([
            ("name", Value::Str(tag.name.clone())),
            ("message_id", text(tag.message_id.clone())),
            ("checkpoint_id", tag.checkpoint.to_string().into()),
        ]))
    });
    Value::map(Map::from([
        ("nodes", Value::list(nodes.collect())),
        ("branches", Value::list(branches.collect())),
        ("tags", Value::list(tags.collect())),
        ("truncated", found.truncated.into()),
    ]))
}

fn node(leaf: &Leaf) -> Value {
    Value::map(Map::from([
        ("id", Value::Str(leaf.id.clone())),
        ("parent_id", text(leaf.parent.clone())),
        ("role", text(leaf.role.clone())),
        ("preview", text(leaf.preview.clone())),
        ("depth", i64::from(leaf.depth).into()),
        ("thread_id", leaf.thread.to_string().into()),
        ("created_at", leaf.created_at.to_string().into()),
    ]))
}
