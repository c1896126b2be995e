//! What clients learn about an assistant's graph and the graphs inside it. The expectations are
//! what LangGraph's own server answers to the same requests.

use serde_json::{Value, json};

use test_support::{
    client::{Answer, Client},
    place::Place,
    server::{Server, Setup},
};

/// A server whose graph `subgraph` has two levels inside, and that assistant's path.
struct Asked {
    _server: Server,
    client: Client,
    assistant: String,
}

impl Asked {
    fn new() -> Self {
        let server = Place::sqlite().start(Setup::example("reference_server"));
        let client = Client::of(&server);
        let assistant = Self::path(&client, "subgraph");
        Self {
            _server: server,
            client,
            assistant,
        }
    }

    fn path(client: &Client, graph: &str) -> String {
        let found = client.post("/assistants/search", &json!({"graph_id": graph}));
        let id = found.json()[0]["assistant_id"].as_str().unwrap().to_owned();
        format!("/assistants/{id}")
    }

    fn ask(&self, rest: &str) -> Answer {
        self.client.get(&format!("{}{rest}", self.assistant))
    }

    fn names(&self, rest: &str) -> Vec<String> {
        let answer = self.ask(rest);
        assert_eq!(answer.status, 200, "{rest}: {}", answer.text());
        keys(&answer.json())
    }
}

fn keys(map: &Value) -> Vec<String> {
    map.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn graphs_inside_are_listed_by_namespace_with_their_schemas() {
    let asked = Asked::new();
    let found = asked.ask("/subgraphs").json();
    assert_eq!(keys(&found), ["child"]);
    let child = &found["child"];
    let mut fields = keys(child);
    fields.sort();
    assert_eq!(
        fields,
        [
            "config_schema",
            "context_schema",
            "input_schema",
            "output_schema",
            "state_schema"
        ]
    );
    assert_eq!(
        [&child["config_schema"], &child["context_schema"]],
        [&json!({}), &json!(null)]
    );
    for schema in ["input_schema", "output_schema", "state_schema"] {
        let properties = &child[schema]["properties"];
        assert_eq!(properties["path"]["type"], "array", "{schema}");
        assert_eq!(properties["path"]["title"], "Path", "{schema}");
    }
    // The graph itself has the same and its name.
    let own = asked.ask("/schemas").json();
    assert_eq!(own["graph_id"], "subgraph");
    assert_eq!(own.as_object().unwrap().len(), 6);
    // A graph with nothing inside.
    let counter = Asked::path(&asked.client, "counter");
    let none = asked
        .client
        .get(&format!("{counter}/subgraphs?recurse=true"));
    assert_eq!(none.json(), json!({}));
}

#[test]
fn deeper_graphs_inside_are_found_only_when_asked_for() {
    let asked = Asked::new();
    for (rest, found) in [
        ("/subgraphs?recurse=false", vec!["child"]),
        ("/subgraphs?recurse=true", vec!["child", "child|grand"]),
        ("/subgraphs/child", vec!["child"]),
        ("/subgraphs/child?recurse=true", vec!["child"]),
        ("/subgraphs/child%7Cgrand", vec![]),
        ("/subgraphs/child%7Cgrand?recurse=true", vec!["child|grand"]),
        ("/subgraphs/grand?recurse=true", vec![]),
        ("/subgraphs/nobody", vec![]),
    ] {
        assert_eq!(asked.names(rest), found, "{rest}");
    }
    asked.ask("/subgraphs?recurse=maybe").refused(422);
}

#[test]
fn a_drawing_opens_graphs_inside_as_deep_as_asked() {
    let asked = Asked::new();
    let nodes = |query: &str| -> Vec<String> {
        let drawing = asked.ask(&format!("/graph{query}")).json();
        let nodes = drawing["nodes"].as_array().unwrap().iter();
        nodes
            .map(|node| node["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let closed = ["__start__", "before", "child", "after", "__end__"];
    let outer = ["__start__", "before", "after", "__end__"];
    let with = |inner: &[&'static str]| [&outer[..], inner].concat();
    assert_eq!(nodes(""), closed);
    assert_eq!(nodes("?xray=false"), closed);
    assert_eq!(nodes("?xray=1"), with(&["child:enter", "child:grand"]));
    let whole = with(&["child:enter", "child:grand:leaf"]);
    assert_eq!(nodes("?xray=2"), whole);
    assert_eq!(nodes("?xray=true"), whole);
    for bad in ["0", "-1", "1.5", "maybe"] {
        asked.ask(&format!("/graph?xray={bad}")).refused(422);
    }
    let named = asked.client.get("/assistants/subgraph/graph?xray=true");
    assert_eq!(named.json(), asked.ask("/graph?xray=true").json());
}

#[test]
fn assistants_are_named_by_id_and_must_be_there() {
    let asked = Asked::new();
    let nobody = "/assistants/11111111-1111-1111-1111-111111111111";
    for rest in ["/graph", "/schemas"] {
        asked.client.get(&format!("{nobody}{rest}")).refused(404);
        let of_graph = asked.client.get(&format!("/assistants/subgraph{rest}"));
        assert_eq!(of_graph.status, 200, "{}", of_graph.text());
    }
    for rest in ["/subgraphs", "/subgraphs/child"] {
        asked.client.get(&format!("{nobody}{rest}")).refused(404);
        let named = asked.client.get(&format!("/assistants/subgraph{rest}"));
        assert_eq!(
            named.refused(422),
            "Invalid assistant ID: must be a UUID",
            "{rest}"
        );
    }
}
