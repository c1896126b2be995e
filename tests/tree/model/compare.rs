//! Whether the server shows what there ought to be. Ids it made are learned when first seen.

use serde_json::{Value, json};

use super::world::World;
use test_support::client::Client;

/// A difference, in words.
pub type Differs = String;

/// Fails unless both are equal.
pub fn same(what: &str, server: &Value, model: &Value) -> Result<(), Differs> {
    if server == model {
        Ok(())
    } else {
        Err(format!("{what}\n  server: {server}\n  model:  {model}"))
    }
}

fn read(client: &Client, path: &str) -> Result<Value, Differs> {
    let answer = client.get(path);
    match answer.status {
        200 => Ok(answer.json()),
        status => Err(format!("GET {path}: {status} {}", answer.text())),
    }
}

/// These fields of an object.
fn part(of: &Value, fields: &[&str]) -> Value {
    let pick = |name: &&str| ((*name).to_owned(), of[*name].clone());
    Value::Object(fields.iter().map(pick).collect())
}

fn list(of: &Value) -> Result<&Vec<Value>, Differs> {
    of.as_array().ok_or_else(|| format!("no list: {of}"))
}

fn text(of: &Value) -> String {
    of.as_str().unwrap_or_default().to_owned()
}

impl World {
    fn point_id(&self, point: Option<usize>) -> Value {
        point.map_or(Value::Null, |point| json!(self.points[point].id))
    }

    fn node_id(&self, node: Option<usize>) -> Value {
        node.map_or(Value::Null, |node| json!(self.nodes[node].id))
    }

    /// Compares a thread; of its branches those that changed since, or all.
    pub fn compare(&mut self, client: &Client, at: usize, all: bool) -> Result<(), Differs> {
        let thread = self.threads[at].clone();
        let of = |path: &str| format!("/threads/{}/{path}", thread.id);
        if thread.deleted {
            let answer = client.get(&format!("/threads/{}", thread.id));
            return same("a deleted thread", &json!(answer.status), &json!(404));
        }
        for branch in thread.branches.iter().filter(|branch| all || branch.fresh) {
            let path = of(&format!(
                "history?limit=1000&branch={}",
                escape(&branch.name)
            ));
            self.compare_states(&branch.name, &branch.path, &read(client, &path)?)?;
            let path = of(&format!("messages?branch={}", escape(&branch.name)));
            self.compare_messages(at, branch.key, &read(client, &path)?)?;
            self.threads[at].branch_mut(branch.key).fresh = false;
        }
        self.compare_branches(at, &read(client, &of("branches"))?)?;
        self.compare_tags(at, &read(client, &of("tags"))?)?;
        self.compare_events(at, &read(client, &of("events?limit=1000"))?)?;
        self.compare_family(at, &read(client, &of("forks"))?)
    }

    fn learn_point(&mut self, point: usize, id: String) -> Result<(), Differs> {
        if !self.points[point].id.is_empty() {
            return Ok(());
        }
        if let Some(old) = self.points.iter().position(|other| other.id == id) {
            return Err(format!("checkpoint {id} is new and old ({old})"));
        }
        let parent = self.points[point].parent;
        if parent.is_some_and(|parent| self.points[parent].id >= id) {
            return Err(format!("checkpoint {id} is not greater than its parent"));
        }
        self.points[point].id = id;
        Ok(())
    }

    fn compare_states(&mut self, name: &str, path: &[usize], shown: &Value) -> Result<(), Differs> {
        let mut shown = list(shown)?.clone();
        shown.reverse();
        let mut path = path.to_vec();
        path.retain(|point| !self.points[*point].pruned);
        let what = format!("history of branch {name}");
        let mut parent = Value::Null;
        for (point, state) in path.iter().zip(&shown) {
            let id = &state["checkpoint"]["checkpoint_id"];
            self.learn_point(*point, text(id))?;
            let messages = state["values"]["messages"].as_array().cloned();
            let messages = messages.unwrap_or_default();
            let lines = self.points[*point].lines.clone();
            let lines = lines.iter().filter(|line| line.gone.is_none());
            for (line, message) in lines.clone().zip(&messages) {
                self.learn_node(line.node, &message["id"])?;
            }
            let held = &self.points[*point];
            let next = match (held.start.is_empty(), held.waits) {
                (false, _) => json!(["__start__"]),
                (true, true) => json!(["model"]),
                (true, false) => json!([]),
            };
            let model = json!({
                "id": held.id,
                "parent": parent,
                "source": held.source,
                "next": next,
                "messages": lines
                    .map(|line| json!([self.nodes[line.node].id, line.text]))
                    .collect::<Vec<_>>(),
            });
            let told = json!({
                "id": id,
                "parent": state["parent_checkpoint"]["checkpoint_id"],
                "source": state["metadata"]["source"],
                "next": state["next"],
                "messages": messages
                    .iter()
                    .map(|message| json!([message["id"], message["content"]]))
                    .collect::<Vec<_>>(),
            });
            same(&what, &told, &model)?;
            parent = id.clone();
        }
        same(
            &format!("length of the {what}"),
            &json!(shown.len()),
            &json!(path.len()),
        )
    }

