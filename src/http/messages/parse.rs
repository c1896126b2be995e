//! Bodies and queries of requests about messages.

use std::sync::Arc;

use hyper::StatusCode;

use crate::{
    http::{
        parse::{address, fields::Fields, ids, params::Query},
        runs::{STRATEGIES, parse_run},
        server::error::Error,
    },
    message,
    runs::request,
    threads::messages::{NewMessage, NewPost, first_duplicate, is_blank},
    tree::{
        AddressFields, AddressTarget,
        address::parse_name,
        fork::Lineage,
        messages::{
            CONTENT_MAX, ID_MAX, Incoming, OnExisting, PAGE_MAX, POST_MAX, Post,
            page::{PagePosition, PageRequest, PageView},
            path::PathSelector,
            send::SendTarget,
        },
        store::rows::Position,
    },
    value::Value,
};

const ON_EXISTING: &[(&str, OnExisting)] = &[
    ("branch", OnExisting::Branch),
    ("replace", OnExisting::Replace),
    ("reject", OnExisting::Reject),
];
const ROLES: &[(&str, &str)] = &[
    ("user", "human"),
    ("assistant", "ai"),
    ("system", "system"),
    ("tool", "tool"),
    ("human", "human"),
    ("ai", "ai"),
];
/// Fields of a request that may stand beside those of its only message.
const OF_REQUEST: [&str; 15] = [
    "messages",
    "parent_id",
    "message_id",
    "position",
    "branch",
    "tag",
    "activate",
    "on_existing",
    "expected_head",
    "as_node",
    "run",
    "forkedAtConversationId",
    "forkedAtEntryId",
    "forked_at_thread_id",
    "forked_at_message_id",
];
const VIEWS: &[(&str, PageView)] = &[("path", PageView::Path), ("state", PageView::State)];

