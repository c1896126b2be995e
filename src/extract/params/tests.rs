//! Tests of parameters: what a node may take and return.

use std::sync::Arc;

use futures::FutureExt;

use super::*;
use crate::prelude::*;
use crate::{
    extract::{RouteInput, RunConfig},
    graph::{Body, Deps},
    value,
    value::Map,
};

fn ctx(input: Value, has_arg: bool, config: RunConfig, deps: Deps) -> Ctx {
    Ctx::without_engine("work", (input, has_arg), config, deps, Arc::default())
}

fn with_input(input: Value) -> Ctx {
    ctx(input, false, RunConfig::default(), Deps::default())
}

fn with_arg(arg: Value) -> Ctx {
    ctx(arg, true, RunConfig::default(), Deps::default())
}

#[derive(State, Debug)]
struct Post {
    topic: String,
    body: Option<String>,
}

#[derive(Deserialize, Debug)]
struct Settings {
    who: String,
}

fn message<T>(made: Result<T, Rejection>) -> String {
    match made {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_view_that_does_not_fit_names_node_and_channel() {
    let post = Post::from_task(&with_input(value!({ "topic": "bees" }))).expect("fits");
    assert_eq!((post.topic.as_str(), post.body), ("bees", None));
    assert_eq!(
        message(Post::from_task(&with_input(value!({})))),
        "node `work` cannot read channel `topic`: it has no value yet; make the field an \
         `Option`, or give it `#[state(default)]`"
    );
    let wrong = message(Post::from_task(&with_input(value!({ "topic": 1 }))));
    assert!(
        wrong.starts_with("node `work` cannot read channel `topic`: "),
        "{wrong}"
    );
}

#[test]
fn an_argument_that_is_a_map_reads_as_a_view() {
    let post = Post::from_task(&with_arg(value!({ "topic": "bees" }))).expect("fits");
    assert_eq!(post.topic, "bees");
    let wrong = message(Post::from_task(&with_arg(value!("bees"))));
    assert!(wrong.contains("`Arg<T>`"), "{wrong}");
}

#[test]
fn an_argument_is_only_there_when_the_task_was_started_with_one() {
    let Arg(number) = Arg::<u32>::from_task(&with_arg(value!(7))).expect("fits");
    assert_eq!(number, 7);
    let none = message(Arg::<Value>::from_task(&with_input(value!({}))));
    assert!(none.contains("goto(\"work\").with(..)"), "{none}");
    let wrong = message(Arg::<u32>::from_task(&with_arg(value!("seven"))));
    assert!(
        wrong.starts_with("the argument of node `work` is no `u32`"),
        "{wrong}"
    );
}

#[test]
fn config_is_the_context_or_else_the_configurable_part() {
    let config = |context: Value, who: &str| {
        let configurable = Map::from([("who", value!(who))]);
        let config = RunConfig {
            configurable,
            context,
            ..RunConfig::default()
        };
        ctx(value!({}), false, config, Deps::default())
    };
    let who = |ctx: &Ctx| Config::<Settings>::from_task(ctx).map(|Config(s)| s.who);
    assert_eq!(
        who(&config(value!({ "who": "Ada" }), "Bob"))
            .ok()
            .as_deref(),
        Some("Ada")
    );
    assert_eq!(who(&config(value!({}), "Bob")).ok().as_deref(), Some("Bob"));
    assert_eq!(
        who(&config(Value::Null, "Bob")).ok().as_deref(),
        Some("Bob")
    );
    let wrong = message(who(&config(value!({ "who": 1 }), "Bob")));
    assert!(wrong.contains("node `work`"), "{wrong}");
}

#[test]
fn a_dependency_is_found_by_its_type_even_behind_a_trait() {
    trait Greets: Send + Sync {
        fn greet(&self) -> &'static str;
    }
    struct English;
    impl Greets for English {
        fn greet(&self) -> &'static str {
            "Hello"
        }
    }
    async fn work(dep: Dep<dyn Greets>) -> Update<Post> {
        Post::update().body(dep.greet().to_owned())
    }
    let greets: Arc<dyn Greets> = Arc::new(English);
    let graph = Graph::<Post>::new()
        .provide(greets)
        .node("work", work)
        .edge(START, "work")
        .build()
        .expect("sound");
    let deps = graph.deps.clone();
    let given = ctx(value!({}), false, RunConfig::default(), deps);
    let Ok(dep) = Dep::<dyn Greets>::from_task(&given) else {
        panic!("it was provided")
    };
    assert_eq!(dep.greet(), "Hello");
    let none = message(Dep::<English>::from_task(&given));
    assert!(none.contains("call `.provide("), "{none}");
}

/// What the only node of a graph makes of a task.
fn run<Args: 'static>(
    node: impl crate::graph::Handler<Post, Args>,
    ctx: &Ctx,
) -> anyhow::Result<crate::graph::Output> {
    let graph = Graph::<Post>::new().node("work", node).edge(START, "work");
    let graph = graph.build()?;
    let Body::Function(function) = &graph.nodes[0].body else {
        anyhow::bail!("not a function")
    };
    function(ctx.clone()).now_or_never().expect("never waits")
}

