//! Metadata of checkpoints as storages keep it. That of a run's checkpoints begins with its graph and
//! its assistant, or ends with them behind what the client set: both have columns, so that no superstep repeats their names.

use std::borrow::Cow;

use uuid::fmt::Hyphenated;

use crate::{id::AssistantId, value::Value};

const GRAPH: &str = "{\"graph_id\":\"";
const ASSISTANT: &str = "\",\"assistant_id\":\"";
/// What comes before the graph where both are at the end. A space before the text of all else says that they were.
const LAST: &str = ",\"graph_id\":\"";
const AT_THE_END: char = ' ';

/// What the columns of a row keep of metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns<'a> {
    /// The graph, if the metadata begins or ends with it and the assistant.
    pub graph: Option<&'a str>,
    /// The assistant; `None` beside a graph is the one that the server makes for the graph.
    pub assistant: Option<AssistantId>,
    /// JSON text of all else, with a space before it if both were at the end.
    pub rest: Cow<'a, str>,
}

impl<'a> Columns<'a> {
    /// Takes JSON text apart.
    pub fn of(text: &'a str) -> Self {
        let divided = Self::divided(text).or_else(|| Self::divided_at_the_end(text));
        divided.unwrap_or(Self {
            graph: None,
            assistant: None,
            rest: Cow::Borrowed(text),
        })
    }

    fn divided(text: &'a str) -> Option<Self> {
        let (graph, behind) = text.strip_prefix(GRAPH)?.split_once('"')?;
        // A graph with an escape in its name keeps its metadata whole.
        if graph.contains('\\') {
            return None;
        }
        let behind = text.get(text.len() - behind.len() - 1..)?;
        let (id, behind) = behind
            .strip_prefix(ASSISTANT)?
            .split_at_checked(Hyphenated::LENGTH)?;
        let assistant = assistant_of(id)?;
        let rest = match behind.strip_prefix('"')? {
            "}" => Cow::Borrowed("{}"),
            behind => Cow::Owned(format!("{{{}", behind.strip_prefix(',')?)),
        };
        Some(Self {
            graph: Some(graph),
            assistant: Some(assistant).filter(|id| *id != AssistantId::of_graph(graph)),
            rest,
        })
    }

    fn divided_at_the_end(text: &'a str) -> Option<Self> {
        let text = text.strip_suffix("\"}")?;
        let length = text.len().checked_sub(Hyphenated::LENGTH)?;
        let (before, id) = text.split_at_checked(length)?;
        let (rest, graph) = before.strip_suffix(ASSISTANT)?.rsplit_once(LAST)?;
        if graph.contains(['"', '\\']) {
            return None;
        }
        let assistant = assistant_of(id)?;
        Some(Self {
            graph: Some(graph),
            assistant: Some(assistant).filter(|id| *id != AssistantId::of_graph(graph)),
            rest: Cow::Owned(format!("{AT_THE_END}{rest}}}")),
        })
    }

    /// The JSON text that was taken apart.
    pub fn text(self) -> String {
        let Some(graph) = self.graph else {
            return self.rest.into_owned();
        };
        let assistant = self
            .assistant
            .unwrap_or_else(|| AssistantId::of_graph(graph));
        if let Some(rest) = self.rest.strip_prefix(AT_THE_END) {
            let rest = rest.strip_suffix('}').unwrap_or(rest);
            return format!("{rest}{LAST}{graph}{ASSISTANT}{assistant}\"}}");
        }
        let rest = match self.rest.strip_prefix('{') {
            None | Some("}") => "}".into(),
            Some(rest) => format!(",{rest}"),
        };
        format!("{GRAPH}{graph}{ASSISTANT}{assistant}\"{rest}")
    }
}

/// The assistant whose id a text is, as ids are written.
fn assistant_of(text: &str) -> Option<AssistantId> {
    let id: AssistantId = text.parse().ok()?;
    (id.to_string() == text).then_some(id)
}

