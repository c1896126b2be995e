//! The invariants, each a function from all rows to what does not hold.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::rows::{Loaded, Row, number, text};

/// The complaints of one invariant; `true` allows for what pruning and rolling back leave.
pub type Check = fn(&Loaded, bool) -> Vec<String>;

/// The invariants that are checked, by number.
pub const CHECKS: [(&str, Check); 11] = [
    ("I1", parents_and_depths),
    ("I2", heads_tags_and_bases),
    ("I3", what_a_thread_sees),
    ("I4", event_numbers),
    ("I5", active_branches),
    ("I6", values),
    ("I7", writes_and_runs),
    ("I8", messages),
    ("I11", graphs_inside),
    ("I12", messages_and_their_events),
    ("labels", labels_of_checkpoints),
];

pub fn parents_and_depths(all: &Loaded, pruned: bool) -> Vec<String> {
    let mut found = Vec::new();
    for row in all.of("checkpoints") {
        let (tree, id, depth) = (
            text(row, "tree_id"),
            text(row, "checkpoint_id"),
            number(row, "depth"),
        );
        let Some(parent) = row["parent_checkpoint_id"].as_deref() else {
            if depth != 0 && !pruned && text(row, "checkpoint_ns").is_empty() {
                found.push(format!("{id} follows nothing at depth {depth}"));
            }
            continue;
        };
        if *parent >= *id {
            found.push(format!("{id} is not greater than its parent {parent}"));
        }
        if !text(row, "checkpoint_ns").is_empty() {
            continue;
        }
        match all.root(&tree, parent) {
            None => found.push(format!("the parent {parent} of {id} is not there")),
            Some(above) => {
                let above = number(above, "depth");
                if depth != above + 1 && !(pruned && depth > above) {
                    found.push(format!("{id} has depth {depth}, its parent {above}"));
                }
            }
        }
    }
    found
}

pub fn heads_tags_and_bases(all: &Loaded, pruned: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut expect = |what: String, tree: &str, id: Option<&str>, depth: i64| {
        let Some(id) = id else {
            if depth != -1 {
                found.push(format!("{what} is empty at depth {depth}"));
            }
            return;
        };
        match all.root(tree, id) {
            None => found.push(format!("{what} stands on {id}, which is not there")),
            Some(row) if number(row, "depth") != depth => {
                found.push(format!("{what} gives {id} the depth {depth}"));
            }
            Some(_) => {}
        }
    };
    for row in all.of("branches") {
        let what = format!("branch {} of {}", text(row, "name"), text(row, "thread_id"));
        let head = row["head_checkpoint_id"].as_deref();
        expect(what, &text(row, "tree_id"), head, number(row, "head_depth"));
    }
    for row in all.of("tags") {
        let what = format!("tag {}", text(row, "name"));
        let at = row["checkpoint_id"].as_deref();
        expect(what, &text(row, "tree_id"), at, number(row, "depth"));
    }
    for row in all.living() {
        let what = format!("fork {}", text(row, "thread_id"));
        let base = row["fork_checkpoint_id"].as_deref();
        expect(
            what,
            &text(row, "tree_id"),
            base,
            number(row, "fork_checkpoint_depth"),
        );
    }
    let mut lines = HashSet::new();
    for row in all.of("checkpoints") {
        let line = (
            text(row, "tree_id"),
            text(row, "branch_id"),
            row["parent_checkpoint_id"].clone(),
        );
        // A rollback may have had to keep the first.
        if text(row, "checkpoint_ns").is_empty() && !lines.insert(line) && !pruned {
            let id = text(row, "checkpoint_id");
            found.push(format!(
                "{id} is not the only one of its branch after its parent"
            ));
        }
    }
    found
}

pub fn what_a_thread_sees(all: &Loaded, _: bool) -> Vec<String> {
    let mut found = Vec::new();
    let threads: HashMap<String, &Row> = all
        .living()
        .map(|row| (text(row, "thread_id"), row))
        .collect();
    for branch in all.of("branches") {
        let (tree, thread) = (text(branch, "tree_id"), text(branch, "thread_id"));
        let Some(row) = threads.get(&thread) else {
            found.push(format!(
                "branch {} belongs to no living thread",
                text(branch, "name")
            ));
            continue;
        };
        let base = row["fork_checkpoint_id"].as_deref();
        let inherited: HashSet<String> = base
            .map(|base| all.path(&tree, base).into_iter().collect())
            .unwrap_or_default();
        let Some(head) = branch["head_checkpoint_id"].as_deref() else {
            continue;
        };
        for id in all.path(&tree, head) {
            let own = all
                .root(&tree, &id)
                .is_some_and(|row| text(row, "thread_id") == thread);
            if !own && !inherited.contains(&id) {
                found.push(format!("{thread} does not see {id} on its branch"));
            }
        }
    }
    found
}

const TWO_EVENTS: [i64; 2] = [19, 20];

