//! The body of a request that posts messages.

use std::sync::Arc;

mod incoming;
mod page;
mod send;

pub(super) use page::read;
pub(super) use send::send;

use incoming::{incoming, too_large};

use crate::{
    http::{
        Options,
        parse::{address, fields::Fields},
        runs::parse_run,
        server::Error,
    },
    runs::request::{Requester, Run},
    threads::messages::{NewPost, first_duplicate},
    tree::{
        AddressFields, AddressTarget,
        fork::Lineage,
        messages::{OnExisting, POST_MAX, Post},
        store::rows::Position,
    },
    value::Value,
};

/// The body of a post.
pub(super) fn post(
    body: &Value,
    options: &Options,
    requester: Requester,
) -> Result<NewPost, Error> {
    let fields = Fields::of(body)?;
    let messages = match fields.list("messages")? {
        Some(list) => {
            if list.is_empty() {
                return Err(fields.refuse("messages", "At least one message is needed"));
            }
            if list.len() > POST_MAX {
                return Err(too_large(format!(
                    "A post may have {POST_MAX} messages, this one has {}",
                    list.len()
                )));
            }
            list.iter()
                .map(|item| incoming(&Fields::at(item, "messages")?))
                .collect::<Result<_, _>>()?
        }
        None if fields.any("role").is_some() || fields.any("content").is_some() => {
            vec![incoming(&fields)?]
        }
        None => return Err(fields.required("messages")),
    };
    if let Some(id) = first_duplicate(&messages) {
        let reason = format!("The id `{id}` is that of two messages");
        return Err(fields.refuse("messages", reason));
    }
    let mut address = address::of_body(&fields)?;
    let mut lineage = lineage(&fields)?;
    if let Some(lineage) = lineage.as_mut().filter(|one| one.anchor.is_some())
        && address.messages.is_empty()
    {
        // Of a post that goes beside no message, the position is that of the fork.
        lineage.position = address.position.take().unwrap_or(lineage.position);
    }
    let (parent, branch) = behind(address)?;
    let as_node = fields.text("as_node")?.cloned();
    Ok(NewPost {
        post: Post {
            messages,
            parent,
            branch,
            activate: fields.flag("activate")?.unwrap_or(true),
            on_existing: fields
                .word("on_existing", OnExisting::ALL)?
                .unwrap_or_default(),
            expected_head: expected_head(body, &fields)?,
            as_node,
        },
        by: requester.principal.clone(),
        run: run(&fields, options, requester)?,
        lineage,
    })
}

/// A message, and whether the new ones follow it or precede it.
type Beside = (Arc<str>, Position);

/// The position of new messages: beside another one, or at the end of a branch.
fn behind(address: AddressFields) -> Result<(Option<Beside>, Option<Arc<str>>), Error> {
    if address.tag.is_some() || !address.checkpoints.is_empty() || address.event.is_some() {
        return Err(Error::invalid(
            "A message goes behind another one: say which with parent_id, or name a branch",
        ));
    }
    if address.position == Some(Position::Before) && address.messages.is_empty() {
        return Err(Error::invalid(
            "`position` is about a message: say which with parent_id",
        ));
    }
    let address = address.address(false)?;
    Ok(match address.target {
        AddressTarget::Message(id) => (Some((id, address.position)), None),
        AddressTarget::Branch(name) => (None, Some(name)),
        _ => (None, None),
    })
}

/// The fork that a post requests, before the message that it names; each of its fields has two
/// names.
fn lineage(fields: &Fields<'_>) -> Result<Option<Lineage>, Error> {
    let either = |one: &str, other: &str| {
        let found = [fields.text(one)?, fields.text(other)?];
        match found {
            [Some(one), Some(other)] if one != other => {
                Err(fields.refuse("forkedAtConversationId", "It is given twice"))
            }
            [one, other] => Ok(one.or(other)),
        }
    };
    let parent = either("forkedAtConversationId", "forked_at_thread_id")?;
    let anchor = either("forkedAtEntryId", "forked_at_message_id")?.cloned();
    match (parent, &anchor) {
        (Some(parent), _) => {
            let parent = parent.parse().map_err(|_| {
                Error::bad_request("Invalid forkedAtConversationId: must be a UUID")
                    .with_code("invalid_id")
            })?;
            Ok(Some(Lineage {
                parent,
                anchor,
                position: Position::Before,
            }))
        }
        (None, Some(_)) => Err(fields.required("forkedAtConversationId")),
        (None, None) => Ok(None),
    }
}

/// The message that the client believes to be the newest; `Some(None)` for an empty branch, which
/// null stands for.
fn expected_head(body: &Value, fields: &Fields<'_>) -> Result<Option<Option<Arc<str>>>, Error> {
    if body.get("expected_head").is_some_and(Value::is_null) {
        return Ok(Some(None));
    }
    Ok(fields.text("expected_head")?.cloned().map(Some))
}

