//! Metadata of checkpoints as storages keep it. That of a run's checkpoints begins with its graph and
//! its assistant: both have columns, so that no superstep repeats their names.

use std::borrow::Cow;

use uuid::fmt::Hyphenated;

use crate::{id::AssistantId, value::Value};

const GRAPH: &str = "{\"graph_id\":\"";
const ASSISTANT: &str = "\",\"assistant_id\":\"";

/// What the columns of a row keep of metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns<'a> {
    /// The graph, if the metadata begins with it and the assistant.
    pub graph: Option<&'a str>,
    /// The assistant; `None` beside a graph is the one that the server makes for the graph.
    pub assistant: Option<AssistantId>,
    /// JSON text of all else.
    pub rest: Cow<'a, str>,
}

impl<'a> Columns<'a> {
    /// Takes JSON text apart.
    pub fn of(text: &'a str) -> Self {
        Self::divided(text).unwrap_or(Self {
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
        let assistant: AssistantId = id.parse().ok()?;
        if assistant.to_string() != id {
            return None;
        }
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

    /// The JSON text that was taken apart.
    pub fn text(self) -> String {
        let Some(graph) = self.graph else {
            return self.rest.into_owned();
        };
        let assistant = self
            .assistant
            .unwrap_or_else(|| AssistantId::of_graph(graph));
        let rest = match self.rest.strip_prefix('{') {
            None | Some("}") => "}".into(),
            Some(rest) => format!(",{rest}"),
        };
        format!("{GRAPH}{graph}{ASSISTANT}{assistant}\"{rest}")
    }
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