pub fn event_numbers(all: &Loaded, _: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut numbers: HashMap<String, Vec<i64>> = HashMap::new();
    for row in all.of("events") {
        let of_thread = numbers.entry(text(row, "thread_id")).or_default();
        let last = number(row, "event_number");
        // Two events of a run that follow each other share a row, with the number of the second.
        of_thread.extend((TWO_EVENTS.contains(&number(row, "kind"))).then_some(last - 1));
        of_thread.push(last);
    }
    for row in all.of("threads") {
        let thread = text(row, "thread_id");
        let mut logged = numbers.remove(&thread).unwrap_or_default();
        logged.sort_unstable();
        let first = number(row, "fork_event_number") + 1;
        // Of a tombstone the front is left.
        let last = match row["deleted_at"] {
            None => number(row, "last_event_number"),
            Some(_) => logged.last().copied().unwrap_or(first - 1),
        };
        if logged != (first..=last).collect::<Vec<_>>() {
            found.push(format!(
                "{thread} has the events {logged:?}, not {first} to {last}"
            ));
        }
    }
    for thread in numbers.keys() {
        found.push(format!("there are events of {thread}, which is not there"));
    }
    for row in all.of("checkpoints") {
        let above = row["parent_checkpoint_id"]
            .as_deref()
            .and_then(|id| all.root(&text(row, "tree_id"), id));
        let falls =
            above.is_some_and(|above| number(above, "event_number") > number(row, "event_number"));
        if falls && text(row, "checkpoint_ns").is_empty() {
            let id = text(row, "checkpoint_id");
            found.push(format!("the event number of {id} is below its parent's"));
        }
    }
    found
}

pub fn active_branches(all: &Loaded, _: bool) -> Vec<String> {
    let branches: HashSet<_> = all
        .of("branches")
        .iter()
        .map(|row| {
            (
                text(row, "tree_id"),
                text(row, "thread_id"),
                text(row, "branch_id"),
            )
        })
        .collect();
    all.living()
        .filter(|row| {
            let active = text(row, "active_branch_id");
            !branches.contains(&(text(row, "tree_id"), text(row, "thread_id"), active))
        })
        .map(|row| format!("{} has no active branch of its own", text(row, "thread_id")))
        .collect()
}

pub fn values(all: &Loaded, _: bool) -> Vec<String> {
    let mut found = Vec::new();
    let blobs: HashMap<[String; 4], Option<String>> = all
        .of("checkpoint_blobs")
        .iter()
        .map(|row| {
            let key = ["tree_id", "checkpoint_ns", "channel", "version"].map(|c| text(row, c));
            (key, row["base_version"].clone())
        })
        .collect();
    for row in all.of("checkpoints") {
        let versions: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text(row, "blob_versions")).unwrap();
        for (channel, version) in &versions {
            let mut key = [
                text(row, "tree_id"),
                text(row, "checkpoint_ns"),
                channel.clone(),
                version.as_str().unwrap().to_owned(),
            ];
            let mut next = Some(key[3].clone());
            while let Some(version) = next.take() {
                key[3] = version;
                let Some(below) = blobs.get(&key) else {
                    let id = text(row, "checkpoint_id");
                    found.push(format!(
                        "{channel} of {id} is or builds on {}, which is not there",
                        key[3]
                    ));
                    break;
                };
                next = below.clone();
            }
        }
    }
    found
}

pub fn writes_and_runs(all: &Loaded, _: bool) -> Vec<String> {
    let mut found = Vec::new();
    let checkpoints: HashSet<_> = all
        .of("checkpoints")
        .iter()
        .map(|row| ["tree_id", "checkpoint_ns", "checkpoint_id"].map(|c| text(row, c)))
        .collect();
    for row in all.of("checkpoint_writes") {
        let at = ["tree_id", "checkpoint_ns", "checkpoint_id"].map(|c| text(row, c));
        if !checkpoints.contains(&at) {
            found.push(format!("a write belongs to {}, which is not there", at[2]));
        }
    }
    let epochs: HashMap<_, _> = all
        .of("branches")
        .iter()
        .map(|row| (text(row, "branch_id"), text(row, "writer_epoch")))
        .collect();
    let mut slots = HashSet::new();
    for row in all
        .of("runs")
        .iter()
        .filter(|row| text(row, "status") == "running")
    {
        let (run, branch) = (text(row, "run_id"), text(row, "branch_id"));
        if epochs.get(&branch) != Some(&text(row, "epoch")) {
            found.push(format!("{run} runs without holding its branch"));
        }
        if !slots.insert((text(row, "thread_id"), branch)) {
            found.push(format!("{run} is not the only one that runs on its branch"));
        }
    }
    found
}

