//! How much memory a JSON text takes once it is parsed, estimated before that.

/// Memory of a value in its list or map, which grow by doubling.
const VALUE: usize = 48;
/// Memory of a list besides its values; the first one makes room for four.
const LIST: usize = 160;
/// Memory of a map besides its values: its table and its order.
const MAP: usize = 320;
/// Memory of a list or map without values.
const EMPTY: usize = 96;
/// Memory of a text besides its characters.
const TEXT: usize = 40;

/// What a JSON text has in it, counted without parsing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonSize {
    /// Values of every kind, those inside lists and maps too.
    pub values: usize,
    /// About the most bytes that they take in memory.
    pub bytes: usize,
}

impl JsonSize {
    /// Counts a text, which need not be valid JSON.
    pub fn of(text: &[u8]) -> Self {
        let (mut commas, mut texts) = (0, 0);
        let (mut lists, mut maps, mut empty) = (0, 0, 0);
        let mut rest = text.iter();
        let mut before = 0;
        while let Some(byte) = rest.next() {
            if byte.is_ascii_whitespace() {
                continue;
            }
            let opened = std::mem::replace(&mut before, *byte);
            match byte {
                b',' => commas += 1,
                b']' if opened == b'[' => {
                    lists -= 1;
                    empty += 1;
                }
                b'}' if opened == b'{' => {
                    maps -= 1;
                    empty += 1;
                }
                b'[' => lists += 1,
                b'{' => maps += 1,
                b'"' => {
                    texts += 1;
                    while let Some(byte) = rest.next() {
                        match byte {
                            b'"' => break,
                            b'\\' => drop(rest.next()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        // A value is the whole, or the first of a list or map, or follows a comma.
        let values = 1 + commas + lists + maps;
        let containers = lists * LIST + maps * MAP + empty * EMPTY;
        Self {
            values,
            bytes: text.len() + values * VALUE + containers + texts * TEXT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        let values = |text: &str| JsonSize::of(text.as_bytes()).values;
        assert_eq!(values("1"), 1);
        assert_eq!(values(r#""a, [b], {c} \" , d""#), 1);
        assert_eq!(values(r#"["\\", 1]"#), 3);
        assert_eq!(values("[[],[ ],[]]"), 4);
        assert_eq!(values(r#"{"a": [1, 2], "b": null}"#), 5);
        assert_eq!(values("]]}},"), 2, "no JSON");
        assert_eq!(JsonSize::of(b"\"\\").values, 1, "a text that breaks off");
    }
}
