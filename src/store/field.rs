//! Which texts of a value are embedded: paths into it, as LangGraph's stores have them.

use std::sync::Arc;

use crate::value::Value;

/// Most steps of a path.
const MOST_STEPS: usize = 32;

/// A path into values: `$` for the whole of one, else names with periods between them, `[n]`, `[-n]`
/// and `[*]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    text: Arc<str>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Name(Arc<str>),
    Index(i64),
    Each,
}

impl Field {
    /// All of a value.
    pub fn whole() -> Self {
        Self {
            text: "$".into(),
            steps: vec![],
        }
    }

    /// Reads a path.
    ///
    /// # Errors
    /// The text is no path; why, for whoever wrote it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "$" {
            return Ok(Self::whole());
        }
        let wrong = || {
            format!(
                "`{text}` is no path: write `$`, or names with periods between them, `[0]` and `[*]`"
            )
        };
        let mut steps = vec![];
        for part in text.split('.') {
            let (name, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
            match name {
                "" if rest.is_empty() || steps.is_empty() => return Err(wrong()),
                "" => {}
                "*" => steps.push(Step::Each),
                name if name.contains(['{', '}', ']', '$']) => return Err(wrong()),
                name => steps.push(Step::Name(name.into())),
            }
            while !rest.is_empty() {
                let inside = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let (inside, after) = inside.ok_or_else(wrong)?;
                steps.push(match inside {
                    "*" => Step::Each,
                    number => Step::Index(number.parse().map_err(|_| wrong())?),
                });
                rest = after;
            }
        }
        if steps.len() > MOST_STEPS {
            return Err(format!("a path has at most {MOST_STEPS} steps"));
        }
        let text = text.into();
        Ok(Self { text, steps })
    }

    /// The path as it was written.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The texts of a value at this path: texts as they are, numbers, lists and maps as JSON. What is
    /// missing, null or empty has none. At most `most` are returned.
    pub fn texts(&self, value: &Value, most: usize) -> Vec<String> {
        let mut found = vec![value];
        for step in &self.steps {
            let next = found.into_iter().flat_map(|value| step.of(value));
            found = next.take(most).collect();
        }
        let texts = found.into_iter().filter_map(|value| match value {
            Value::Null => None,
            Value::Str(text) => Some(text.to_string()),
            other => Some(other.to_json()),
        });
        texts.filter(|text| !text.trim().is_empty()).collect()
    }
}

impl Step {
    fn of<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Self::Name(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let items = value.as_list().unwrap_or_default();
                let from_end = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
                let index = if *index < 0 {
                    items.len().checked_sub(from_end)
                } else {
                    Some(from_end)
                };
                index
                    .and_then(|index| items.get(index))
                    .into_iter()
                    .collect()
            }
            Self::Each => match value {
                Value::List(items) => items.iter().collect(),
                Value::Map(map) => map.iter().map(|(_, value)| value).collect(),
                _ => vec![],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn paths_lead_to_texts() {
        let value = value!({
            "text": "hello", "n": 3, "none": null, "empty": " ",
            "parts": [{"text": "a"}, {"text": "b"}, {"other": 1}],
            "inside": {"list": ["x", "y"]},
        });
        let texts = |path: &str| Field::parse(path).unwrap().texts(&value, 10);
        assert_eq!(texts("text"), ["hello"]);
        assert_eq!(texts("n"), ["3"]);
        assert_eq!(texts("parts[*].text"), ["a", "b"]);
        assert_eq!(texts("parts[0].text"), ["a"]);
        assert_eq!(texts("parts[-2].text"), ["b"]);
        assert_eq!(texts("inside.list"), [r#"["x","y"]"#]);
        assert_eq!(texts("inside.*"), [r#"["x","y"]"#]);
        assert_eq!(texts("inside.list[*]"), ["x", "y"]);
        for nothing in [
            "none",
            "empty",
            "missing",
            "parts[7]",
            "parts[-9]",
            "text[0]",
            "n.x",
        ] {
            assert!(texts(nothing).is_empty(), "{nothing}");
        }
        assert_eq!(texts("$"), [value.to_json()]);
        assert_eq!(
            Field::parse("parts[*].text").unwrap().texts(&value, 1),
            ["a"]
        );
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [
            "", ".", "a.", ".a", "[0]", "a[", "a[x]", "a[0", "a]b", "{a,b}", "$.a",
        ] {
            assert!(Field::parse(text).is_err(), "{text}");
        }
        assert!(Field::parse(&"a.".repeat(40)).is_err());
    }
}
