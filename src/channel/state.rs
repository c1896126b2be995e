//! The state of one channel while a graph runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Error, Kind, Reducer, Shape, as_overwrite};
use crate::message::{self, Ids};
use crate::value::{MAX_DEPTH, Value};

/// One channel: its kind and its content.
///
/// After an error the value is unspecified: the superstep has failed and its channels are
/// dropped.
#[derive(Clone, Debug)]
pub struct Channel {
    kind: Kind,
    content: Content,
    /// The ids of the messages that are its value, if they are known.
    ids: Option<Ids>,
}

/// The content of a channel, by kind.
#[derive(Clone, Debug)]
enum Content {
    /// A single value, or none.
    One(Option<Value>),
    /// A list's items, as a value so that they can be handed out; available when not empty.
    Items(Value),
    /// The names written to a barrier.
    Names(BTreeSet<Arc<str>>),
    /// A value and whether the run was about to end since it was written.
    OneFinished(Option<Value>, bool),
    /// The names written to a barrier, and the same flag.
    NamesFinished(BTreeSet<Arc<str>>, bool),
}

static NULL: Value = Value::Null;

/// What the position of the id of a message takes.
const ID_BYTES: usize = 32;

impl Channel {
    /// A channel without any write.
    pub fn new(kind: &Kind) -> Self {
        let content = match kind {
            Kind::Last | Kind::Any | Kind::Ephemeral { .. } | Kind::Untracked { .. } => {
                Content::One(None)
            }
            Kind::Aggregate(reducer) => Content::One(Some(reducer.initial().clone())),
            Kind::Topic { .. } => Content::Items(Value::list(Vec::new())),
            Kind::Barrier(_) => Content::Names(BTreeSet::new()),
            Kind::LastAfterFinish => Content::OneFinished(None, false),
            Kind::BarrierAfterFinish(_) => Content::NamesFinished(BTreeSet::new(), false),
        };
        Channel {
            kind: kind.clone(),
            content,
            ids: None,
        }
    }

    /// Restores a channel from its [`Channel::snapshot`]; `None` restores a channel of which nothing
    /// is stored.
    ///
    /// # Errors
    /// [`Error::Stored`] if the value does not have the form of the kind, which happens when a
    /// new version of a graph changes a key's kind.
    pub fn restore(kind: &Kind, stored: Option<Value>) -> Result<Self, Error> {
        let mut channel = Channel::new(kind);
        let Some(stored) = stored else {
            return Ok(channel);
        };
        let content = match (kind, &stored) {
            (Kind::Untracked { .. }, _) => return Ok(channel),
            (Kind::Last | Kind::Any | Kind::Ephemeral { .. } | Kind::Aggregate(_), _) => {
                Some(Content::One(Some(stored.clone())))
            }
            (Kind::Topic { .. }, Value::List(_)) => Some(Content::Items(stored.clone())),
            (Kind::Barrier(_), _) => names(&stored).map(Content::Names),
            (Kind::LastAfterFinish, Value::List(pair)) => match pair.as_slice() {
                [value, Value::Bool(finished)] => {
                    Some(Content::OneFinished(Some(value.clone()), *finished))
                }
                _ => None,
            },
            (Kind::BarrierAfterFinish(_), Value::List(pair)) => match pair.as_slice() {
                [written, Value::Bool(finished)] => {
                    names(written).map(|written| Content::NamesFinished(written, *finished))
                }
                _ => None,
            },
            _ => None,
        };
        channel.content = content.ok_or(Error::Stored {
            kind: kind.word(),
            found: stored.type_name(),
        })?;
        Ok(channel)
    }

    /// The channel's kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The ids of the messages that are its value, if they are known.
    pub fn message_ids(&self) -> Option<&Ids> {
        self.ids.as_ref()
    }

    /// Tells the channel the ids of the messages that are its value.
    pub fn know_message_ids(&mut self, ids: Ids) {
        self.ids = Some(ids);
    }