/// The body of a post.
pub(super) fn post(body: &Value, loopback_webhooks: bool, by: Arc<str>) -> Result<NewPost, Error> {
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
    let (parent, branch) = behind(address::of_body(&fields)?)?;
    let as_node = fields.text("as_node")?.cloned();
    Ok(NewPost {
        post: Post {
            messages,
            parent,
            branch,
            activate: fields.flag("activate")?.unwrap_or(true),
            on_existing: fields.word("on_existing", ON_EXISTING)?.unwrap_or_default(),
            expected_head: expected_head(body, &fields)?,
            as_node,
        },
        run: run(&fields, loopback_webhooks)?,
        lineage: lineage(&fields)?,
        by,
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

/// The fork that a post requests; each of its fields has two names.
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
            Ok(Some(Lineage { parent, anchor }))
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

fn run(fields: &Fields<'_>, loopback_webhooks: bool) -> Result<Option<request::Run>, Error> {
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
    parse_run(body, false, loopback_webhooks).map(Some)
}

fn incoming(fields: &Fields<'_>) -> Result<Incoming, Error> {
    let role = fields.word("role", ROLES)?;
    let role = match role {
        Some(role) => role,
        None => {
            let kind = fields.word("type", ROLES)?;
            kind.ok_or_else(|| fields.required("role"))?
        }
    };
    let id = fields.text("id")?.cloned();
    if let Some(id) = &id {
        check_id(fields, "id", id)?;
    }
    match fields.any("content") {
        Some(content) => check_content(fields, content)?,
        None if fields.list("tool_calls")?.is_some() => {}
        None => return Err(fields.required("content")),
    }
    let mut map = fields.map_of().clone();
    map.remove("role");
    map.retain(|key, value| !value.is_null() && !OF_REQUEST.contains(&&**key));
    map.insert("type", role);
    let message = message::coerce(&Value::map(map));
    let message = message.map_err(|error| Error::invalid(format!("Invalid message: {error}")))?;
    Ok(Incoming { id, message })
}

fn check_id(fields: &Fields<'_>, field: &str, id: &str) -> Result<(), Error> {
    let visible = id.chars().all(|c| !c.is_control() && !c.is_whitespace());
    match visible && (1..=ID_MAX).contains(&id.chars().count()) {
        true => Ok(()),
        false => {
            let reason = format!("The id of a message has 1 to {ID_MAX} visible characters");
            Err(fields.refuse(field, reason))
        }
    }
}

fn check_content(fields: &Fields<'_>, content: &Value) -> Result<(), Error> {
    let bytes = match content {
        Value::Str(text) => text.len(),
        Value::List(_) => content.to_json().len(),
        _ => {
            let reason = "The content of a message is a text or a list of parts";
            return Err(fields.refuse("content", reason));
        }
    };
    match bytes > CONTENT_MAX {
        true => Err(too_large(format!(
            "The content of a message may have {CONTENT_MAX} bytes, this one has {bytes}"
        ))),
        false => Ok(()),
    }
}

/// The body of a message that a run replies to.
pub(super) fn send(body: &Value) -> Result<NewMessage, Error> {
    let fields = Fields::of(body)?;
    let thread = fields.text("thread_id")?;
    let thread = thread.ok_or_else(|| fields.required("thread_id"))?;
    let thread = ids::thread(thread)?;
    let content = match body.get("content") {
        None => return Err(fields.required("content")),
        Some(Value::Null) => Value::Null,
        Some(content) => {
            check_content(&fields, content)?;
            content.clone()
        }
    };
    if is_blank(&content) {
        let detail = "The message says nothing: `content` is blank";
        return Err(Error::bad_request(detail).with_code("blank_message"));
    }
    let id = fields.text("message_id")?.cloned();
    if let Some(id) = &id {
        check_id(&fields, "message_id", id)?;
    }
    let parent = fields.text("parent_id")?.cloned();
    let (parent, branch) = behind(AddressFields {
        // Here `message_id` is that of the new message.
        messages: parent.into_iter().collect(),
        ..address::of_body(&fields)?
    })?;
    let assistant = fields.text("assistant_id")?;
    Ok(NewMessage {
        thread,
        content,
        to: SendTarget { id, parent, branch },
        assistant: assistant.map(|text| ids::assistant(text)),
        strategy: fields
            .word("multitask_strategy", STRATEGIES)?
            .unwrap_or_default(),
    })
}

/// The query of a page of messages.
pub(super) fn read(query: &Query) -> Result<PageRequest, Error> {
    let text = |name: &str| query.get(name).map(Arc::<str>::from);
    let mut positions = vec![];
    if let Some(id) = text("leaf_id") {
        positions.push(PathSelector::Leaf(id));
    }
    if let Some(text) = query.get("branch") {
        positions.push(PathSelector::Branch(parse_name(text)?));
    }
    if let Some(text) = query.get("checkpoint_id") {
        let id = text.parse().map_err(|_| {
            Error::bad_request("Invalid checkpoint ID: must be a UUID").with_code("invalid_id")
        })?;
        positions.push(PathSelector::Checkpoint(id));
    }
    if query.word("leaf", &[("latest", ())])?.is_some() {
        positions.push(PathSelector::Latest);
    }
    if positions.len() > 1 {
        return Err(Error::invalid(
            "Give one of leaf_id, branch, checkpoint_id and leaf, not several",
        ));
    }
    address::refuse_others(query, &["branch", "checkpoint_id", "leaf_id", "leaf"])?;
    let mut cursors = vec![];
    if let Some(text) = text("after") {
        cursors.push(PagePosition::After(text));
    }
    if let Some(text) = text("before") {
        cursors.push(PagePosition::Before(text));
    }
    if query.flag("tail")? {
        cursors.push(PagePosition::Newest);
    }
    if cursors.len() > 1 {
        let detail = "Give one of after, before and tail, not several";
        return Err(Error::bad_request(detail).with_code("invalid_cursor"));
    }
    Ok(PageRequest {
        at: positions.pop().unwrap_or_default(),
        view: query.word("view", VIEWS)?.unwrap_or_default(),
        from: cursors.pop().unwrap_or_default(),
        limit: query.limit(PAGE_MAX, PAGE_MAX)?,
        siblings: query.flag("siblings")?,
    })
}

fn too_large(detail: String) -> Error {
    Error::new(StatusCode::PAYLOAD_TOO_LARGE, detail).with_code("too_large")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, Option<&'static str>) {
        let error = result.unwrap_err();
        (error.status.as_u16(), error.code)
    }

    #[test]
    fn a_post_has_one_message_or_several() {
        let one = post(
            &value!({"role": "user", "content": "hi", "id": "a"}),
            false,
            "local".into(),
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
        let two = post(&two, false, "local".into()).unwrap().post;
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
            (message(value!({"id": "x".repeat(256)})), 422),
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
                refused(post(&body, false, "local".into())).0,
                status,
                "{text}"
            );
        }
        let twice = value!({"messages": [
            {"role": "user", "content": "a", "id": "1"},
            {"role": "user", "content": "b", "id": "1"}
        ]});
        assert_eq!(refused(post(&twice, false, "local".into())).0, 422);
    }

    #[test]
    fn a_page_is_asked_for_by_one_place_and_one_cursor() {
        let query = |text: &str| read(&Query::of(Some(text)));
        let plain = query("").unwrap();
        assert_eq!(plain.at, PathSelector::Active);
        assert_eq!(plain.from, PagePosition::Oldest);
        assert_eq!(plain.limit, 1000);
        let tail = query("leaf=latest&tail=true&limit=5&view=state&siblings=true").unwrap();
        assert_eq!(tail.at, PathSelector::Latest);
        assert_eq!(tail.from, PagePosition::Newest);
        assert_eq!(
            (tail.limit, tail.view, tail.siblings),
            (5, PageView::State, true)
        );
        for (text, status, code) in [
            ("after=a&before=b", 400, Some("invalid_cursor")),
            ("after=a&tail=true", 400, Some("invalid_cursor")),
            ("checkpoint_id=x", 400, Some("invalid_id")),
            ("leaf_id=a&branch=main", 422, None),
            ("leaf=oldest", 422, None),
            ("branch=a//b", 422, Some("invalid_request")),
            ("limit=0", 422, None),
            ("limit=1001", 422, None),
            ("limit=x", 422, None),
            ("view=all", 422, None),
            ("tail=maybe", 422, None),
        ] {
            assert_eq!(refused(query(text)), (status, code), "{text}");
        }
        assert_eq!(
            query("tail=false&after=a").unwrap().from,
            PagePosition::After("a".into())
        );
    }

    #[test]
    fn a_message_to_be_answered_says_something() {
        let thread = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
        let body = |content: Value| value!({"thread_id": thread, "content": content});
        for blank in [
            value!(""),
            value!(" \n\t"),
            value!([]),
            value!(null),
            value!([{"type": "text", "text": " "}]),
        ] {
            let refused = refused(send(&body(blank)));
            assert_eq!(refused, (400, Some("blank_message")));
        }
        assert!(send(&body(value!("hi"))).is_ok());
        assert!(send(&body(value!([{"type": "image_url", "image_url": "x"}]))).is_ok());
        for wrong in [
            value!({"content": "hi"}),
            value!({"thread_id": "x", "content": "hi"}),
            value!({"thread_id": thread}),
            value!({"thread_id": thread, "content": 5}),
            value!({"thread_id": thread, "content": "hi", "branch": "main", "parent_id": "a"}),
            value!({"thread_id": thread, "content": "hi", "multitask_strategy": "x"}),
            value!({"thread_id": thread, "content": "hi", "message_id": ""}),
        ] {
            assert_eq!(refused(send(&wrong)).0, 422, "{wrong:?}");
        }
    }
}
