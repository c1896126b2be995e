//! Encodes checkpoints for the modes `checkpoints` and `debug`.

use super::{Encoder, write_interrupts};
use crate::{
    engine::event::{CheckpointInfo, TaskState},
    id::CheckpointId,
    stream::frame::{list, number, plain, text},
    value::{Map, Value},
};

impl Encoder {
    pub(super) fn checkpoint(
        &self,
        out: &mut Vec<u8>,
        ns: &str,
        info: &CheckpointInfo,
        debug: bool,
    ) {
        let or_null =
            |out: &mut Vec<u8>, write: &dyn Fn(&mut Vec<u8>, CheckpointId)| match info.parent {
                Some(parent) => write(out, parent),
                None => out.extend_from_slice(b"null"),
            };
        out.extend_from_slice(b"{\"config\":");
        self.config_of(out, ns, info.id, &info.parents);
        out.extend_from_slice(b",\"parent_config\":");
        or_null(out, &|out, id| self.config_of(out, ns, id, &info.parents));
        out.extend_from_slice(b",\"values\":");
        self.channels.write(out, &info.values);
        out.extend_from_slice(b",\"metadata\":{\"source\":");
        text(out, info.source.as_str());
        out.extend_from_slice(b",\"step\":");
        number(out, info.step);
        out.extend_from_slice(b",\"parents\":");
        Value::map(info.parents.clone()).write_json(out);
        out.extend_from_slice(b"},\"next\":");
        list(out, &info.next, |out, name| text(out, name));
        out.extend_from_slice(b",\"tasks\":");
        list(out, &info.tasks, |out, task| self.task_of(out, task, debug));
        if debug {
            out.extend_from_slice(b",\"checkpoint\":");
            self.reference(out, ns, info.id, &info.parents);
            out.extend_from_slice(b",\"parent_checkpoint\":");
            or_null(out, &|out, id| self.reference(out, ns, id, &info.parents));
        }
        out.push(b'}');
    }

    /// `{"configurable": {...}}` that names a checkpoint.
    fn config_of(&self, out: &mut Vec<u8>, ns: &str, id: CheckpointId, parents: &Map) {
        out.extend_from_slice(b"{\"configurable\":{");
        out.extend_from_slice(&self.configurable);
        out.extend_from_slice(b"\"checkpoint_ns\":");
        text(out, ns);
        map_of(out, ns, id, parents);
        out.extend_from_slice(b",\"checkpoint_id\":");
        plain(out, id);
        out.extend_from_slice(b"}}");
    }

    fn reference(&self, out: &mut Vec<u8>, ns: &str, id: CheckpointId, parents: &Map) {
        out.extend_from_slice(b"{\"checkpoint_id\":");
        plain(out, id);
        out.extend_from_slice(b",\"thread_id\":");
        plain(out, self.origin.thread);
        out.extend_from_slice(b",\"checkpoint_ns\":");
        text(out, ns);
        map_of(out, ns, id, parents);
        out.push(b'}');
    }

    fn task_of(&self, out: &mut Vec<u8>, task: &TaskState, debug: bool) {
        out.extend_from_slice(b"{\"id\":");
        plain(out, task.id);
        out.extend_from_slice(b",\"name\":");
        text(out, &task.name);
        if let Some(error) = task.error_text() {
            out.extend_from_slice(b",\"error\":");
            text(out, &error);
        } else {
            if let Some(result) = &task.result {
                out.extend_from_slice(b",\"result\":");
                self.channels.write(out, result);
            }
            out.extend_from_slice(b",\"interrupts\":");
            write_interrupts(out, &task.interrupts);
        }
        let Some(child) = &task.child_ns else {
            out.extend_from_slice(b",\"state\":null}");
            return;
        };
        let (before, after): (&[u8], &[u8]) = if debug {
            (b",\"checkpoint\":{\"thread_id\":", b"}}")
        } else {
            (b",\"state\":{\"configurable\":{\"thread_id\":", b"}}}")
        };
        out.extend_from_slice(before);
        plain(out, self.origin.thread);
        out.extend_from_slice(b",\"checkpoint_ns\":");
        text(out, child);
        out.extend_from_slice(after);
    }
}

/// Inside another graph: writes the checkpoints of the outer graphs and of this one, by namespace.
fn map_of(out: &mut Vec<u8>, ns: &str, id: CheckpointId, parents: &Map) {
    if ns.is_empty() {
        return;
    }
    let mut map = parents.clone();
    map.insert(ns, id.to_string());
    out.extend_from_slice(b",\"checkpoint_map\":");
    Value::map(map).write_json(out);
}
