//! Routes: what they take and return, and what is told of those that cannot choose.

use std::sync::Arc;

use backstitch::{
    Local, RunOptions,
    graph::{Choose, Compiled},
    prelude::*,
    run::{LocalError, StateUpdate},
    value,
};

#[derive(State)]
struct Order {
    next: String,
    #[state(append)]
    log: Vec<String>,
}

#[derive(State)]
struct Next {
    next: String,
}

#[derive(Deserialize)]
struct Shop {
    open: bool,
}

struct Staff(&'static str);

async fn left() -> Update<Order> {
    Order::update().log("left")
}

async fn right() -> Update<Order> {
    Order::update().log("right")
}

fn graph<Args: 'static>(route: impl Choose<Args>) -> Arc<Compiled> {
    Graph::<Order>::new()
        .provide(Arc::new(Staff("right")))
        .node("left", left)
        .node("right", right)
        .route(START, route, ["left", "right", END])
        .build()
        .unwrap()
}

async fn log(graph: Arc<Compiled>, open: bool) -> Result<Vec<String>, LocalError> {
    let mut options = RunOptions::default();
    options.config.context = value!({"open": open});
    let thread = Local::memory()?.thread(&graph).with(options);
    let done = thread.invoke(Order::update().next("left")).await?;
    Ok(done.values::<Order>().unwrap().log)
}

fn borrowed(order: &Order) -> &str {
    &order.next
}

fn borrowed_list(order: &Order) -> Vec<&str> {
    vec![&order.next, "right"]
}

fn by_config(order: &Order, shop: Config<Shop>) -> String {
    if shop.0.open {
        order.next.clone()
    } else {
        END.to_owned()
    }
}

fn by_dependency(staff: Dep<Staff>) -> &'static str {
    staff.0.0
}

fn by_value(next: Next, _: Config<Shop>, staff: Dep<Staff>) -> [String; 2] {
    [next.next, staff.0.0.to_owned()]
}

#[tokio::test]
async fn a_route_takes_state_config_and_dependencies_and_may_return_borrowed_text() {
    assert_eq!(log(graph(borrowed), true).await.unwrap(), ["left"]);
    let both = ["left", "right"];
    assert_eq!(log(graph(borrowed_list), true).await.unwrap(), both);
    assert_eq!(log(graph(by_config), true).await.unwrap(), ["left"]);
    assert!(log(graph(by_config), false).await.unwrap().is_empty());
    assert_eq!(log(graph(by_dependency), true).await.unwrap(), ["right"]);
    assert_eq!(log(graph(by_value), true).await.unwrap(), both);
    let fixed = graph(|| "right");
    assert_eq!(log(fixed, true).await.unwrap(), ["right"]);
    let closed = graph(|_: &Order, shop: Config<Shop>| shop.0.open.then_some("left"));
    assert!(log(closed, false).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_route_without_its_context_fails_with_its_name() {
    let thread = Local::memory().unwrap().thread(&graph(by_config));
    let failed = thread.invoke(Order::update().next("left")).await;
    let message = failed.unwrap_err().to_string();
    assert!(
        message.contains("the route `by_config`") && message.contains("open"),
        "{message}"
    );
}

/// No run, no context: a change of the state as START runs the route.
#[tokio::test]
async fn a_state_update_runs_routes_without_a_context() {
    let update = || StateUpdate {
        values: Some(value!({"next": "left"})),
        as_node: Some(START.into()),
        ..StateUpdate::default()
    };
    let local = Local::memory().unwrap();
    let root = "".into();
    let plain = local.thread(&graph(borrowed));
    plain.update_state(&root, None, update()).await.unwrap();
    let state = plain.state(&root, None, false).await.unwrap().unwrap();
    assert_eq!(state.snapshot.next, ["left".into()]);
    let configured = local.thread(&graph(by_config));
    let refused = configured.update_state(&root, None, update()).await;
    assert!(refused.unwrap_err().to_string().contains("by_config"));
}

#[test]
fn what_a_route_needs_is_checked_when_the_graph_is_built() {
    #[derive(State)]
    struct Other {
        nxt: Option<String>,
    }
    fn wrong(other: &Other, _: Dep<String>) -> String {
        other.nxt.clone().unwrap_or_default()
    }
    let built = Graph::<Order>::new()
        .node("left", left)
        .edge(START, "left")
        .route("left", wrong, [END])
        .build();
    insta::assert_snapshot!(built.err().unwrap(), @"
    the graph does not hold together:
      the route `wrong` from `left` names channel `nxt`, which the state does not have (did you mean `next`?) (channels: `next`, `log`)
      the route `wrong` from `left` needs `alloc::string::String`: call `.provide(Arc<alloc::string::String>)` on the graph
    ");
}
