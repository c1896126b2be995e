//! Tests of planning: ids and paths of tasks are LangGraph's.

use super::*;
use crate::{
    channel::{Channel, Kind, Reducer},
    checkpoint::Version,
    graph::{Graph, Output, START},
};

/// Ids and paths that LangGraph 1.2.22 stored for this graph.
#[test]
fn error_handlers_have_langgraphs_ids_and_paths() {
    let graph = Graph::untyped()
        .channel("xs", Kind::Aggregate(Reducer::append()))
        .node("a", |_| async { Ok(Output::default()) })
        .node("z", |_| async { Ok(Output::default()) })
        .on_error("a", |_| async { Ok(Output::default()) })
        .on_error("z", |_| async { Ok(Output::default()) })
        .edge(START, "a")
        .edge(START, "z")
        .build()
        .expect("sound");
    let topology = Topology::new(graph);
    let mut channels = Channels::empty(&topology);
    let mut write = |name: &str, value: Value| {
        let channel: &mut Channel = channels.by_name.get_mut(name).expect("a channel");
        channel.update(&[value]).expect("takes it");
        channels.versions.insert(name.into(), Version::after(0));
    };
    write("branch:to:z", Value::Null);
    let send = Goto {
        node: "a".into(),
        arg: Some(Value::Int(1)),
    };
    write(TASKS, send_value(&send));
    let checkpoint = "1f1e5780-e3af-63d5-8000-7c1943ad3143";
    let checkpoint: CheckpointId = checkpoint.parse().expect("an id");
    let planned = plan(&topology, &channels, checkpoint, "", 1, None);
    let failure = |task: &PlannedTask| Failure {
        node: task.name.clone(),
        task: task.id,
        class: String::new(),
        message: String::new(),
    };
    let found = planned.iter().map(|task| {
        let input = (Value::Null, failure(task));
        let handler = handler(&topology, (checkpoint, 1), task, input).expect("has one");
        (
            task.id.to_string(),
            handler.id.to_string(),
            handler.path.to_string(),
        )
    });
    let expected = [
        (
            "051394a8-be51-9279-974d-29db515eae8b",
            "8be84f99-ed2f-810c-c1c9-2f694dd34f5b",
            "~__pregel_push, 0000000000, 0000000000, node_error_handler, 0000000000",
        ),
        (
            "0ea17801-7c2a-1902-1dc2-b0271b4ad918",
            "eb9ed116-2d4c-9568-ad53-0fdbff8dc5b9",
            "~__pregel_pull, z, node_error_handler, 0000000000",
        ),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(Vec::from_iter(found), expected);
}