    /// Applies the writes of one superstep, in task order, and returns whether the channel changed.
    /// No writes mean that a superstep passed.
    ///
    /// # Errors
    /// See [`Error`]; the superstep fails and the channel must not be used any more.
    pub fn update(&mut self, writes: &[Value]) -> Result<bool, Error> {
        if writes.iter().any(|write| write.is_deeper_than(MAX_DEPTH)) {
            return Err(Error::TooDeep);
        }
        match (&self.kind, &mut self.content) {
            (Kind::Last, Content::One(value)) => one(value, writes, true, false),
            (Kind::Untracked { guard }, Content::One(value)) => one(value, writes, *guard, false),
            (Kind::Any, Content::One(value)) => one(value, writes, false, true),
            (Kind::Ephemeral { guard }, Content::One(value)) => one(value, writes, *guard, true),
            (Kind::Aggregate(reducer), Content::One(value)) => {
                fold(reducer, value, writes, &mut self.ids)
            }
            (Kind::Topic { accumulate }, Content::Items(items)) => {
                Ok(collect(*accumulate, items, writes))
            }
            (Kind::Barrier(expected), Content::Names(written)) => {
                mark_written(expected, written, writes)
            }
            (Kind::LastAfterFinish, Content::OneFinished(value, finished)) => {
                let Some(last) = writes.last() else {
                    return Ok(false);
                };
                *value = Some(last.clone());
                *finished = false;
                Ok(true)
            }
            (Kind::BarrierAfterFinish(expected), Content::NamesFinished(written, _)) => {
                mark_written(expected, written, writes)
            }
            _ => Ok(false),
        }
    }

    /// Empties barriers and channels that wait for the end of the run, because a task that the
    /// channel triggered ran. Returns whether anything changed.
    pub fn consume(&mut self) -> bool {
        if !self.is_available() {
            return false;
        }
        match &mut self.content {
            Content::Names(written) => written.clear(),
            Content::OneFinished(value, finished) => {
                *value = None;
                *finished = false;
            }
            Content::NamesFinished(written, finished) => {
                written.clear();
                *finished = false;
            }
            Content::One(_) | Content::Items(_) => return false,
        }
        true
    }

    /// Makes channels available that wait until nothing else is left to run. Returns whether
    /// anything changed.
    pub fn finish(&mut self) -> bool {
        let (ready, finished) = match (&self.kind, &mut self.content) {
            (Kind::LastAfterFinish, Content::OneFinished(value, finished)) => {
                (value.is_some(), finished)
            }
            (Kind::BarrierAfterFinish(expected), Content::NamesFinished(written, finished)) => {
                (is_complete(expected, written), finished)
            }
            _ => return false,
        };
        let released = ready && !*finished;
        *finished |= ready;
        released
    }

    /// The value, if the channel is available: null for a barrier, the initial value for an
    /// aggregate without a write.
    pub fn get(&self) -> Option<&Value> {
        match (&self.kind, &self.content) {
            (_, Content::One(value)) => value.as_ref(),
            (_, Content::Items(items)) => {
                Some(items).filter(|items| items.as_list().is_some_and(|list| !list.is_empty()))
            }
            (_, Content::OneFinished(value, finished)) => value.as_ref().filter(|_| *finished),
            (Kind::Barrier(expected), Content::Names(written)) => {
                is_complete(expected, written).then_some(&NULL)
            }
            (Kind::BarrierAfterFinish(expected), Content::NamesFinished(written, finished)) => {
                (*finished && is_complete(expected, written)).then_some(&NULL)
            }
            _ => None,
        }
    }

    /// About how many bytes its content takes in memory.
    pub(crate) fn memory(&self) -> usize {
        let content = match &self.content {
            Content::One(value) | Content::OneFinished(value, _) => {
                value.as_ref().map_or(0, Value::memory)
            }
            Content::Items(items) => items.memory(),
            Content::Names(names) | Content::NamesFinished(names, _) => {
                names.len() * size_of::<Arc<str>>()
            }
        };
        content + self.ids.as_ref().map_or(0, |ids| ids.len() * ID_BYTES)
    }

    /// Whether the channel has a value that nodes can see and be triggered by.
    pub fn is_available(&self) -> bool {
        self.get().is_some()
    }

    /// What a checkpoint stores of a channel that has a version; `None` for nothing.
    ///
    /// A topic is its list and a barrier the sorted list of the names written to it, also when
    /// empty; those that wait for the end of the run are `[content, finished]`.
    pub fn snapshot(&self) -> Option<Value> {
        if matches!(self.kind, Kind::Untracked { .. }) {
            return None;
        }
        match &self.content {
            Content::One(value) => value.clone(),
            Content::Items(items) => Some(items.clone()),
            Content::Names(written) => Some(written.iter().collect()),
            Content::OneFinished(value, finished) => value
                .clone()
                .map(|value| Value::list(vec![value, (*finished).into()])),
            Content::NamesFinished(written, finished) => Some(Value::list(vec![
                written.iter().collect(),
                (*finished).into(),
            ])),
        }
    }
}

