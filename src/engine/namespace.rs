//! Namespaces of graphs: `node:task_id` for each graph on the way, joined by `|`.

/// The namespace of a node of the graph in `ns`, before its task has an id.
pub(super) fn of_node(ns: &str, node: &str) -> String {
    match ns {
        "" => node.to_owned(),
        ns => format!("{ns}|{node}"),
    }
}

/// A namespace without its task ids: where a graph that stores its state per thread has it.
pub fn without_tasks(ns: &str) -> String {
    ns.split('|')
        .map(|part| part.split_once(':').map_or(part, |(node, _)| node))
        .collect::<Vec<_>>()
        .join("|")
}

/// Whether the task in `inside` is the task in `task` or one of a graph that runs inside it. Tasks
/// of a graph that stores its state per thread do not name the tasks around them.
pub(super) fn contains(task: &str, inside: &str) -> bool {
    let begins = |with: &str| {
        let rest = inside.strip_prefix(with);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
    };
    begins(task) || begins(&without_tasks(task))
}
