//! What differs between two states of a thread.

use hyper::{Response, StatusCode};

use super::{
    messages::message,
    parse::params::Query,
    server::{Body, Call, Error, body},
};
use crate::{
    id::{CheckpointId, ThreadId},
    threads::diff::Difference,
    tree::{Address, AddressFields},
    value::{Map, Value},
};

/// `GET /threads/{thread_id}/diff`
pub(super) async fn diff(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let from = address(&call.query, "from")?;
    let to = address(&call.query, "to")?;
    let found = call.threads().compare(thread, &from, &to).await?;
    Ok(body::json(StatusCode::OK, &shown(&found, thread)))
}

/// An address as one text: `branch:`, `tag:`, `checkpoint:`, `message:` or `event:`, and a name, an
/// id or a number.
fn address(query: &Query, name: &str) -> Result<Address, Error> {
    let text = query.get(name).unwrap_or_default();
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    let mut fields = AddressFields::default();
    match kind {
        _ if value.is_empty() => return Err(unclear(name, text)),
        "branch" => fields.branch = Some(value.into()),
        "tag" => fields.tag = Some(value.into()),
        "checkpoint" => {
            let id = value.parse().map_err(|_| unclear(name, text))?;
            fields.checkpoints.push(id);
        }
        "message" => fields.messages.push(value.into()),
        "event" => fields.event = Some(value.parse().map_err(|_| unclear(name, text))?),
        _ => return Err(unclear(name, text)),
    }
    Ok(fields.address(false)?)
}

fn unclear(name: &str, text: &str) -> Error {
    Error::invalid(format!(
        "Invalid {name} `{text}`: it must be branch:NAME, tag:NAME, checkpoint:UUID, message:ID or \
         event:NUMBER"
    ))
}

fn shown(found: &Difference, thread: ThreadId) -> Value {
    let side = |id: Option<CheckpointId>| {
        let id = Value::from(id.map(|id| id.to_string()));
        Value::map(Map::from([("checkpoint_id", id)]))
    };
    let list = |items: &[_]| Value::list(items.iter().map(|one| message(one, thread)).collect());
    let changed = found.changed.iter().map(|(before, after)| {
        // The message as it is now, with what it was.
        let mut shown = message(after, thread);
        if let Some(map) = shown.make_map_mut() {
            map.insert("from", message(before, thread));
        }
        shown
    });
    let channels = Map::from([
        ("added", Value::map(found.channels.added.clone())),
        ("removed", Value::map(found.channels.removed.clone())),
        ("changed", Value::map(found.channels.changed.clone())),
    ]);
    let messages = Map::from([
        ("removed", list(&found.removed)),
        ("added", list(&found.added)),
        ("changed", Value::list(changed.collect())),
    ]);
    Value::map(Map::from([
        ("from", side(found.from)),
        ("to", side(found.to)),
        ("channels", Value::map(channels)),
        ("messages", Value::map(messages)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::AddressTarget;

    #[test]
    fn a_state_is_named_by_its_kind_and_what_it_is_called() {
        let of = |text: &str| address(&Query::of(Some(text)), "from");
        for (text, target) in [
            ("from=branch:a%2Fb", AddressTarget::Branch("a/b".into())),
            ("from=tag:t", AddressTarget::Tag("t".into())),
            (
                "from=message:a:b%20c",
                AddressTarget::Message("a:b c".into()),
            ),
            ("from=event:7", AddressTarget::Event(7)),
        ] {
            assert_eq!(of(text).unwrap().target, target, "{text}");
        }
        for bad in [
            "",
            "from=",
            "from=main",
            "from=branch:",
            "from=checkpoint:x",
            "from=event:x",
            "from=event:0",
            "from=branch:no%20good",
            "from=leaf:x",
            "to=branch:main",
        ] {
            assert_eq!(of(bad).unwrap_err().status, 422, "{bad}");
        }
    }
}