impl Kind {
    fn word(&self) -> &'static str {
        match self {
            Kind::Last => "last value",
            Kind::Any => "any value",
            Kind::Ephemeral { .. } => "ephemeral",
            Kind::Untracked { .. } => "untracked",
            Kind::Aggregate(_) => "aggregate",
            Kind::Topic { .. } => "topic",
            Kind::Barrier(_) => "barrier",
            Kind::LastAfterFinish => "deferred",
            Kind::BarrierAfterFinish(_) => "deferred barrier",
        }
    }
}

/// The last write, with or without a guard against several; optionally cleared by a superstep
/// without a write.
fn one(
    value: &mut Option<Value>,
    writes: &[Value],
    guard: bool,
    clears: bool,
) -> Result<bool, Error> {
    match writes {
        [] => Ok(clears && value.take().is_some()),
        [_, _, ..] if guard => Err(Error::Concurrent(writes.len())),
        [.., last] => {
            *value = Some(last.clone());
            Ok(true)
        }
    }
}

/// `ids` are those of the messages that are stored, if they are known.
fn fold(
    reducer: &Reducer,
    stored: &mut Option<Value>,
    writes: &[Value],
    ids: &mut Option<Ids>,
) -> Result<bool, Error> {
    let mut overwrites = writes.iter().filter_map(as_overwrite);
    if let Some(value) = overwrites.next() {
        *stored = Some(value.clone());
        *ids = None;
        if overwrites.next().is_some() {
            return Err(Error::Overwrites);
        }
        return Ok(true);
    }
    // Moved out, so that the reducer owns the value and may change it in place.
    let mut value = stored.take().unwrap_or_else(|| reducer.initial().clone());
    let mut add = |value, write: &Value| match reducer.shape() {
        Shape::Messages => Ok(message::add_known(value, write, ids)?),
        Shape::Plain | Shape::Append => reducer.fold(value, write),
    };
    match joined_messages(reducer, writes) {
        Some(all) => value = add(value, &all)?,
        None => {
            for write in writes {
                value = add(value, write)?;
            }
        }
    }
    *stored = Some(value);
    Ok(!writes.is_empty())
}

/// Several writes of messages as one, where that means the same: one by one each of them would be
/// compared with the whole conversation.
fn joined_messages(reducer: &Reducer, writes: &[Value]) -> Option<Value> {
    let joins = reducer.shape() == Shape::Messages && writes.len() > 1;
    let plain = |message: &Value| {
        let kind = message.as_map()?.get("type").and_then(Value::as_str);
        (kind != Some("remove")).then_some(())
    };
    let mut all = vec![];
    for write in writes.iter().filter(|_| joins) {
        let items = write.as_list().unwrap_or(std::slice::from_ref(write));
        items.iter().try_for_each(plain)?;
        all.extend_from_slice(items);
    }
    joins.then(|| Value::list(all))
}

fn collect(accumulate: bool, items: &mut Value, writes: &[Value]) -> bool {
    let mut changed = false;
    if !accumulate && items.as_list().is_some_and(|list| !list.is_empty()) {
        *items = Value::list(Vec::new());
        changed = true;
    }
    // An update without items must not copy a shared list.
    if writes
        .iter()
        .all(|w| w.as_list().is_some_and(<[Value]>::is_empty))
    {
        return changed;
    }
    if let Some(list) = items.make_list_mut() {
        for write in writes {
            match write {
                Value::List(spread) => list.extend_from_slice(spread),
                single => list.push(single.clone()),
            }
        }
    }
    true
}

fn mark_written(
    expected: &[Arc<str>],
    written: &mut BTreeSet<Arc<str>>,
    writes: &[Value],
) -> Result<bool, Error> {
    let mut changed = false;
    for write in writes {
        match write {
            Value::Str(name) if expected.contains(name) => {
                changed |= written.insert(name.clone());
            }
            other => {
                return Err(Error::Barrier {
                    expected: expected.to_vec(),
                    found: other.to_json(),
                });
            }
        }
    }
    Ok(changed)
}

fn is_complete(expected: &[Arc<str>], written: &BTreeSet<Arc<str>>) -> bool {
    expected.iter().all(|name| written.contains(name))
}

fn names(value: &Value) -> Option<BTreeSet<Arc<str>>> {
    value
        .as_list()?
        .iter()
        .map(|name| match name {
            Value::Str(name) => Some(name.clone()),
            _ => None,
        })
        .collect()
}