    fn learn_node(&mut self, node: usize, id: &Value) -> Result<(), Differs> {
        if self.nodes[node].id.is_empty() {
            let id = text(id);
            if self.nodes.iter().any(|other| other.id == id) {
                return Err(format!("message {id} is new and old"));
            }
            self.nodes[node].id = id;
        }
        Ok(())
    }

    fn compare_messages(&mut self, at: usize, branch: usize, shown: &Value) -> Result<(), Differs> {
        let lines = self.lines(at, branch);
        let name = self.threads[at].branch(branch).name.clone();
        let told = list(&shown["messages"])?;
        for (line, message) in lines.iter().zip(told) {
            self.learn_node(line.node, &message["message_id"])?;
        }
        let what = format!("messages of branch {name}");
        for (depth, (line, message)) in lines.iter().zip(told).enumerate() {
            let node = &self.nodes[line.node];
            let mut model = json!({
                "message_id": node.id,
                "parent_id": self.node_id(node.parent),
                "role": line.role,
                "depth": depth + 1,
                "checkpoint_id": self.points[node.first].id,
                "settled_checkpoint_id": self.point_id(node.settled),
                "event_number": node.event,
                "thread_id": self.threads[node.thread].id,
                "inherited": node.thread != at,
                // An edit is known by its checkpoint, which may be pruned.
                "edited": line.edits.iter().any(|point| !self.points[*point].pruned),
                "edit_of": node.edit_of,
                "in_state": line.gone.is_none(),
                "content": line.text,
            });
            // Where a removed message was held last may be gone.
            if line.gone.is_some_and(|point| self.points[point].pruned) {
                model["content"] = message["content"].clone();
            }
            let fields: Vec<&str> = model
                .as_object()
                .unwrap()
                .keys()
                .map(|key| &**key)
                .collect();
            same(&what, &part(message, &fields), &model)?;
        }
        same(
            &format!("number of {what}"),
            &json!(told.len()),
            &json!(lines.len()),
        )
    }

    fn compare_branches(&self, at: usize, shown: &Value) -> Result<(), Differs> {
        let thread = &self.threads[at];
        let mut model = vec![];
        let mut leaves: Vec<(usize, usize, Vec<String>)> = vec![];
        for branch in &thread.branches {
            let lines = self.lines(at, branch.key);
            let last = lines.last().map(|line| line.node);
            let source = branch.source.and_then(|key| {
                let source = thread.branches.iter().find(|other| other.key == key)?;
                Some(source.name.clone())
            });
            model.push(json!({
                "name": branch.name,
                "is_active": branch.key == thread.active,
                "head_checkpoint_id": self.point_id(branch.path.last().copied()),
                "head_message_id": self.node_id(last),
                "message_count": lines.len(),
                "origin": branch.origin,
                "source_branch": source,
                "status": if branch.interrupted { "interrupted" } else { "idle" },
            }));
            let followed = |last: usize| {
                let mut all = self.nodes.iter();
                all.any(|node| node.parent == Some(last) && node.thread == at)
            };
            if let Some(last) = last.filter(|last| !followed(*last)) {
                match leaves.iter_mut().find(|(leaf, ..)| *leaf == last) {
                    Some((.., names)) => names.push(branch.name.clone()),
                    None => leaves.push((last, lines.len(), vec![branch.name.clone()])),
                }
            }
        }
        let told = list(&shown["branches"])?;
        let fields = [
            "name",
            "is_active",
            "head_checkpoint_id",
            "head_message_id",
            "message_count",
            "origin",
            "source_branch",
            "status",
        ];
        let told: Vec<Value> = told.iter().map(|one| part(one, &fields)).collect();
        same("branches", &json!(told), &json!(model))?;
        same(
            "active branch",
            &shown["active"],
            &json!(thread.active().name),
        )?;
        // What a fork inherits ends with a leaf only at its base.
        let end = thread.base.last().map(|point| &self.points[*point].lines);
        let end = end.and_then(|lines| lines.last()).map(|line| line.node);
        leaves.retain(|(leaf, ..)| self.nodes[*leaf].thread == at || Some(*leaf) == end);
        let leaves: Vec<Value> = leaves
            .into_iter()
            .map(|(leaf, depth, names)| {
                json!({"message_id": self.nodes[leaf].id, "depth": depth, "branches": names})
            })
            .collect();
        let told = list(&shown["leaves"])?.iter();
        let told = told.map(|one| part(one, &["message_id", "depth", "branches"]));
        same("leaves", &json!(told.collect::<Vec<_>>()), &json!(leaves))?;
        let forks = self.threads.iter();
        let forks = forks.filter(|fork| fork.parent == Some(at) && !fork.deleted);
        let forks = forks.map(|fork| json!([fork.id, thread.id, fork.base_event]));
        let told = list(&shown["forks"])?.iter();
        let told = told.map(|one| {
            json!([
                one["thread_id"],
                one["parent_thread_id"],
                one["from_event_number"]
            ])
        });
        let (told, forks): (Vec<_>, Vec<_>) = (told.collect(), forks.collect());
        same("forks of the thread", &json!(told), &json!(forks))
    }

