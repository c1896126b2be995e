//! The state of one channel while a graph runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Error, Kind, Reducer, as_overwrite};
use crate::value::{MAX_DEPTH, Value};

/// One channel: its kind and what it holds.
///
/// After an error the value is unspecified: the superstep has failed and its channels are
/// dropped.
#[derive(Clone, Debug)]
pub struct Channel {
    kind: Kind,
    held: Held,
}

/// What a channel holds, by kind.
#[derive(Clone, Debug)]
enum Held {
    /// A single value, or none.
    One(Option<Value>),
    /// A list's items, as a value so that they can be handed out; available when not empty.
    Items(Value),
    /// The names a barrier has seen.
    Seen(BTreeSet<Arc<str>>),
    /// A value and whether the run was about to end since it was written.
    OneFinished(Option<Value>, bool),
    /// A barrier's names, likewise.
    SeenFinished(BTreeSet<Arc<str>>, bool),
}

static NULL: Value = Value::Null;

impl Channel {
    /// A channel that nobody has written to yet.
    pub fn new(kind: &Kind) -> Self {
        let held = match kind {
            Kind::Last | Kind::Any | Kind::Ephemeral { .. } | Kind::Untracked { .. } => {
                Held::One(None)
            }
            Kind::Aggregate(reducer) => Held::One(Some(reducer.initial().clone())),
            Kind::Topic { .. } => Held::Items(Value::list(Vec::new())),
            Kind::Barrier(_) => Held::Seen(BTreeSet::new()),
            Kind::LastAfterFinish => Held::OneFinished(None, false),
            Kind::BarrierAfterFinish(_) => Held::SeenFinished(BTreeSet::new(), false),
        };
        Channel {
            kind: kind.clone(),
            held,
        }
    }

    /// A channel as it was when `stored` was its [`Channel::snapshot`]; `None` is a channel of
    /// which nothing is stored.
    ///
    /// # Errors
    /// [`Error::Stored`] if the value does not have the form of the kind, which happens when a
    /// new version of a graph changes a key's kind.
    pub fn restore(kind: &Kind, stored: Option<Value>) -> Result<Self, Error> {
        let mut channel = Channel::new(kind);
        let Some(stored) = stored else {
            return Ok(channel);
        };
        let held = match (kind, &stored) {
            (Kind::Untracked { .. }, _) => return Ok(channel),
            (Kind::Last | Kind::Any | Kind::Ephemeral { .. } | Kind::Aggregate(_), _) => {
                Some(Held::One(Some(stored.clone())))
            }
            (Kind::Topic { .. }, Value::List(_)) => Some(Held::Items(stored.clone())),
            (Kind::Barrier(_), _) => names(&stored).map(Held::Seen),
            (Kind::LastAfterFinish, Value::List(pair)) => match pair.as_slice() {
                [value, Value::Bool(finished)] => {
                    Some(Held::OneFinished(Some(value.clone()), *finished))
                }
                _ => None,
            },
            (Kind::BarrierAfterFinish(_), Value::List(pair)) => match pair.as_slice() {
                [seen, Value::Bool(finished)] => {
                    names(seen).map(|seen| Held::SeenFinished(seen, *finished))
                }
                _ => None,
            },
            _ => None,
        };
        channel.held = held.ok_or(Error::Stored {
            kind: kind.word(),
            found: stored.type_name(),
        })?;
        Ok(channel)
    }

    /// The channel's kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Applies the writes of one superstep, in task order, and says whether the channel changed.
    /// With no writes this tells the channel that a superstep passed.
    ///
    /// # Errors
    /// See [`Error`]; the superstep fails and the channel must not be used any more.
    pub fn update(&mut self, writes: &[Value]) -> Result<bool, Error> {
        if writes.iter().any(|write| write.is_deeper_than(MAX_DEPTH)) {
            return Err(Error::TooDeep);
        }
        match (&self.kind, &mut self.held) {
            (Kind::Last, Held::One(held)) => one(held, writes, true, false),
            (Kind::Untracked { guard }, Held::One(held)) => one(held, writes, *guard, false),
            (Kind::Any, Held::One(held)) => one(held, writes, false, true),
            (Kind::Ephemeral { guard }, Held::One(held)) => one(held, writes, *guard, true),
            (Kind::Aggregate(reducer), Held::One(held)) => fold(reducer, held, writes),
            (Kind::Topic { accumulate }, Held::Items(items)) => {
                Ok(collect(*accumulate, items, writes))
            }
            (Kind::Barrier(expected), Held::Seen(seen)) => see(expected, seen, writes),
            (Kind::LastAfterFinish, Held::OneFinished(held, finished)) => {
                let Some(last) = writes.last() else {
                    return Ok(false);
                };
                *held = Some(last.clone());
                *finished = false;
                Ok(true)
            }
            (Kind::BarrierAfterFinish(expected), Held::SeenFinished(seen, _)) => {
                see(expected, seen, writes)
            }
            _ => Ok(false),
        }
    }

