//! What is shown to whom, beyond the recordings.

use super::*;
use crate::{
    engine::{Kind, Sink, event::Callback},
    extract::RunConfig,
    value,
};

#[tokio::test]
async fn the_bytes_of_a_stream_are_exact() {
    let mut options = options(&[Mode::Custom]);
    options.resumable = true;
    options.subgraphs = true;
    options.attempt = 2;
    options.after = 4;
    options.branch_in_metadata = Some("main-v2".into());
    let run = options.run;
    let publisher = Publisher::new(options);
    publisher.start();
    publisher.emit(custom(value!({"tick": 0, "text": "a\r\nb"})));
    publisher.emit(event(
        "child:1",
        Body::Custom {
            task: TaskId::NULL,
            value: value!(1.0),
        },
    ));
    publisher.error("ValueError", "bad \"input\"");
    publisher.close();
    let bytes = drain(&mut publisher.subscribe(Since::Start, &[])).await;
    let expected = format!(
        "event: metadata\r\ndata: {{\"run_id\":\"{run}\",\"attempt\":2,\"branch\":\"main-v2\"}}\r\n\
         id: 5\r\n\r\n\
         event: custom\r\ndata: {{\"tick\":0,\"text\":\"a\\r\\nb\"}}\r\nid: 6\r\n\r\n\
         event: custom|child:1\r\ndata: 1.0\r\nid: 7\r\n\r\n\
         event: error\r\ndata: {{\"error\":\"ValueError\",\"message\":\"bad \\\"input\\\"\"}}\r\n\
         id: 8\r\n\r\n"
    );
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

#[tokio::test]
async fn both_forms_of_messages_give_the_pieces_only() {
    let publisher = Publisher::new(options(&[Mode::Messages, Mode::MessagesTuple]));
    let mut reader = publisher.subscribe(Since::Start, &[Mode::Messages]);
    publisher.emit(event(
        "",
        Body::Message {
            message: value!({"type": "AIMessageChunk", "id": "m", "content": "x"}),
            whole: false,
            task: task("model", "model:7"),
        },
    ));
    assert_eq!(names(&now(&mut reader)), ["messages"]);
}

#[tokio::test]
async fn a_late_reader_sees_a_growing_message_whole() {
    let publisher = Publisher::new(options(&[Mode::Messages]));
    let piece = |text: &str| {
        event(
            "",
            Body::Message {
                message: value!({"type": "AIMessageChunk", "id": "m", "content": text}),
                whole: false,
                task: task("model", "model:7"),
            },
        )
    };
    publisher.start();
    assert!(publisher.wants(Kind::Messages, ""));
    publisher.emit(piece("one "));
    let mut reader = publisher.subscribe(Since::Live, &[]);
    publisher.emit(piece("two"));
    let seen = now(&mut reader);
    assert_eq!(names(&seen), ["messages/metadata", "messages/partial"]);
    let shown = &seen[1].1.as_list().unwrap()[0];
    assert_eq!(shown.get("content").unwrap(), "one two");
}

#[tokio::test]
async fn callback_events_tell_of_nodes_everywhere() {
    let publisher = Publisher::new(options(&[Mode::Events, Mode::Tasks]));
    let mut reader = publisher.subscribe(Since::Start, &[Mode::Events]);
    let task = task("hop", "child:1|hop:7");
    let callback = |callback| event("child:1", Body::Callback(Box::new(callback)));
    publisher.emit(callback(Callback::NodeStart(
        task.clone(),
        value!({"n": 1}),
    )));
    publisher.emit(callback(Callback::NodeEnd(task, value!({"n": 2}))));
    let seen = now(&mut reader);
    assert_eq!(names(&seen), ["events", "events", "events"]);
    let keys: Vec<&str> = seen[0]
        .1
        .as_map()
        .unwrap()
        .keys()
        .map(|key| &**key)
        .collect();
    let expected = [
        "event",
        "data",
        "name",
        "tags",
        "run_id",
        "metadata",
        "parent_ids",
    ];
    assert_eq!(keys, expected);
    assert_eq!(seen[0].1.get("event").unwrap(), "on_chain_start");
    assert_eq!(seen[1].1.get("event").unwrap(), "on_chain_stream");
    assert_eq!(seen[2].1.get("event").unwrap(), "on_chain_end");
    let data = value!({"output": {"n": 2}, "input": {"n": 1}});
    assert_eq!(seen[2].1.get("data"), Some(&data));
    let parents = seen[0].1.get("parent_ids").unwrap().as_list().unwrap();
    assert_eq!(parents.len(), 3, "the run, the task around, its graph");
}

#[tokio::test]
async fn a_cached_update_says_so_and_several_writes_are_a_list() {
    let publisher = Publisher::new(options(&[Mode::Updates]));
    let mut reader = publisher.subscribe(Since::Start, &[]);
    for (update, cached) in [
        (Value::Null, true),
        (value!([{"log": ["a"]}, {"log": ["b"]}]), false),
    ] {
        publisher.emit(event(
            "",
            Body::Update {
                node: "split".into(),
                update,
                cached,
            },
        ));
    }
    let seen = now(&mut reader);
    let cached = value!({"split": null, "__metadata__": {"cached": true}});
    assert_eq!(seen[1].1, cached);
    assert_eq!(
        seen[2].1,
        value!({"split": [{"log": ["a"]}, {"log": ["b"]}]})
    );
}

#[test]
fn nothing_is_built_that_nobody_reads() {
    let publisher = Publisher::new(options(&[Mode::Values, Mode::Debug]));
    assert!(!publisher.wants(Kind::Values, ""));
    let reader = publisher.subscribe(Since::Start, &[]);
    assert!(publisher.wants(Kind::Values, "") && publisher.wants(Kind::Checkpoints, ""));
    assert!(!publisher.wants(Kind::Values, "child:1") && !publisher.wants(Kind::Custom, ""));
    drop(reader);
    assert!(!publisher.wants(Kind::Values, ""));

    let mut kept = options(&[Mode::Values]);
    (kept.resumable, kept.subgraphs) = (true, true);
    let kept = Publisher::new(kept);
    assert!(kept.wants(Kind::Values, "") && kept.wants(Kind::Values, "child:1"));
    kept.close();
    assert!(!kept.wants(Kind::Values, ""));
}

#[tokio::test]
async fn the_config_is_shown_without_checkpoints_and_private_keys() {
    let publisher = Publisher::new(options(&[Mode::Tasks]));
    let mut reader = publisher.subscribe(Since::Start, &[Mode::Tasks]);
    let mut config = RunConfig::default();
    config.metadata.insert("tenant", "t1");
    config.configurable.insert("graph_id", "agent");
    publisher.started(&Arc::new(config));
    publisher.emit(event(
        "",
        Body::TaskStart {
            task: task("model", "model:7"),
            input: Value::Null,
        },
    ));
    let seen = now(&mut reader);
    let run = publisher.run().to_string();
    let metadata = value!({
        "tenant": "t1", "graph_id": "agent", "run_attempt": 1, "run_id": run
    });
    assert_eq!(seen[0].1.get("metadata"), Some(&metadata));
}
