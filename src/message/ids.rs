//! Where the ids of a long list of messages are, so that adding to the list need not read it: what a turn of a
//! conversation takes would grow with its length otherwise.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use crate::value::Value;

type Part = HashMap<Arc<str>, usize, RandomState>;

/// The position of each id of a list of messages in stored form. A clone shares everything, and what is
/// appended to one of the two does not show in the other.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    /// Those of consecutive parts of the list; each part has more than twice as many as the next one.
    parts: Vec<Arc<Part>>,
    /// How many messages the list has.
    len: usize,
}

impl Ids {
    /// The ids of a list; `None` if one of its messages has none.
    pub fn of(list: &[Value]) -> Option<Self> {
        let mut ids = Self::default();
        ids.append(list).then_some(ids)
    }

    /// How many messages the list has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The position of the message with an id: of several the last one.
    pub fn find(&self, id: &str) -> Option<usize> {
        let mut parts = self.parts.iter().rev();
        parts.find_map(|part| part.get(id).copied())
    }

    /// Takes messages that were appended to the list; false if one of them has no id: then these are the ids
    /// of no list any more.
    pub fn append(&mut self, messages: &[Value]) -> bool {
        let mut part = Part::with_capacity_and_hasher(messages.len(), RandomState::default());
        for message in messages {
            let Some(Value::Str(id)) = message.get("id") else {
                return false;
            };
            part.insert(id.clone(), self.len);
            self.len += 1;
        }
        // Few parts are looked through, and each id is moved to a larger one only a few times.
        while let Some(last) = self.parts.last()
            && last.len() <= 2 * part.len()
        {
            let mut merged = Part::clone(last);
            merged.extend(part);
            part = merged;
            self.parts.pop();
        }
        if !part.is_empty() {
            self.parts.push(Arc::new(part));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        message::{add, add_known},
        value,
    };

    fn message(id: usize) -> Value {
        value!({"type": "human", "content": "", "id": id.to_string()})
    }

    #[test]
    fn each_id_is_found_at_the_position_of_its_last_message_in_few_parts() {
        let mut list: Vec<Value> = vec![];
        let mut ids = Ids::default();
        for number in 0..1000 {
            let new = [message(number), message(number / 2)];
            list.extend(new.clone());
            assert!(ids.append(&new));
            assert!(ids.parts.len() <= 11, "{}", ids.parts.len());
        }
        assert_eq!(ids.len(), list.len());
        for id in 0..1001 {
            let id = id.to_string();
            let is_it = |one: &Value| one.get("id").and_then(Value::as_str) == Some(&*id);
            let last = list.iter().rposition(is_it);
            assert_eq!(ids.find(&id), last);
        }
    }

    #[test]
    fn what_is_appended_to_a_clone_shows_in_it_alone() {
        let list: Vec<Value> = (0..100).map(message).collect();
        let ids = Ids::of(&list).unwrap();
        let mut longer = ids.clone();
        assert!(longer.append(&[message(100)]));
        assert_eq!((ids.find("100"), longer.find("100")), (None, Some(100)));
        assert_eq!((ids.len(), longer.len()), (100, 101));
        assert!(!longer.append(&[value!({"type": "human", "content": ""})]));
    }

    #[test]
    fn adding_to_a_list_whose_ids_are_known_reads_none_of_its_messages() {
        let list: Vec<Value> = (0..2000).map(message).collect();
        let mut known = None;
        let long = add_known(Value::list(list), &message(2000), &mut known).unwrap();
        let ids = known.clone().unwrap();
        assert_eq!((long.as_list().unwrap().len(), ids.len()), (2001, 2001));
        // What is no message would be refused if anybody looked at it.
        let unread = Value::list(vec![Value::Null; 2001]);
        let added = add_known(unread, &value!([message(2001), message(7)]), &mut known).unwrap();
        let added = added.as_list().unwrap();
        assert_eq!(added.len(), 2002);
        assert_eq!((&added[2001], &added[7]), (&message(2001), &message(7)));
        assert!(added[8].is_null());
        assert_eq!(known.unwrap().find("2001"), Some(2001));
        let short = Value::list((0..10).map(message).collect());
        let mut known = Some(ids);
        add_known(short, &message(1), &mut known).unwrap();
        assert!(known.is_none(), "the ids of another list count for nothing");
    }

    proptest! {
        #[test]
        fn a_list_whose_ids_are_known_becomes_what_it_becomes_without(
            steps in proptest::collection::vec(
                proptest::collection::vec((0_usize..140, 0_u8..8), 1..5), 1..12
            ),
        ) {
            let list: Vec<Value> = (0..100).map(message).collect();
            let (mut with, mut without) = (Value::list(list.clone()), Value::list(list));
            let mut known = None;
            for step in steps {
                let write = |(id, kind): (usize, u8)| match kind {
                    0 => value!({"type": "remove", "content": "", "id": id.to_string()}),
                    kind => value!({"type": "ai", "content": kind.to_string(), "id": id.to_string()}),
                };
                let write = Value::list(step.into_iter().map(write).collect());
                let expected = add(without.clone(), &write);
                let found = add_known(with.clone(), &write, &mut known);
                prop_assert_eq!(&found, &expected);
                if let Ok(found) = found {
                    (with, without) = (found.clone(), found);
                    if let Some(known) = &known {
                        prop_assert_eq!(known.len(), with.as_list().map_or(0, <[_]>::len));
                    }
                } else {
                    prop_assert!(known.is_none());
                }
            }
        }
    }
}
