//! The sum of the pieces of a long message: [`AiChunk::push`] copies the text so far with every piece, this one
//! copies each piece once.

use std::sync::Arc;

use super::{AiChunk, Message, chunk::push_content};
use crate::value::{Map, Value};

/// Pieces so far, of which the end of one text may still be apart from the rest.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    whole: AiChunk,
    /// Where `more` belongs.
    open: Option<Open>,
    more: String,
}

/// A text to which pieces are joined.
#[derive(Clone, Debug, PartialEq)]
enum Open {
    /// The content itself.
    Content,
    /// A text of the part with this index.
    Part {
        index: Value,
        field: Arc<str>,
        /// How many fields each piece of it has.
        fields: usize,
    },
}

impl Open {
    /// The text that a piece of content goes on with, and how. `None` for what is no plain piece of one text.
    fn of(content: &Value) -> Option<(Self, &Arc<str>)> {
        match content {
            Value::Str(more) => Some((Self::Content, more)),
            Value::List(parts) => {
                let [Value::Map(part)] = &parts[..] else {
                    return None;
                };
                let index = part.get("index").filter(|index| !index.is_null())?;
                let others = || part.iter().filter(|(name, _)| !is_constant(name));
                match (others().next(), others().count()) {
                    (Some((field, Value::Str(more))), 1) => {
                        let open = Self::Part {
                            index: index.clone(),
                            field: field.clone(),
                            fields: part.len(),
                        };
                        Some((open, more))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether the content that pieces were added to has this text now.
    fn is_in(&self, content: &Value) -> bool {
        match (self, content) {
            (Self::Content, content) => matches!(content, Value::Str(_)),
            (
                Self::Part {
                    index,
                    field,
                    fields,
                },
                Value::List(parts),
            ) => {
                let part = parts.iter().find(|part| part.get("index") == Some(index));
                let part = part.and_then(Value::as_map);
                part.is_some_and(|part| {
                    part.len() >= *fields && matches!(part.get(field), Some(Value::Str(_)))
                })
            }
            _ => false,
        }
    }

    /// A piece of content with so much of the text.
    fn piece(&self, more: &str) -> Value {
        match self {
            Self::Content => Value::str(more),
            Self::Part { index, field, .. } => {
                let mut part = Map::from([("index", index.clone())]);
                part.insert(field.clone(), more);
                Value::list(vec![Value::map(part)])
            }
        }
    }
}

/// Fields of a part that no later piece changes.
fn is_constant(name: &str) -> bool {
    matches!(name, "type" | "index")
}

impl Sum {
    pub(crate) fn of(first: &AiChunk) -> Self {
        let mut sum = Self {
            whole: first.clone(),
            ..Self::default()
        };
        sum.open(&first.content);
        sum
    }

    /// The id that all pieces share.
    pub(crate) fn id(&self) -> Option<&Arc<str>> {
        self.whole.id.as_ref()
    }

    /// Appends a later piece.
    pub(crate) fn push(&mut self, piece: &AiChunk) {
        if piece.content.is_null() {
            return self.whole.push_rest(piece);
        }
        match Open::of(&piece.content) {
            Some((open, more)) if self.open.as_ref() == Some(&open) => {
                self.more.push_str(more);
                self.whole.push_rest(piece);
            }
            _ => {
                self.close();
                self.whole.push(piece);
                self.open(&piece.content);
            }
        }
    }

    fn open(&mut self, content: &Value) {
        let open = Open::of(content).map(|(open, _)| open);
        self.open = open.filter(|open| open.is_in(&self.whole.content));
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take()
            && !self.more.is_empty()
        {
            push_content(&mut self.whole.content, &open.piece(&self.more));
            self.more.clear();
        }
    }

    /// The whole message of the pieces so far. The text is copied for it.
    pub(crate) fn message(&mut self) -> Message {
        self.close();
        self.whole.message()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value;

    fn contents() -> impl Strategy<Value = Value> {
        let text = || "[ab]{0,2}";
        prop_oneof![
            3 => text().prop_map(Value::str),
            1 => Just(Value::Null),
            1 => text().prop_map(|text| value!([{"type": "text", "index": "a", "text": text}])),
            4 => (text(), 0..2_i64, prop_oneof![Just("text"), Just("reasoning")]).prop_map(|(text, index, kind)| {
                let mut part = Map::from([("type", kind.into()), ("index", index.into())]);
                part.insert(kind, text);
                Value::list(vec![Value::map(part)])
            }),
            1 => (text(), 0..2_i64).prop_map(|(text, index)| value!([{"index": index, "text": text}])),
            1 => text().prop_map(|text| value!([{"type": "text", "text": text}])),
            1 => (text(), 0..2_i64).prop_map(|(text, index)| {
                value!([{"type": "text", "index": index, "id": "i", "text": text.clone(), "extras": {"s": text}}])
            }),
            1 => (text(), text()).prop_map(|(one, two)| {
                value!([{"type": "text", "index": 0, "text": one}, {"type": "text", "index": 1, "text": two}])
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_pieces_that_are_pushed_one_by_one(contents in prop::collection::vec(contents(), 1..12)) {
            let pieces: Vec<AiChunk> = contents
                .into_iter()
                .enumerate()
                .map(|(at, content)| AiChunk {
                    content,
                    last: at == 3,
                    usage_metadata: (at % 2 == 1).then(|| value!({"output_tokens": 1})),
                    ..AiChunk::default().with_id("m")
                })
                .collect();
            let mut expected = pieces[0].clone();
            let mut sum = Sum::of(&pieces[0]);
            for piece in &pieces[1..] {
                expected.push(piece);
                sum.push(piece);
                if expected.last {
                    prop_assert_eq!(Value::from(sum.message()), Value::from(expected.message()));
                }
            }
            prop_assert_eq!(Value::from(sum.message()), Value::from(expected.message()));
        }
    }

    #[test]
    fn a_long_text_is_copied_once() {
        let piece = AiChunk::text("token ");
        let mut sum = Sum::of(&piece);
        for _ in 0..1000 {
            sum.push(&piece);
        }
        assert_eq!(sum.whole.content, Value::str("token "), "the rest is apart");
        assert_eq!(sum.message().text().len(), 6 * 1001);
    }
}
