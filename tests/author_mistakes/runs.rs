//! Mistakes that the compiler cannot see: what `build`, a run and the log have to say of them.

use std::fmt::Write as _;

use backstitch::{Local, prelude::*, value};

#[derive(State)]
struct Post {
    topic: String,
    #[state(append)]
    notes: Vec<String>,
    body: Option<String>,
}

async fn idle() {}

async fn write(post: Post) -> Update<Post> {
    Post::update().body(post.topic)
}

fn graph() -> Graph<Post> {
    Graph::<Post>::new().node("write", write)
}

fn sound() -> Graph<Post> {
    graph().edge(START, "write")
}

struct Model;

/// Each mistake with what `build` says of it.
fn built() -> Vec<(&'static str, Graph<Post>)> {
    #[derive(State)]
    struct Typo {
        topics: Option<String>,
    }
    #[derive(State)]
    struct Wrong {
        topic: u32,
    }
    #[derive(State)]
    struct Apart {
        #[state(default)]
        colour: String,
    }
    async fn reads_typo(typo: Typo) {
        drop(typo.topics);
    }
    async fn reads_wrong(wrong: Wrong) {
        let _ = wrong.topic;
    }
    async fn with_argument(_: Arg<String>) {}
    async fn with_model(_: Dep<Model>) {}
    async fn with_failure(_: Failure) {}
    fn next(_: &Post) -> &'static str {
        "wirte"
    }
    let apart = Graph::<Apart>::new().node("a", idle).edge(START, "a");
    let apart = apart.build().unwrap();
    vec![
        ("an edge to a misspelt node", graph().edge(START, "wirte")),
        ("no edge from START", graph()),
        ("an edge to START", sound().edge("write", START)),
        ("an edge from END", sound().edge(END, "write")),
        ("two nodes of one name", sound().node("write", idle)),
        ("a node without a way to it", sound().node("idle", idle)),
        ("a reserved name", sound().node("a:b", idle)),
        (
            "a route to a misspelt node",
            sound().route("write", next, ["wirte", END]),
        ),
        (
            "a view with a misspelt channel",
            sound().node("read", reads_typo).edge("write", "read"),
        ),
        (
            "a view with a channel of another type",
            sound().node("read", reads_wrong).edge("write", "read"),
        ),
        (
            "an edge to a node that takes an argument",
            sound().node("grade", with_argument).edge("write", "grade"),
        ),
        (
            "two nodes that take a dependency nobody provides",
            sound()
                .node("one", with_model)
                .node("two", with_model)
                .edge("write", "one")
                .edge("write", "two"),
        ),
        (
            "a node that takes a failure",
            sound().node("mourn", with_failure).edge("write", "mourn"),
        ),
        (
            "a subgraph without a common channel",
            sound().subgraph("apart", apart).edge("write", "apart"),
        ),
        ("a misspelt channel of the output", sound().output(["bodi"])),
    ]
}

#[test]
fn every_mistake_in_a_graph_is_told_once_with_what_was_meant() {
    let mut shown = String::new();
    for (mistake, graph) in built() {
        let problems = graph.build().err().unwrap().problems;
        assert_eq!(problems.len(), 1, "{mistake}: {problems:?}");
        writeln!(shown, "{mistake}:\n  {}", problems[0]).unwrap();
    }
    insta::assert_snapshot!(shown);
}

/// Without the ids, which differ from run to run.
async fn failure(graph: Graph<Post>) -> String {
    let graph = graph.build().unwrap();
    let thread = Local::memory().unwrap().thread(&graph);
    let failed = thread.invoke(value!({"topic": "bees"})).await;
    let text = failed.unwrap_err().to_string();
    let words = text.split(' ').filter(|word| word.matches('-').count() < 4);
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn every_mistake_in_a_run_names_its_node_and_says_what_helps() {
    async fn calls(ctx: Ctx) -> Result<()> {
        ctx.call::<Value>("reseach", json!({})).await.map(drop)
    }
    async fn jumps() -> Target {
        goto("wirte")
    }
    async fn unfinished(body: Body) {
        drop(body.body);
    }
    #[derive(State)]
    struct Body {
        body: String,
    }
    fn elsewhere(_: &Post) -> &'static str {
        "idle"
    }
    let child = sound().build().unwrap();
    let mistakes = [
        (
            "two writers of a field without a reducer",
            sound().node("other", write).edge(START, "other"),
        ),
        (
            "a field that nothing was written to",
            sound().node("read", unfinished).edge(START, "read"),
        ),
        (
            "a command to a misspelt node",
            sound().node("jump", jumps).edge(START, "jump"),
        ),
        (
            "a route to a node that is none of its targets",
            sound().route("write", elsewhere, ["write", END]),
        ),
        (
            "a call of a misspelt graph",
            sound()
                .node_with("call", calls, NodeOpts::new().calls("research", child))
                .edge(START, "call"),
        ),
    ];
    let mut shown = String::new();
    for (mistake, graph) in mistakes {
        writeln!(shown, "{mistake}:\n  {}", failure(graph).await).unwrap();
    }
    insta::assert_snapshot!(shown);
}

/// LangGraph ignores such a key, and so do clients rely on it: it is logged and nothing else.
#[tokio::test]
async fn a_misspelt_key_of_an_input_is_ignored() {
    let thread = Local::memory().unwrap().thread(&sound().build().unwrap());
    let input = value!({"topic": "bees", "note": ["misspelt"]});
    let done = thread.invoke(input).await.unwrap();
    assert_eq!(done["body"], "bees");
    assert!(done["note"].is_null() && done["notes"] == value!([]));
}