    fn compare_tags(&mut self, at: usize, shown: &Value) -> Result<(), Differs> {
        for told in list(&shown["tags"])? {
            if let Some(tag) = self.threads[at].tags.get(&text(&told["name"])).cloned() {
                self.learn_point(tag.point, text(&told["checkpoint_id"]))?;
            }
        }
        let tags = self.threads[at].tags.iter();
        let model = tags.map(|(name, tag)| {
            json!({
                "name": name,
                "checkpoint_id": self.points[tag.point].id,
                "message_id": self.node_id(tag.message),
            })
        });
        let told = list(&shown["tags"])?.iter();
        let told = told.map(|one| part(one, &["name", "checkpoint_id", "message_id"]));
        let (told, model): (Vec<_>, Vec<_>) = (told.collect(), model.collect());
        same("tags", &json!(told), &json!(model))
    }

    fn compare_events(&self, at: usize, shown: &Value) -> Result<(), Differs> {
        let thread = &self.threads[at];
        let told = list(&shown["events"])?;
        for (i, (event, told)) in thread.events.iter().zip(told).enumerate() {
            let model = json!({
                "event_number": thread.base_event + 1 + i as i64,
                "event_type": event.kind,
                "branch": event.branch,
                "checkpoint_id": self.point_id(event.point),
                "message_id": self.node_id(event.node),
            });
            let fields: Vec<&str> = model
                .as_object()
                .unwrap()
                .keys()
                .map(|key| &**key)
                .collect();
            same("event", &part(told, &fields), &model)?;
        }
        let model = json!(thread.events.len());
        same("number of events", &json!(told.len()), &model)
    }

    fn compare_family(&self, at: usize, shown: &Value) -> Result<(), Differs> {
        let root = self.threads[at].root;
        let family = self.threads.iter();
        let family = family.filter(|other| other.root == root && !other.deleted);
        let model = family.map(|other| {
            let parent = other.parent.map(|parent| &self.threads[parent]);
            json!({
                "thread_id": other.id,
                "parent_thread_id": parent.map(|parent| &parent.id),
                "parent_deleted": parent.is_some_and(|parent| parent.deleted),
                "forked_at_message_id": other.anchor,
                "position": other.position,
                "fork_checkpoint_id": self.point_id(other.base.last().copied()),
                "fork_event_number": other.base_event,
                "fork_level": other.level,
            })
        });
        let model: Vec<Value> = model.collect();
        let fields = [
            "thread_id",
            "parent_thread_id",
            "parent_deleted",
            "forked_at_message_id",
            "position",
            "fork_checkpoint_id",
            "fork_event_number",
            "fork_level",
        ];
        let told = list(&shown["threads"])?.iter();
        let told: Vec<Value> = told.map(|one| part(one, &fields)).collect();
        same("family", &json!(told), &json!(model))
    }
}

/// A name inside a path or query.
pub fn escape(name: &str) -> String {
    name.replace('/', "%2F")
}
