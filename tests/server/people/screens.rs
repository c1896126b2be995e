//! The screens of commands that show a thread, a graph or a list.

use super::*;

/// A thread with two branches and a tag.
fn tree(client: &Client) {
    client.post("/threads", &json!({"thread_id": THREAD}));
    let post = |id: &str, role: &str, content: &str| {
        let message = json!({"id": id, "role": role, "content": content});
        let path = format!("/threads/{THREAD}/messages");
        let posted = client.post(&path, &json!({"messages": [message]}));
        assert_eq!(posted.status, 201, "{}", posted.text());
    };
    post("m1", "user", "Shall we go left?");
    post("m2", "assistant", "Left it is.\nThere is a door.");
    let tag = format!("/threads/{THREAD}/tags/door");
    assert!(client.send("PUT", &tag, &[], b"{}").status < 300);
    post("m3", "user", "Shall we open the door?");
    post("m4", "assistant", "It creaks.");
    let rewind = json!({"message_id": "m2"});
    let rewound = client.post(&format!("/threads/{THREAD}/rewind"), &rewind);
    assert_eq!(rewound.status, 201, "{}", rewound.text());
    post("m5", "user", "Shall we climb the wall?");
}

#[test]
fn a_tree_shows_branches_and_tags_and_fits_the_terminal() {
    let (server, client) = bundled();
    tree(&client);
    insta::assert_snapshot!(shown(&mut at(&server, &["tree", THREAD])), @r#"
    #1 user: Shall we go left?
    #2 assistant: Left it is. There is a door.  [tag door]
    ├─ #3 user: Shall we open the door?
    │  #4 assistant: It creaks.  [main]
    └─ #5 user: Shall we climb the wall?  [main-v2*]
    "#);
    let narrow = shown(at(&server, &["tree", THREAD]).env("COLUMNS", "24"));
    insta::assert_snapshot!(narrow, @r#"
    #1 user: Shall we go le…
    #2 assistant: Left it i…
    ├─ #3 user: Shall we op…
    │  #4 assistant: It cre…
    └─ #5 user: Shall we cl…
    "#);
    let json = shown(&mut at(&server, &["tree", THREAD, "--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 5);
}

#[test]
fn a_diff_shows_only_what_differs_between_messages_branches_and_tags() {
    let (server, client) = bundled();
    tree(&client);
    let diff = |from, to| shown(&mut at(&server, &["diff", THREAD, from, to]));
    insta::assert_snapshot!(diff("main", "main-v2"), @r#"
    - user: Shall we open the door?
    - assistant: It creaks.
    + user: Shall we climb the wall?
    "#);
    insta::assert_snapshot!(diff("door", "#3"), @r#"
    + user: Shall we open the door?
    "#);
    assert_eq!(diff("tag:door", "message:m2"), "no difference\n");
}

#[test]
fn a_state_shows_its_values_and_a_list_of_threads_where_they_are() {
    let (server, client) = bundled();
    tree(&client);
    let state = shown(&mut at(&server, &["state", THREAD]));
    insta::assert_snapshot!(steady(&state), @r#"
    checkpoint ID  DATE TIME
    next __start__
    messages:
      human: Shall we go left?
      ai: Left it is. There is a door.
      human: Shall we climb the wall?
    "#);
    let threads = shown(&mut at(&server, &["threads"]));
    insta::assert_snapshot!(steady(&threads), @r#"
    THREAD  interrupted  DATE TIME  -
    "#);
    let json = shown(&mut at(&server, &["threads", "--json", "-n", "1"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["thread_id"], THREAD);
}

#[test]
fn a_graph_is_drawn_as_text_and_as_mermaid() {
    let (server, _) = bundled();
    insta::assert_snapshot!(shown(&mut at(&server, &["graph", "chat"])), @r#"
    __start__ → model
    model ⇢ tools
    model ⇢ __end__
    model ⇢ model
    tools → model
    "#);
    let mermaid = shown(&mut at(&server, &["graph", "chat", "--mermaid"]));
    insta::assert_snapshot!(mermaid, @r#"
    flowchart TD
        n0(["start"])
        n1["model"]
        n2["tools"]
        n3(["end"])
        n0 --> n1
        n1 -.-> n2
        n1 -.-> n3
        n1 -.-> n1
        n2 --> n1
    "#);
}

#[test]
fn tail_begins_with_the_last_events_and_shows_the_next_until_it_is_stopped() {
    let (server, client) = bundled();
    tree(&client);
    let mut tail = at(&server, &["tail", THREAD, "-n", "3"]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || steady(&lines.next().unwrap().unwrap());
    let earlier = [next(), next(), next()].join("\n");
    insta::assert_snapshot!(earlier, @r#"
    12  TIME  BranchActivated       main-v2
    13  TIME  UserMessageAdded      main-v2   user: Shall we climb the wall?
    14  TIME  CheckpointCreated     main-v2   source update  step 2
    "#);
    client.post(
        &format!("/threads/{THREAD}/branches/main/activate"),
        &json!({}),
    );
    assert!(next().contains("BranchActivated"));
    interrupt(&tail);
    assert!(tail.wait().unwrap().success());
}

/// What Ctrl-C does.
pub(super) fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let mut kill = Command::new("kill");
    assert!(kill.args(["-INT", &id]).status().unwrap().success());
}
