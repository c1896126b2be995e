//! Puts texts and reasoning of a streamed reply into the pieces of a message.

use crate::{
    message::AiChunk,
    value::{Map, Value},
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

/// The block of a reply that is written. A reply without reasoning is a plain text; with the first reasoning the
/// content becomes a list, whose parts carry their position, by which pieces of one part are joined.
#[derive(Default)]
pub(super) struct Blocks {
    open: Option<Kind>,
    /// How many parts have begun.
    parts: i64,
    is_list: bool,
    /// Proof of the reasoning that is open, by which the provider recognizes it.
    signature: String,
}

impl Blocks {
    /// A piece of text.
    pub fn text(&mut self, text: String) -> AiChunk {
        if !self.is_list {
            return AiChunk::text(text);
        }
        self.part(Kind::Text, [("text", Value::str(text))])
    }

    /// A piece of reasoning.
    pub fn reasoning(&mut self, text: String) -> AiChunk {
        self.is_list = true;
        self.part(Kind::Reasoning, [("reasoning", Value::str(text))])
    }

    /// A piece of the signature of the reasoning before it.
    pub fn sign(&mut self, signature: &str) {
        self.is_list = true;
        self.signature.push_str(signature);
    }

    /// Bytes of the signature that is in no piece yet.
    #[cfg(feature = "models")]
    pub fn unsent(&self) -> usize {
        self.signature.len()
    }

    /// The signature of the reasoning that has ended. Pieces of text are joined, anything else is not: it is one
    /// piece, before whatever comes next.
    pub fn end_of_reasoning(&mut self) -> Option<AiChunk> {
        if self.signature.is_empty() {
            return None;
        }
        let signature = Value::str(std::mem::take(&mut self.signature));
        let extras = Value::map(Map::from([("signature", signature)]));
        let piece = self.part(
            Kind::Reasoning,
            [("reasoning", Value::str("")), ("extras", extras)],
        );
        // The next reasoning is another block.
        self.open = None;
        Some(piece)
    }

    /// A part of a kind of its own, whole.
    pub fn whole(&mut self, part: Value) -> AiChunk {
        self.is_list = true;
        self.open = None;
        AiChunk {
            content: Value::list(vec![part]),
            ..AiChunk::default()
        }
    }

    fn part<const N: usize>(&mut self, kind: Kind, fields: [(&str, Value); N]) -> AiChunk {
        if self.open != Some(kind) {
            self.parts += 1;
            self.open = Some(kind);
        }
        let kind = match kind {
            Kind::Text => "text",
            Kind::Reasoning => "reasoning",
        };
        let mut part = Map::from([("type", kind.into())]);
        for (name, value) in fields {
            part.insert(name, value);
        }
        part.insert("index", self.parts - 1);
        AiChunk {
            content: Value::list(vec![Value::map(part)]),
            ..AiChunk::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn content(pieces: &[AiChunk]) -> Value {
        let mut whole = AiChunk::default();
        pieces.iter().for_each(|piece| whole.push(piece));
        whole.message().content().clone()
    }

    #[test]
    fn texts_alone_are_a_plain_text() {
        let mut blocks = Blocks::default();
        let pieces = [blocks.text("Hel".into()), blocks.text("lo".into())];
        assert_eq!(content(&pieces), value!("Hello"));
    }

    #[test]
    fn reasoning_and_texts_are_parts_in_their_order() {
        let mut blocks = Blocks::default();
        let mut pieces = vec![
            blocks.reasoning("Let me ".into()),
            blocks.reasoning("see.".into()),
        ];
        blocks.sign("c2ln");
        blocks.sign("bmVk");
        pieces.extend(blocks.end_of_reasoning());
        pieces.extend(blocks.end_of_reasoning());
        pieces.push(blocks.reasoning("And more.".into()));
        pieces.push(blocks.text("It is ".into()));
        pieces.push(blocks.text("warm.".into()));
        assert_eq!(
            content(&pieces),
            value!([
                {"type": "reasoning", "reasoning": "Let me see.", "index": 0, "extras": {"signature": "c2lnbmVk"}},
                {"type": "reasoning", "reasoning": "And more.", "index": 1},
                {"type": "text", "text": "It is warm.", "index": 2},
            ])
        );
    }

    #[test]
    fn a_text_before_reasoning_stays_before_it() {
        let mut blocks = Blocks::default();
        let pieces = [
            blocks.text("Hm. ".into()),
            blocks.reasoning("why".into()),
            blocks.text("So.".into()),
        ];
        let content = content(&pieces);
        let texts: Vec<_> = content.as_list().expect("parts").iter().collect();
        assert_eq!(texts[0], &value!({"type": "text", "text": "Hm. "}));
        assert_eq!(texts[2]["text"], "So.");
    }
}