pub fn messages(all: &Loaded, pruned: bool) -> Vec<String> {
    let mut found = Vec::new();
    let nodes: HashMap<_, &Row> = all
        .of("message_nodes")
        .iter()
        .map(|row| ((text(row, "tree_id"), text(row, "node_id")), row))
        .collect();
    for ((tree, id), row) in &nodes {
        let at = text(row, "checkpoint_id");
        match all.root(tree, &at) {
            None if !pruned => found.push(format!("node {id} begins at {at}, which is not there")),
            Some(point) if point["depth"] != row["depth"] => {
                found.push(format!("node {id} gives {at} another depth"));
            }
            _ => {}
        }
        let Some(parent) = row["parent_node_id"].clone() else {
            continue;
        };
        match nodes.get(&(tree.clone(), parent.clone())) {
            None => found.push(format!("the node {parent} before {id} is not there")),
            Some(above) if text(row, "kind") == "add" => {
                if number(row, "ordinal") != number(above, "ordinal") + 1 {
                    found.push(format!("node {id} is not the next after {parent}"));
                }
            }
            Some(_) => {}
        }
    }
    for row in all.of("checkpoints") {
        let (tree, id) = (text(row, "tree_id"), text(row, "checkpoint_id"));
        if !text(row, "checkpoint_ns").is_empty() || row["last_node_id"].is_none() {
            continue;
        }
        let path: HashSet<_> = all.path(&tree, &id).into_iter().collect();
        let mut next = row["last_node_id"].clone();
        while let Some(node) = next {
            let Some(row) = nodes.get(&(tree.clone(), node.clone())) else {
                found.push(format!("the newest message {node} of {id} is not there"));
                break;
            };
            if !pruned && !path.contains(&text(row, "checkpoint_id")) {
                found.push(format!("the message {node} is not on the path of {id}"));
                break;
            }
            next = row["parent_node_id"].clone();
        }
    }
    found
}

pub fn graphs_inside(all: &Loaded, _: bool) -> Vec<String> {
    all.of("checkpoints")
        .iter()
        .filter(|row| !text(row, "checkpoint_ns").is_empty())
        .filter(|row| {
            let root = row["root_checkpoint_id"].as_deref();
            root.is_none_or(|root| all.root(&text(row, "tree_id"), root).is_none())
        })
        .map(|row| format!("{} runs under nothing", text(row, "checkpoint_id")))
        .collect()
}

pub fn messages_and_their_events(all: &Loaded, _: bool) -> Vec<String> {
    let events: HashSet<_> = all
        .of("events")
        .iter()
        .map(|row| (text(row, "thread_id"), text(row, "event_number")))
        .collect();
    let living: HashSet<_> = all.living().map(|row| text(row, "thread_id")).collect();
    all.of("message_nodes")
        .iter()
        .filter(|row| living.contains(&text(row, "thread_id")) && row["event_number"].is_some())
        .filter(|row| !events.contains(&(text(row, "thread_id"), text(row, "event_number"))))
        .map(|row| format!("no event tells of node {}", text(row, "node_id")))
        .collect()
}

/// What the server writes into most checkpoints, and what is no label.
const OF_SERVER: [&str; 6] = [
    "graph_id",
    "assistant_id",
    "user_id",
    "cron_id",
    "checkpoint_id",
    "created_by",
];

/// Every root checkpoint has the labels of its metadata, and there are no others.
pub fn labels_of_checkpoints(all: &Loaded, _: bool) -> Vec<String> {
    let mut expected = BTreeSet::new();
    for row in all.of("checkpoints") {
        if !text(row, "checkpoint_ns").is_empty() {
            continue;
        }
        let metadata: serde_json::Value = serde_json::from_str(&text(row, "metadata")).unwrap();
        let texts = metadata
            .as_object()
            .unwrap()
            .iter()
            .filter_map(|(key, value)| {
                let is_label = !OF_SERVER.contains(&&**key);
                Some((key, value.as_str().filter(|_| is_label)?))
            });
        let mut labels: Vec<String> = texts
            .map(|(key, value)| {
                let label = format!("{key}={value}");
                // A text of SQLite's functions ends before NUL; no filter asks for such a label.
                let label = label.chars().take_while(|char| *char != '\0');
                label.take(100).collect()
            })
            .collect();
        if labels.len() > 8 {
            labels = vec![String::new()];
        }
        let key = ["tree_id", "thread_id", "checkpoint_id"].map(|column| text(row, column));
        expected.extend(labels.into_iter().map(|label| (key.clone(), label)));
    }
    let found: BTreeSet<_> = (all.of("checkpoint_labels").iter())
        .map(|row| {
            let key = ["tree_id", "thread_id", "checkpoint_id"].map(|column| text(row, column));
            (key, text(row, "label"))
        })
        .collect();
    let missing = expected.difference(&found).map(|one| ("is missing", one));
    let others = found.difference(&expected).map(|one| ("is too much", one));
    (missing.chain(others))
        .map(|(what, (key, label))| format!("the label {label:?} of {key:?} {what}"))
        .collect()
}
