//! Runs, posts of messages and edits of states.

use serde_json::{Value, json};

use super::{At, Base, Case, Differs, Existing, Input, Not, Op, Post, Spot, pick};

impl Case<'_> {
    pub(super) fn run_graph(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let thread = &self.world.threads[at];
        let active = thread.active;
        let mut body = json!({"assistant_id": "agent"});
        let activate = [None, None, Some(true), Some(false)][usize::from(op.c) % 4];
        let silent = op.d % 3 == 2;
        let mut spot = Spot::Head(active, false);
        match op.a % 5 {
            // At the head of a branch.
            1 => {
                let branch = pick(&thread.branches, op.b).unwrap();
                body["branch"] = json!(branch.name);
                body["activate"] = json!(activate.unwrap_or(false));
                spot = Spot::Head(branch.key, activate.unwrap_or(false));
            }
            // At any checkpoint.
            2 => {
                let mut points = self.world.visible(at);
                if silent {
                    points.retain(|point| self.world.waits(&[*point]));
                }
                if let Some(point) = pick(&points, op.b) {
                    let path = self.world.path(at, point).unwrap();
                    let Some(found) = self.spot(at, Base::At(path), activate) else {
                        return Ok(());
                    };
                    if silent && matches!(found, Spot::Head(..)) {
                        return Ok(());
                    }
                    body["checkpoint_id"] = json!(self.world.points[point].id);
                    spot = found;
                }
            }
            // At or before a message.
            3 | 4 => {
                let messages = self.world.seen(at);
                if let Some(node) = pick(&messages, op.b).filter(|_| !silent) {
                    let id = self.world.nodes[node].id.clone();
                    body["message_id"] = json!(id);
                    let before = op.a % 5 == 4;
                    if before {
                        body["position"] = json!("before");
                    }
                    match self.world.resolve(at, &At::Message(id, before)) {
                        Ok((base, ..)) => match self.spot(at, base, activate) {
                            Some(found) => spot = found,
                            None => return Ok(()),
                        },
                        Err(refused) => {
                            let input = self.message(0);
                            body["input"] = json!({"messages": [said(&input)]});
                            let path = self.of(at, "runs/wait");
                            self.expect("POST", &path, &body, Err(refused))?;
                            return Ok(());
                        }
                    }
                }
            }
            _ => {}
        }
        if let (Some(activate), true) = (activate, op.a % 5 >= 2) {
            body["activate"] = json!(activate);
        }
        let mut input = vec![];
        if !silent {
            input = (0..=op.d % 2).map(|_| self.message(0)).collect();
            let all: Vec<Value> = input.iter().map(said).collect();
            body["input"] = json!({"messages": all});
        } else if let Spot::Head(branch, _) = &spot
            && self.world.threads[at].branch(*branch).path.is_empty()
        {
            // There is nothing to run, which is an error of the run.
            return Ok(());
        }
        self.expect("POST", &self.of(at, "runs/wait"), &body, Ok(200))?;
        self.world.run(at, &spot, &input);
        Ok(())
    }

    /// Where a run begins whose base is given; none where several branches are as good.
    fn spot(&self, at: usize, base: Base, activate: Option<bool>) -> Option<Spot> {
        let activate = activate.unwrap_or(true);
        let thread = &self.world.threads[at];
        let Base::At(path) = base else {
            return Some(Spot::Place(base, activate));
        };
        let head = path.last().copied();
        if thread.active().path.last().copied() == head {
            return Some(Spot::Head(thread.active, false));
        }
        let there = thread.branches.iter();
        let there = there.filter(|branch| branch.path.last().copied() == head);
        let newest = there.clone().map(|branch| branch.updated).max();
        let mut newest = there.filter(|branch| Some(branch.updated) == newest);
        match (newest.next(), newest.next()) {
            (Some(_), Some(_)) => None,
            (Some(branch), None) => Some(Spot::Head(branch.key, activate)),
            (None, _) => Some(Spot::Old(path, activate)),
        }
    }

    pub(super) fn post(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let count = [1, 1, 2, 3][usize::from(op.c) % 4];
        let mut post = Post {
            messages: (0..count).map(|i| self.message(op.c / 4 + i)).collect(),
            parent: None,
            branch: None,
            activate: true,
            existing: Existing::Branch,
            expected: None,
        };
        if op.c % 7 == 6 {
            post.messages[0].id.clear();
        }
        let seen = self.world.seen(at);
        if let Some(node) = pick(&seen, op.b).filter(|_| matches!(op.a % 6, 2..=4)) {
            let id = self.world.nodes[node].id.clone();
            post.parent = Some((id, op.a % 6 == 4));
        }
        let branch = pick(&self.world.threads[at].branches, op.b).unwrap();
        if op.a % 6 == 1 {
            post.branch = Some(branch.name.clone());
        }
        if op.d % 4 == 1 {
            post.activate = false;
        }
        let appended = match &post.branch {
            Some(_) => branch,
            None => self.world.threads[at].active().clone(),
        };
        let head = appended.path.last();
        let head = head.map(|head| self.world.points[*head].id.clone());
        post.expected = match op.d % 8 {
            6 => Some(head),
            7 if head.is_some() => Some(None),
            7 => Some(Some(super::NOBODY.to_owned())),
            _ => None,
        };
        self.send_post(at, post)
    }

    /// A message with an id that is there already.
    pub(super) fn edit(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let seen = self.world.seen(at);
        let Some(node) = pick(&seen, op.b) else {
            return Ok(());
        };
        let mut message = self.message(op.c / 2);
        message.id = self.world.nodes[node].id.clone();
        if op.c % 2 == 1 {
            message.role = self.first_role(node);
        }
        let mut messages = vec![message];
        if op.d % 3 == 2 {
            messages.push(self.message(op.d));
        }
        let elsewhere = pick(&seen, op.d).filter(|_| op.d % 4 == 3);
        let post = Post {
            messages,
            parent: elsewhere.map(|other| (self.world.nodes[other].id.clone(), false)),
            branch: None,
            activate: op.d % 5 != 4,
            existing: [
                Existing::Branch,
                Existing::Branch,
                Existing::Replace,
                Existing::Reject,
            ][usize::from(op.a) % 4],
            expected: None,
        };
        self.send_post(at, post)
    }

    /// The role that a message came with.
    fn first_role(&self, node: usize) -> &'static str {
        let first = &self.world.points[self.world.nodes[node].first];
        let mut lines = first.lines.iter();
        lines.find(|line| line.node == node).unwrap().role
    }

    fn send_post(&mut self, at: usize, post: Post) -> Result<(), Differs> {
        let mut body = json!({"messages": post.messages.iter().map(said).collect::<Vec<_>>()});
        if let Some((id, before)) = &post.parent {
            body["parent_id"] = json!(id);
            if *before {
                body["position"] = json!("before");
            }
        }
        if let Some(branch) = &post.branch {
            body["branch"] = json!(branch);
        }
        if !post.activate {
            body["activate"] = json!(false);
        }
        if let Some(expected) = &post.expected {
            body["expected_head"] = json!(expected);
        }
        match post.existing {
            Existing::Branch => {}
            Existing::Replace => body["on_existing"] = json!("replace"),
            Existing::Reject => body["on_existing"] = json!("reject"),
        }
        self.posted(at, &body, &post)?;
        self.world.posted.push((at, body));
        Ok(())
    }

    fn posted(&mut self, at: usize, body: &Value, post: &Post) -> Result<(), Differs> {
        let before = self.world.clone();
        let outcome = self.world.post(at, post);
        let wanted = match &outcome {
            Ok(_) => Ok(201),
            Err(Not::Stored) => Ok(200),
            Err(Not::Refused(refused)) => Err(*refused),
            Err(Not::Unclear) => return Ok(()),
        };
        if outcome.is_err() {
            self.world = before;
        }
        let answer = self.expect("POST", &self.of(at, "messages"), body, wanted)?;
        if let Ok(posted) = outcome {
            let branch = self.world.threads[at].branch(posted.branch);
            super::super::compare::same(
                "answer to a post",
                &json!([answer["branch"], answer["branch_created"]]),
                &json!([branch.name, posted.created]),
            )?;
        }
        Ok(())
    }

    /// What was sent before, once more.
    pub(super) fn repeat(&mut self, op: &Op) -> Result<(), Differs> {
        let mut past = self.world.posted.clone();
        past.retain(|(at, _)| !self.world.threads[*at].deleted);
        // Mostly what was sent last.
        past.reverse();
        let Some((at, body)) = pick(
            &past,
            if op.a.is_multiple_of(2) {
                op.b % 2
            } else {
                op.b
            },
        ) else {
            return Ok(());
        };
        self.touched.push(at);
        let text = |of: &Value| of.as_str().map(str::to_owned);
        let messages = body["messages"].as_array().unwrap().iter();
        let messages = messages.map(|one| Input {
            id: text(&one["id"]).unwrap_or_default(),
            role: ["user", "assistant", "system"]
                .into_iter()
                .find(|role| one["role"] == *role)
                .unwrap(),
            text: text(&one["content"]).unwrap(),
            edit_of: None,
        });
        let expected = body.as_object().unwrap().get("expected_head");
        let post = Post {
            messages: messages.collect(),
            parent: text(&body["parent_id"]).map(|id| (id, body["position"] == "before")),
            branch: text(&body["branch"]),
            activate: body["activate"] != false,
            existing: match text(&body["on_existing"]).as_deref() {
                Some("replace") => Existing::Replace,
                Some("reject") => Existing::Reject,
                _ => Existing::Branch,
            },
            expected: expected.map(text),
        };
        self.posted(at, &body, &post)
    }

    pub(super) fn state(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let thread = &self.world.threads[at];
        let mut branch = thread.active;
        let mut body = json!({});
        let mut old = None;
        match op.a % 3 {
            1 => {
                let named = pick(&thread.branches, op.b).unwrap();
                branch = named.key;
                body["branch"] = json!(named.name);
            }
            2 => {
                let mut points = self.world.visible(at);
                points.retain(|point| {
                    let mut heads = thread.branches.iter();
                    heads.all(|branch| branch.path.last() != Some(point))
                });
                if let Some(point) = pick(&points, op.b) {
                    body["checkpoint_id"] = json!(self.world.points[point].id);
                    old = self.world.path(at, point);
                }
            }
            _ => {}
        }
        let lines = match &old {
            Some(path) => self.world.points[*path.last().unwrap()].lines.clone(),
            None => self.world.lines(at, branch),
        };
        let there: Vec<usize> = lines
            .iter()
            .filter(|line| line.gone.is_none())
            .map(|line| line.node)
            .collect();
        let known = pick(&there, op.d).filter(|_| op.c % 4 > 1);
        let mut message = self.message(op.d);
        let remove = op.c % 4 == 3 && known.is_some();
        let start = op.c.is_multiple_of(4);
        if let Some(node) = known {
            message.id = self.world.nodes[node].id.clone();
            message.role = self.first_role(node);
        }
        let value = if remove {
            json!({"type": "remove", "id": message.id})
        } else {
            said(&message)
        };
        body["values"] = json!({"messages": [value]});
        body["as_node"] = json!(if start { "__start__" } else { "model" });
        self.expect("POST", &self.of(at, "state"), &body, Ok(200))?;
        if let Some(path) = old {
            let from = self.world.threads[at].active;
            let base = Base::At(path);
            branch = self
                .world
                .create_branch(at, &base, from, None, "update", true);
        }
        match known.filter(|_| remove) {
            Some(node) => self.world.remove(at, branch, node),
            None => {
                self.world.write(at, branch, "update", &[message], start);
            }
        }
        Ok(())
    }
}

/// A message as requests write it.
pub(super) fn said(message: &Input) -> Value {
    if message.id.is_empty() {
        json!({"role": message.role, "content": message.text})
    } else {
        json!({"id": message.id, "role": message.role, "content": message.text})
    }
}
