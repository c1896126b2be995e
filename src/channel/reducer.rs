//! Reducers: how an aggregate folds an update into its value.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::Error;
use crate::message;
use crate::value::{Map, Value};

/// Folds an update into the old value, which is passed by value so that a list or map that is
/// not shared is changed in place.
type Fold = Arc<dyn Fn(Value, &Value) -> Result<Value, Error> + Send + Sync>;

/// How a reducer's value grows, which decides how it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// In an unknown way; stored whole.
    Plain,
    /// A list that mostly grows at its end; stored as deltas.
    Append,
    /// A list of messages: stored as deltas; messages are coerced and get their ids when written.
    Messages,
}

/// How an aggregate folds updates, and its value before the first one.
#[derive(Clone)]
pub struct Reducer {
    name: Arc<str>,
    fold: Fold,
    initial: Value,
    shape: Shape,
}

impl Reducer {
    /// A custom reducer. Its value is stored whole. Errors of `fold` fail the superstep.
    pub fn custom(
        name: impl Into<Arc<str>>,
        initial: impl Into<Value>,
        fold: impl Fn(Value, &Value) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Self {
        Reducer {
            name: name.into(),
            fold: Arc::new(fold),
            initial: initial.into(),
            shape: Shape::Plain,
        }
    }

    /// Adds numbers, from 0. Integers beyond 64 bits are an error; with a float the sum is one.
    pub fn sum() -> Self {
        Self::custom("sum", 0, |old, update| sum(&old, update))
    }

    /// Appends the items of the written list, from an empty list.
    pub fn append() -> Self {
        let append = Self::custom("append", Vec::<Value>::new(), |mut old, update| {
            match (old.make_list_mut(), update) {
                (Some(items), Value::List(new)) => items.extend_from_slice(new),
                _ => return Err(mismatch("append", &old, update)),
            }
            Ok(old)
        });
        Reducer {
            shape: Shape::Append,
            ..append
        }
    }

    /// Joins texts, from an empty one.
    pub fn concat() -> Self {
        Self::custom("concat", "", |old, update| match (&old, update) {
            (Value::Str(a), Value::Str(b)) => Ok(format!("{a}{b}").into()),
            _ => Err(mismatch("concat", &old, update)),
        })
    }

    /// Takes the greatest number, from 0.
    pub fn max() -> Self {
        Self::custom("max", 0, |old, update| match compare(&old, update) {
            Some(Ordering::Less) => Ok(update.clone()),
            Some(_) => Ok(old),
            None => Err(mismatch("max", &old, update)),
        })
    }

    /// Sets the fields of the written map, from an empty map. Not deep: a later field replaces.
    pub fn merge() -> Self {
        Self::custom("merge", Map::new(), |mut old, update| {
            match (old.make_map_mut(), update) {
                (Some(map), Value::Map(new)) => {
                    map.extend(new.iter().map(|(k, v)| (k.clone(), v.clone())));
                }
                _ => return Err(mismatch("merge", &old, update)),
            }
            Ok(old)
        })
    }

    /// Appends those items of the written list that are not there yet, from an empty list.
    pub fn union() -> Self {
        Self::custom("union", Vec::<Value>::new(), |mut old, update| {
            match (old.make_list_mut(), update) {
                (Some(items), Value::List(new)) => {
                    for item in new.iter() {
                        if !items.contains(item) {
                            items.push(item.clone());
                        }
                    }
                }
                _ => return Err(mismatch("union", &old, update)),
            }
            Ok(old)
        })
    }

    /// LangGraph's `add_messages`, on lists of messages.
    pub fn messages() -> Self {
        let messages = Self::custom("messages", Vec::<Value>::new(), |old, update| {
            Ok(message::add(old, update)?)
        });
        Reducer {
            shape: Shape::Messages,
            ..messages
        }
    }

    /// Stores the value as deltas: for custom reducers over lists that
    /// mostly grow at the end.
    pub fn growing(self) -> Self {
        Reducer {
            shape: Shape::Append,
            ..self
        }
    }

    /// The reducer's name, for messages and drawings.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The channel's value before the first write.
    pub(crate) fn initial(&self) -> &Value {
        &self.initial
    }

    /// How the value grows.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Folds one update into the old value.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for values the reducer is not made for, and the error of a custom one.
    pub fn fold(&self, old: Value, update: &Value) -> Result<Value, Error> {
        (self.fold)(old, update)
    }
}

impl fmt::Debug for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reducer")
            .field("name", &self.name)
            .field("initial", &self.initial)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

fn mismatch(reducer: &str, old: &Value, update: &Value) -> Error {
    Error::Mismatch {
        reducer: reducer.into(),
        value: old.type_name(),
        update: update.type_name(),
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(i) => Some(i128::from(*i)),
        Value::Uint(u) => Some(i128::from(*u)),
        _ => None,
    }
}

fn sum(old: &Value, update: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (integer(old), integer(update)) {
        // Two 64-bit numbers cannot overflow 128 bits.
        let sum = a + b;
        return i64::try_from(sum)
            .map(Value::Int)
            .or_else(|_| u64::try_from(sum).map(Value::from))
            .map_err(|_| Error::Overflow(a.to_string(), b.to_string()));
    }
    match (old.as_f64(), update.as_f64()) {
        (Some(a), Some(b)) => Ok(Value::Float(a + b)),
        _ => Err(mismatch("sum", old, update)),
    }
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => match (a.as_f64()?, b.as_f64()?) {
            (a, b) if a < b => Some(Ordering::Less),
            // A NaN neither replaces a number nor is replaced by one.
            _ => Some(Ordering::Greater),
        },
    }
}
