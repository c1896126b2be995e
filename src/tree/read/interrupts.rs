//! The open interrupts of a thread out of its pending writes alone, without its values.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use indexmap::IndexMap;

use crate::{
    checkpoint::{Error, WriteRow, frame},
    engine::{
        pending::interrupts_in,
        plan::handled_path,
        reserved::{ERROR_SOURCE, INTERRUPT, control_index},
    },
    id::TaskId,
    value::{Map, Value},
};

/// What is pending of one task.
struct Task<'a> {
    path: &'a Arc<str>,
    has_finished: bool,
    /// It failed, and the error handler of its node runs in its place.
    is_handled: bool,
    interrupts: Vec<Value>,
}

/// Open interrupts by the id of their task, in the order of the rows: those of tasks that have not finished. Interrupts
/// of an error handler are those of the task that failed. They are those of
/// [`snapshot`](crate::engine::snapshot::snapshot), and besides those of tasks that it does not plan: of nodes that the graph no
/// longer has, of nodes to which a client's command went, and of a state whose values no longer fit the graph. Of a task
/// whose error handler has finished there are none, also where the graph has no handler any more.
///
/// # Errors
/// A row cannot be read.
pub fn open_interrupts(rows: &[WriteRow]) -> Result<Map, Error> {
    let mut tasks: IndexMap<TaskId, Task<'_>> = IndexMap::new();
    for row in rows {
        let task = tasks.entry(row.task).or_insert_with(|| Task {
            path: &row.path,
            has_finished: false,
            is_handled: false,
            interrupts: vec![],
        });
        if row.idx >= 0 {
            task.has_finished = true;
        } else if Some(row.idx) == control_index(ERROR_SOURCE) {
            task.is_handled = true;
        } else if Some(row.idx) == control_index(INTERRUPT) {
            let writes = frame::decode_control(row)?;
            let interrupts = writes.iter().flat_map(interrupts_in);
            task.interrupts
                .extend(interrupts.map(|interrupt| interrupt.to_value()));
        }
    }
    let handled: HashSet<&str> = tasks
        .values()
        .filter(|task| task.is_handled)
        .map(|task| &**task.path)
        .collect();
    let is_handler = |task: &Task<'_>| {
        let failed = handled_path(task.path);
        failed.is_some_and(|failed| handled.contains(failed))
    };
    let handlers: HashMap<&str, &Task<'_>> = tasks
        .values()
        .filter(|task| is_handler(task))
        .filter_map(|task| Some((handled_path(task.path)?, task)))
        .collect();
    let mut open = Map::new();
    for (id, task) in &tasks {
        if is_handler(task) {
            continue;
        }
        let handler = handlers.get(&**task.path).filter(|_| task.is_handled);
        let has_finished = handler.map_or(task.has_finished, |handler| handler.has_finished);
        let of_handler = handler.iter().flat_map(|handler| &handler.interrupts);
        let interrupts: Vec<Value> = task.interrupts.iter().chain(of_handler).cloned().collect();
        if !has_finished && !interrupts.is_empty() {
            open.insert(id.to_string(), Value::list(interrupts));
        }
    }
    Ok(open)
}
