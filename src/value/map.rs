//! The map behind [`Value::Map`](super::Value::Map).

use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use super::Value;

/// A map from text to values that keeps the order in which keys were first inserted.
///
/// Two maps are equal when their fields are equal, in any order.
#[derive(Clone, Default, PartialEq)]
pub struct Map(IndexMap<Arc<str>, Value, RandomState>);

impl Map {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty map with room for this many fields.
    pub fn with_capacity(fields: usize) -> Self {
        Map(IndexMap::with_capacity_and_hasher(
            fields,
            RandomState::default(),
        ))
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a field.
    pub fn get(&self, key: &str) -> Option<&Value> {
        // Most maps are as small as a chat message, where comparing is faster than hashing.
        if self.0.len() <= 8 {
            return self.0.iter().find(|(k, _)| &***k == key).map(|(_, v)| v);
        }
        self.0.get(key)
    }

    /// The value of a field, for changing.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.0.get_mut(key)
    }

    /// Whether the field exists.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Sets a field and returns its previous value. An existing field keeps its position.
    pub fn insert(&mut self, key: impl Into<Arc<str>>, value: impl Into<Value>) -> Option<Value> {
        self.0.insert(key.into(), value.into())
    }

    /// Removes a field; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.0.shift_remove(key)
    }

    /// Removes the fields for which `keep` returns false; the others keep their order.
    pub fn retain(&mut self, keep: impl FnMut(&Arc<str>, &mut Value) -> bool) {
        self.0.retain(keep);
    }

    /// Sorts the fields by key (bytewise, which for UTF-8 is by code point).
    pub fn sort_keys(&mut self) {
        self.0.sort_keys();
    }

    /// The keys, in order.
    pub fn keys(&self) -> indexmap::map::Keys<'_, Arc<str>, Value> {
        self.0.keys()
    }

    /// The values, in order.
    pub fn values(&self) -> indexmap::map::Values<'_, Arc<str>, Value> {
        self.0.values()
    }

    /// The values for changing, in order.
    pub fn values_mut(&mut self) -> indexmap::map::ValuesMut<'_, Arc<str>, Value> {
        self.0.values_mut()
    }

    /// The fields, in order.
    pub fn iter(&self) -> indexmap::map::Iter<'_, Arc<str>, Value> {
        self.0.iter()
    }

    /// The fields with changeable values, in order.
    pub fn iter_mut(&mut self) -> indexmap::map::IterMut<'_, Arc<str>, Value> {
        self.0.iter_mut()
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromIterator<(Arc<str>, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Value)>>(fields: I) -> Self {
        Map(fields.into_iter().collect())
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Map {
    fn from(fields: [(&str, Value); N]) -> Self {
        fields.into_iter().map(|(k, v)| (Arc::from(k), v)).collect()
    }
}

impl Extend<(Arc<str>, Value)> for Map {
    fn extend<I: IntoIterator<Item = (Arc<str>, Value)>>(&mut self, fields: I) {
        self.0.extend(fields);
    }
}

impl IntoIterator for Map {
    type Item = (Arc<str>, Value);
    type IntoIter = indexmap::map::IntoIter<Arc<str>, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a Arc<str>, &'a Value);
    type IntoIter = indexmap::map::Iter<'a, Arc<str>, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a Arc<str>, &'a mut Value);
    type IntoIter = indexmap::map::IterMut<'a, Arc<str>, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}