fn run(fields: &Fields<'_>, options: &Options, requester: Requester) -> Result<Option<Run>, Error> {
    let Some(body) = fields.any("run") else {
        return Ok(None);
    };
    let inner = Fields::at(body, "run")?;
    for name in ["input", "command"] {
        if inner.any(name).is_some() {
            let reason = "The run answers the messages that are posted: it has no input of its own";
            return Err(inner.refuse(name, reason));
        }
    }
    if !address::of_body(&inner)?.is_empty() {
        return Err(fields.refuse("run", "The run starts where the messages are stored"));
    }
    parse_run(body, false, options, requester).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tree::messages::CONTENT_MAX, value};

    pub(super) fn refused<T: std::fmt::Debug>(
        result: Result<T, Error>,
    ) -> (u16, Option<&'static str>) {
        let error = result.unwrap_err();
        (error.status.as_u16(), error.code)
    }

    #[test]
    fn a_post_has_one_message_or_several() {
        let one = post(
            &value!({"role": "user", "content": "hi", "id": "a"}),
            &Options::default(),
            Requester::unrestricted(),
        )
        .unwrap();
        assert_eq!(one.post.messages.len(), 1);
        assert_eq!(one.post.messages[0].id.as_deref(), Some("a"));
        assert_eq!(one.post.messages[0].message["type"], "human");
        assert!(one.post.activate && one.post.expected_head.is_none() && one.run.is_none());
        let two = value!({"messages": [
            {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
            {"role": "tool", "content": "3", "tool_call_id": "c"}
        ], "expected_head": null, "activate": false, "on_existing": "replace"});
        let two = post(&two, &Options::default(), Requester::unrestricted())
            .unwrap()
            .post;
        assert_eq!(two.messages[0].message["type"], "ai");
        assert_eq!(two.messages[1].message["tool_call_id"], "c");
        assert_eq!(two.expected_head, Some(None));
        assert!(!two.activate);
        assert_eq!(two.on_existing, OnExisting::Replace);
    }

    #[test]
    fn each_wrong_field_of_a_post_is_refused() {
        let message = |extra: Value| {
            let mut body = value!({"role": "user", "content": "hi"});
            let extra = extra.as_map().cloned().unwrap_or_default();
            if let Some(map) = body.make_map_mut() {
                map.extend(extra);
            }
            body
        };
        let many: Vec<Value> = (0..1001)
            .map(|_| value!({"role": "user", "content": "x"}))
            .collect();
        let long = "x".repeat(CONTENT_MAX + 1);
        for (body, status) in [
            (value!([]), 422),
            (value!({}), 422),
            (value!({"messages": []}), 422),
            (value!({"messages": "x"}), 422),
            (value!({"messages": ["x"]}), 422),
            (value!({"messages": [{"role": "user"}]}), 422),
            (value!({"messages": [{"content": "x"}]}), 422),
            (value!({"messages": Value::list(many)}), 413),
            (message(value!({"content": long})), 413),
            (message(value!({"role": "robot"})), 422),
            (message(value!({"role": "remove", "id": "a"})), 422),
            (message(value!({"content": 5})), 422),
            (message(value!({"content": null})), 422),
            (message(value!({"id": ""})), 422),
            (message(value!({"id": "a b"})), 422),
            // Whether the thread has a message with a shorter one is not known yet.
            (message(value!({"id": "x".repeat(501)})), 422),
            (message(value!({"id": 5})), 422),
            (message(value!({"parent_id": "a", "branch": "main"})), 422),
            (message(value!({"parent_id": "a", "message_id": "b"})), 422),
            (message(value!({"tag": "t"})), 422),
            (message(value!({"branch": "no good"})), 422),
            (message(value!({"position": "after"})), 422),
            (message(value!({"activate": "yes"})), 422),
            (message(value!({"on_existing": "fork"})), 422),
            (message(value!({"expected_head": 5})), 422),
            (message(value!({"run": {}})), 422),
            (message(value!({"run": []})), 422),
            (
                message(value!({"run": {"assistant_id": "a", "input": {}}})),
                422,
            ),
            (
                message(value!({"run": {"assistant_id": "a", "branch": "b"}})),
                422,
            ),
        ] {
            let text = body.to_json().chars().take(90).collect::<String>();
            assert_eq!(
                refused(post(&body, &Options::default(), Requester::unrestricted())).0,
                status,
                "{text}"
            );
        }
        let twice = value!({"messages": [
            {"role": "user", "content": "a", "id": "1"},
            {"role": "user", "content": "b", "id": "1"}
        ]});
        assert_eq!(
            refused(post(&twice, &Options::default(), Requester::unrestricted())).0,
            422
        );
    }
}
