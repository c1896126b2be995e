//! Forks, copies, pruning and deletion.

use serde_json::{Value, json};

use super::{At, Base, Case, Differs, Existing, Not, Op, Post, pick};
use crate::model::world::World;

impl Case<'_> {
    pub(super) fn fork(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let (address, mut body) = match op.a % 6 {
            5 => (At::Active, json!({})),
            _ => self.address(at, op.a, op.b),
        };
        let id = self.new_id();
        body["thread_id"] = json!(id);
        let resolved = self.world.resolve(at, &address);
        let wanted = resolved.as_ref().map(|_| 201).map_err(|refused| *refused);
        self.expect("POST", &self.of(at, "fork"), &body, wanted)?;
        if let Ok((base, ..)) = resolved {
            let (anchor, position) = match address {
                At::Active => (None, None),
                At::Message(id, true) => (Some(id), Some("before")),
                At::Message(id, false) => (Some(id), Some("at")),
                _ => (None, Some("at")),
            };
            let fork = self.world.fork(at, id, &base, anchor, position);
            self.touched.push(fork);
        }
        Ok(())
    }

    /// A post to a thread that is not there, with the message it comes in place of; sometimes
    /// a second one, which says where it comes from again.
    pub(super) fn implicit(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let id = self.new_id();
        let first = self.message(0);
        let mut body = super::talk::said(&first);
        body["forkedAtConversationId"] = json!(self.world.threads[at].id);
        let seen = self.world.seen(at);
        let anchor = pick(&seen, op.b).filter(|_| op.a % 4 != 3);
        let anchor = anchor.map(|node| self.world.nodes[node].id.clone());
        if let Some(anchor) = &anchor {
            body["forkedAtEntryId"] = json!(anchor);
        }
        let active = self.world.threads[at].active;
        let base = match &anchor {
            None => Ok(Base::Empty),
            Some(anchor) => {
                let node = self.world.message(at, anchor, active);
                node.and_then(|node| self.world.before_message(at, node))
            }
        };
        let wanted = base.as_ref().map(|_| 201).map_err(|refused| *refused);
        let path = format!("/threads/{id}/messages");
        self.expect("POST", &path, &body, wanted)?;
        let Ok(base) = base else {
            return Ok(());
        };
        let position = anchor.is_some().then_some("before");
        let fork = self.world.fork(at, id, &base, anchor, position);
        self.touched.push(fork);
        let mut post = Post {
            messages: vec![first],
            parent: None,
            branch: None,
            activate: true,
            existing: Existing::Branch,
            expected: None,
        };
        self.known(fork, &post)?;
        if op.c % 2 == 1 {
            let second = self.message(0);
            body["id"] = json!(second.id);
            body["content"] = json!(second.text);
            self.expect("POST", &path, &body, Ok(201))?;
            post.messages = vec![second];
            self.known(fork, &post)?;
            body["forkedAtEntryId"] = json!("elsewhere");
            let conflict = Err((409, "lineage_conflict"));
            self.expect("POST", &path, &body, conflict)?;
        }
        Ok(())
    }

    fn known(&mut self, at: usize, post: &Post) -> Result<(), Differs> {
        match self.world.post(at, post) {
            Ok(_) => Ok(()),
            Err(not @ (Not::Refused(_) | Not::Stored | Not::Unclear)) => {
                Err(format!("the model does not know what a post does: {not:?}"))
            }
        }
    }

    pub(super) fn copy(&mut self, at: usize) -> Result<(), Differs> {
        let made = self.expect("POST", &self.of(at, "copy"), &json!({}), Ok(200))?;
        let id = made["thread_id"].as_str().unwrap_or_default().to_owned();
        let copy = self.world.copy(at, id);
        self.touched.push(copy);
        Ok(())
    }

    pub(super) fn prune(&mut self, at: usize) -> Result<(), Differs> {
        let id = self.world.threads[at].id.clone();
        let body = json!({"thread_ids": [id], "strategy": "keep_latest"});
        self.expect("POST", "/threads/prune", &body, Ok(200))?;
        self.world.prune(at);
        self.relatives(at);
        Ok(())
    }

    fn relatives(&mut self, at: usize) {
        let root = self.world.threads[at].root;
        let all =
            (0..self.world.threads.len()).filter(|other| self.world.threads[*other].root == root);
        self.touched = all.collect();
    }

    pub(super) fn delete_thread(&mut self, at: usize) -> Result<(), Differs> {
        let path = format!("/threads/{}", self.world.threads[at].id);
        self.expect("DELETE", &path, &Value::Null, Ok(204))?;
        self.world.threads[at].deleted = true;
        self.relatives(at);
        Ok(())
    }

    pub(super) fn delete_tree(&mut self, at: usize) -> Result<(), Differs> {
        let path = format!("/threads/{}?scope=tree", self.world.threads[at].id);
        self.expect("DELETE", &path, &Value::Null, Ok(204))?;
        self.relatives(at);
        for other in self.touched.clone() {
            self.world.threads[other].deleted = true;
        }
        Ok(())
    }
}