/// Whether the assistant that a filter of metadata names is the own one of a graph.
pub fn is_own_assistant(assistant: &Value, graph: &str) -> bool {
    assistant.as_str() == Some(&*AssistantId::of_graph(graph).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes metadata apart and puts it together again.
    fn parts(text: &str) -> Columns<'_> {
        let columns = Columns::of(text);
        assert_eq!(columns.clone().text(), text);
        columns
    }

    #[test]
    fn the_graph_and_its_own_assistant_are_no_text() {
        let own = AssistantId::of_graph("chat");
        let text = format!(r#"{{"graph_id":"chat","assistant_id":"{own}"}}"#);
        let columns = parts(&text);
        assert_eq!((columns.graph, columns.assistant), (Some("chat"), None));
        assert_eq!(columns.rest, "{}");
    }

    #[test]
    fn another_assistant_and_what_follows_are_kept() {
        let other = AssistantId::mint();
        let text = format!(r#"{{"graph_id":"ü","assistant_id":"{other}","a":{{"b":"}}"}},"c":1}}"#);
        let columns = parts(&text);
        assert_eq!((columns.graph, columns.assistant), (Some("ü"), Some(other)));
        assert_eq!(columns.rest, r#"{"a":{"b":"}"},"c":1}"#);
    }

    #[test]
    fn both_are_no_text_behind_what_a_client_set() {
        let own = AssistantId::of_graph("chat");
        let set = r#""a":{"graph_id":"x"},"b":",\"graph_id\":\"""#;
        let text = format!(r#"{{{set},"graph_id":"chat","assistant_id":"{own}"}}"#);
        let columns = parts(&text);
        assert_eq!((columns.graph, columns.assistant), (Some("chat"), None));
        assert_eq!(columns.rest, format!(" {{{set}}}"));
        let other = AssistantId::mint();
        let text = format!(r#"{{"a":1,"graph_id":"ü","assistant_id":"{other}"}}"#);
        assert_eq!(parts(&text).assistant, Some(other));
    }

    #[test]
    fn other_metadata_stays_as_it_is() {
        let id = AssistantId::of_graph("g").to_string();
        for text in [
            "{}".into(),
            "any text".into(),
            r#"{"graph_id":"g"}"#.into(),
            r#"{"graph_id":1,"assistant_id":2}"#.into(),
            r#"{"graph_id":"g","assistant_id":"short"}"#.into(),
            r#"{"graph_id":"g","assistant_id":"üüüüüüüüüüüüüüüüüüü"}"#.into(),
            format!(
                r#"{{"graph_id":"g","assistant_id":"{}"}}"#,
                id.to_uppercase()
            ),
            format!(r#"{{"graph_id":"g","assistant_id":"{id}x"}}"#),
            format!(r#"{{"graph_id":"\"","assistant_id":"{id}"}}"#),
            format!(r#"{{"graph_id":"g","x":1,"assistant_id":"{id}"}}"#),
            format!(r#"{{"assistant_id":"{id}","graph_id":"g"}}"#),
            format!(r#"{{"a":{{"graph_id":"g","assistant_id":"{id}"}}}}"#),
            format!(r#"{{"a":1,"graph_id":"g","x":1,"assistant_id":"{id}"}}"#),
            format!(r#"{{"a":1,"graph_id":"\"","assistant_id":"{id}"}}"#),
            format!(r#"{{"a":1,"graph_id":"g","assistant_id":"{id}","x":""}}"#),
        ] {
            let columns = parts(&text);
            assert_eq!((columns.graph, columns.assistant), (None, None), "{text}");
        }
    }

    #[test]
    fn a_filter_names_the_own_assistant_of_one_graph() {
        let own = Value::from(AssistantId::of_graph("b").to_string());
        assert_eq!(
            ["a", "b"].map(|graph| is_own_assistant(&own, graph)),
            [false, true]
        );
        assert!(!is_own_assistant(&Value::Null, "b"));
    }
}
