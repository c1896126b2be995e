//! Turns a checked draft into the form the engine runs, in the order its writes must have.

use std::sync::Arc;

use super::{
    Compiled, Deps, END, Join, Node, START, Writers,
    builder::{Draft, DraftNode},
    schema,
};

/// The compiled form of a draft without problems.
pub(super) fn assemble(draft: Draft) -> Compiled {
    let joins = joins(&draft);
    let all: Vec<Arc<str>> = draft.channels.iter().map(|c| c.name.clone()).collect();
    let input = draft.input.clone().unwrap_or_else(|| all.clone());
    let output = draft.output.clone().unwrap_or_else(|| all.clone());
    let schemas = schema::schemas(
        &draft.title,
        &draft.channels,
        &input,
        &output,
        draft.context.clone(),
    );
    let messages = draft
        .channels
        .iter()
        .filter(|spec| schema::is_messages(&spec.kind))
        .map(|spec| spec.name.clone())
        .collect();
    let start = writers(&draft, &joins, START);
    let nodes = draft
        .nodes
        .iter()
        .map(|node| Node {
            handler: handler_of(&draft, &node.name),
            ..compile(&draft, &joins, &all, node)
        })
        .collect();
    let handlers = draft.handlers.iter();
    let handlers = handlers.map(|(_, node)| compile(&draft, &joins, &all, node));
    Compiled {
        handlers: handlers.collect(),
        nodes,
        start,
        joins,
        input,
        output,
        messages,
        schemas,
        channels: draft.channels,
        root_state: draft.root_state,
        persist: draft.persist,
        interrupt_before: draft.interrupt_before,
        interrupt_after: draft.interrupt_after,
        recursion_limit: draft.recursion_limit,
        deps: Deps(Arc::new(draft.deps)),
    }
}

/// The position of a node's error handler: its own, or the one for all nodes.
fn handler_of(draft: &Draft, node: &Arc<str>) -> Option<usize> {
    let of = |name: Option<&Arc<str>>| {
        let mut handlers = draft.handlers.iter();
        handlers.position(|(failing, _)| failing.as_ref() == name)
    };
    of(Some(node)).or_else(|| of(None))
}

fn compile(draft: &Draft, joins: &[Join], all: &[Arc<str>], node: &DraftNode) -> Node {
    let opts = node.opts.clone();
    let views = &node.requires.channels;
    let reads = opts.reads.or_else(|| {
        // The input of a node without a view is the whole state, as in LangGraph.
        let is_read = |name: &str| views.iter().any(|channel| channel.name == name);
        (!views.is_empty()).then(|| all.iter().filter(|c| is_read(c)).cloned().collect())
    });
    Node {
        handler: None,
        name: node.name.clone(),
        body: node.body.clone(),
        writers: writers(draft, joins, &node.name),
        joins: joins
            .iter()
            .filter(|join| join.to == node.name)
            .map(|join| join.channel.clone())
            .collect(),
        defer: opts.defer,
        retry: if opts.retry.is_empty() {
            draft.retry.clone()
        } else {
            opts.retry
        },
        timeout: opts.timeout,
        idle_timeout: opts.idle_timeout,
        cache: opts.cache,
        reads,
        destinations: opts.destinations,
        calls: opts.calls.into(),
    }
}

/// Joins in definition order, each once. One that leads to END starts nothing and needs no
/// channel.
fn joins(draft: &Draft) -> Vec<Join> {
    let mut joins: Vec<Join> = Vec::new();
    for (from, to) in draft.joins.iter().filter(|(_, to)| &**to != END) {
        let channel: Arc<str> = format!("join:{}:{to}", from.join("+")).into();
        if joins.iter().all(|join| join.channel != channel) {
            joins.push(Join {
                channel,
                from: from.as_slice().into(),
                to: to.clone(),
            });
        }
    }
    joins
}

fn writers(draft: &Draft, joins: &[Join], from: &str) -> Writers {
    let mut edges: Vec<Arc<str>> = draft
        .edges
        .iter()
        .filter(|(start, to)| &**start == from && &**to != END)
        .map(|(_, to)| to.clone())
        .collect();
    edges.sort();
    edges.dedup();
    let ends = draft
        .edges
        .iter()
        .any(|(a, to)| &**a == from && &**to == END)
        || (draft.joins.iter()).any(|(a, to)| &**to == END && a.iter().any(|a| &**a == from));
    let mut outgoing: Vec<&Join> = joins
        .iter()
        .filter(|join| join.from.iter().any(|start| &**start == from))
        .collect();
    outgoing.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
    Writers {
        edges,
        ends,
        joins: outgoing.iter().map(|join| join.channel.clone()).collect(),
        routes: draft
            .routes
            .iter()
            .filter(|added| &*added.from == from)
            .map(|added| added.route.clone())
            .collect(),
    }
}

#[cfg(test)]
mod tests;