#[test]
fn a_node_takes_parameters_in_any_order_and_returns_what_it_likes() {
    async fn view(ctx: Ctx, post: Post) -> Result<Update<Post>> {
        Ok(Post::update().body(format!("{} on {}", ctx.node(), post.topic)))
    }
    async fn jump(post: Post) -> Command<Post> {
        Post::update()
            .topic("wasps")
            .goto(goto("work").with(post.topic))
            .goto(END)
    }
    async fn many() -> Vec<Command<Post>> {
        vec![
            Post::update().topic("a").goto("work"),
            Post::update().topic("b").goto(END),
        ]
    }
    async fn fails() -> Result<()> {
        Err(Raised::new("ValueError", "no").into())
    }
    async fn bare() -> Target {
        goto(END)
    }
    let ctx = with_input(value!({ "topic": "bees" }));
    let out = run(view, &ctx).expect("runs");
    assert_eq!(out.writes, [("body".into(), value!("work on bees"))]);
    let out = run(jump, &ctx).expect("runs");
    assert_eq!(out.goto[0].arg, Some(value!("bees")));
    assert_eq!(&*out.goto[1].node, END);
    let out = run(many, &ctx).expect("runs");
    assert_eq!((out.writes.len(), out.goto.len()), (2, 2));
    let out = run(bare, &ctx).expect("runs");
    assert_eq!((out.writes.len(), out.goto.len()), (0, 1));
    let error = run(fails, &ctx).expect_err("fails");
    assert_eq!(
        error.downcast_ref::<Raised>().expect("kept").class,
        "ValueError"
    );
    let error = run(view, &with_input(value!({}))).expect_err("no topic");
    assert!(error.to_string().contains("channel `topic`"));
}

#[test]
fn commands_of_one_node_have_one_addressee() {
    async fn mixed() -> Vec<Command<Post>> {
        vec![
            Post::update().topic("a").goto("work"),
            Post::update().topic("b").goto("work").to_parent(),
        ]
    }
    let error = run(mixed, &with_input(value!({}))).expect_err("mixed");
    assert!(error.to_string().contains("parent graph"));
}

#[test]
fn an_argument_that_cannot_be_encoded_fails_the_node() {
    async fn bad() -> Target {
        goto("work").with(i128::MAX)
    }
    let error = run(bad, &with_input(value!({}))).expect_err("too large");
    assert!(error.to_string().contains("64 bits"), "{error}");
}

#[test]
fn a_route_reads_its_view_and_keeps_to_its_targets() {
    fn choose(post: &Post) -> Vec<Target> {
        vec![
            goto("work").with(&post.topic),
            goto(post.body.clone().unwrap_or_default()),
        ]
    }
    async fn idle() {}
    let graph = Graph::<Post>::new()
        .node("work", idle)
        .edge(START, "work")
        .route("work", choose, ["work", END])
        .build()
        .expect("sound");
    let route = &graph.nodes[0].writers.routes[0];
    assert_eq!(&*route.name, "choose");
    let ask = |state: Value| {
        (route.choose)(&RouteInput {
            state: state.as_map().expect("a map"),
            config: &RunConfig::default(),
            deps: &Deps::default(),
        })
    };
    let chosen = ask(value!({ "topic": "bees", "body": END })).expect("allowed");
    assert_eq!(chosen[0].arg, Some(value!("bees")));
    let error = ask(value!({ "topic": "bees", "body": "away" })).expect_err("not in the list");
    assert!(error.to_string().contains("`away`"), "{error}");
    let error = ask(value!({})).expect_err("no topic");
    let text = format!("{error:#}");
    assert!(
        text.contains("`choose`") && text.contains("channel `topic`"),
        "{text}"
    );
}