    /// Tells the channel that a task it triggered ran. Barriers and channels that wait for the
    /// end of the run are emptied; says whether anything changed.
    pub fn consume(&mut self) -> bool {
        if !self.is_available() {
            return false;
        }
        match &mut self.held {
            Held::Seen(seen) => seen.clear(),
            Held::OneFinished(held, finished) => {
                *held = None;
                *finished = false;
            }
            Held::SeenFinished(seen, finished) => {
                seen.clear();
                *finished = false;
            }
            Held::One(_) | Held::Items(_) => return false,
        }
        true
    }

    /// Tells the channel that nothing else is left to run. Releases channels that wait for that;
    /// says whether anything changed.
    pub fn finish(&mut self) -> bool {
        let (ready, finished) = match (&self.kind, &mut self.held) {
            (Kind::LastAfterFinish, Held::OneFinished(held, finished)) => {
                (held.is_some(), finished)
            }
            (Kind::BarrierAfterFinish(expected), Held::SeenFinished(seen, finished)) => {
                (is_complete(expected, seen), finished)
            }
            _ => return false,
        };
        let released = ready && !*finished;
        *finished |= ready;
        released
    }

    /// The value, if the channel is available: null for a barrier, the initial value for an
    /// aggregate nobody has written to.
    pub fn get(&self) -> Option<&Value> {
        match (&self.kind, &self.held) {
            (_, Held::One(held)) => held.as_ref(),
            (_, Held::Items(items)) => {
                Some(items).filter(|items| items.as_list().is_some_and(|list| !list.is_empty()))
            }
            (_, Held::OneFinished(held, finished)) => held.as_ref().filter(|_| *finished),
            (Kind::Barrier(expected), Held::Seen(seen)) => {
                is_complete(expected, seen).then_some(&NULL)
            }
            (Kind::BarrierAfterFinish(expected), Held::SeenFinished(seen, finished)) => {
                (*finished && is_complete(expected, seen)).then_some(&NULL)
            }
            _ => None,
        }
    }

    /// Whether the channel has a value that nodes can see and be triggered by.
    pub fn is_available(&self) -> bool {
        self.get().is_some()
    }

    /// What a checkpoint stores of a channel that has a version; `None` for nothing.
    ///
    /// A topic is its list and a barrier the sorted list of the names it has seen, also when
    /// empty; those that wait for the end of the run are `[content, finished]`.
    pub fn snapshot(&self) -> Option<Value> {
        if matches!(self.kind, Kind::Untracked { .. }) {
            return None;
        }
        match &self.held {
            Held::One(held) => held.clone(),
            Held::Items(items) => Some(items.clone()),
            Held::Seen(seen) => Some(seen.iter().collect()),
            Held::OneFinished(held, finished) => held
                .clone()
                .map(|value| Value::list(vec![value, (*finished).into()])),
            Held::SeenFinished(seen, finished) => {
                Some(Value::list(vec![seen.iter().collect(), (*finished).into()]))
            }
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
    held: &mut Option<Value>,
    writes: &[Value],
    guard: bool,
    clears: bool,
) -> Result<bool, Error> {
    match writes {
        [] => Ok(clears && held.take().is_some()),
        [_, _, ..] if guard => Err(Error::Concurrent(writes.len())),
        [.., last] => {
            *held = Some(last.clone());
            Ok(true)
        }
    }
}

fn fold(reducer: &Reducer, held: &mut Option<Value>, writes: &[Value]) -> Result<bool, Error> {
    let mut overwrites = writes.iter().filter_map(as_overwrite);
    if let Some(value) = overwrites.next() {
        *held = Some(value.clone());
        if overwrites.next().is_some() {
            return Err(Error::Overwrites);
        }
        return Ok(true);
    }
    // Taken out, so that the reducer owns it and may change it in place.
    let mut value = held.take().unwrap_or_else(|| reducer.initial().clone());
    for write in writes {
        value = reducer.fold(value, write)?;
    }
    *held = Some(value);
    Ok(!writes.is_empty())
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

fn see(
    expected: &[Arc<str>],
    seen: &mut BTreeSet<Arc<str>>,
    writes: &[Value],
) -> Result<bool, Error> {
    let mut changed = false;
    for write in writes {
        match write {
            Value::Str(name) if expected.contains(name) => {
                changed |= seen.insert(name.clone());
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

fn is_complete(expected: &[Arc<str>], seen: &BTreeSet<Arc<str>>) -> bool {
    expected.iter().all(|name| seen.contains(name))
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