impl World {
    /// A thread with everything that another one sees, and nothing to do with it.
    fn copy(&mut self, of: usize, id: String) -> usize {
        let at = self.root(id);
        let from = self.threads[of].clone();
        let seen = self.seen(of);
        let mut points = from.base.clone();
        points.extend(from.own.keys());
        let point = |world: &Self, old: usize| {
            let at = points.iter().position(|one| *one == old);
            at.map(|at| world.points.len() - points.len() + at)
        };
        for old in &points {
            let copy = self.points[*old].clone();
            self.points.push(copy);
        }
        let first = self.nodes.len();
        let node = |old: usize| first + seen.iter().position(|one| *one == old).unwrap();
        for old in &seen {
            let mut copy = self.nodes[*old].clone();
            copy.thread = at;
            copy.event = None;
            copy.parent = copy.parent.map(node);
            copy.first = point(self, copy.first).unwrap();
            copy.settled = copy.settled.and_then(|settled| point(self, settled));
            self.nodes.push(copy);
        }
        for old in &points {
            let key = point(self, *old).unwrap();
            let mut copy = self.points[key].clone();
            copy.thread = at;
            copy.event = 0;
            copy.parent = copy.parent.map(|parent| point(self, parent).unwrap());
            for line in &mut copy.lines {
                line.node = node(line.node);
                for point_of_edit in &mut line.edits {
                    *point_of_edit = point(self, *point_of_edit).unwrap();
                }
                line.gone = line.gone.map(|gone| point(self, gone).unwrap());
            }
            let path = self.path(of, *old).unwrap();
            let path = path.iter().map(|one| point(self, *one).unwrap()).collect();
            self.threads[at].own.insert(key, path);
            self.points[key] = copy;
        }
        self.threads[at].branches.clear();
        for old in &from.branches {
            let path = old.path.iter().map(|one| point(self, *one).unwrap());
            let (path, waits) = (path.collect(), old.interrupted);
            let origin = match old.origin {
                "fork" => "root",
                origin => origin,
            };
            self.push_branch(at, old.name.clone(), origin, None, path, waits);
        }
        self.touch(at, self.threads[at].branches[0].key);
        let clock = self.threads[at].branches[0].updated;
        let thread = &mut self.threads[at];
        // Branches keep their names for each other.
        for (copy, old) in thread.branches.clone().iter().zip(&from.branches) {
            let alive = |key: usize| from.branches.iter().position(|one| one.key == key);
            let source = old.source.and_then(alive);
            let source = source.map(|place| thread.branches[place].key);
            let branch = thread.branch_mut(copy.key);
            branch.source = source;
            branch.updated = clock;
            if old.key == from.active {
                thread.active = copy.key;
            }
        }
        for (name, tag) in &from.tags {
            let mut tag = tag.clone();
            tag.message = tag.message.map(node);
            tag.point = point(self, tag.point).unwrap();
            self.threads[at].tags.insert(name.clone(), tag);
        }
        at
    }

    /// Lets go of what a thread wrote and nobody stands on.
    fn prune(&mut self, at: usize) {
        self.pruned = true;
        let root = self.threads[at].root;
        let mut kept = vec![];
        for thread in self.threads.iter() {
            if thread.root == root && !thread.deleted {
                kept.extend(thread.branches.iter().filter_map(|one| one.path.last()));
                kept.extend(thread.tags.values().map(|tag| &tag.point));
                kept.extend(thread.base.last());
            }
        }
        let mut kept: Vec<usize> = kept.into_iter().copied().collect();
        // What leads from the first message of a turn to the state before stays with it.
        let mut next = 0;
        while let Some(point) = kept.get(next) {
            let above = self.points[*point].parent;
            kept.extend(above.filter(|above| self.points[*above].source == "input"));
            next += 1;
        }
        for point in self.threads[at].own.keys() {
            if !kept.contains(point) {
                self.points[*point].pruned = true;
            }
        }
    }
}
