//! Operations on the server and on the model alike.

use serde_json::{Value, json};

use super::{
    compare::{Differs, escape},
    find::At,
    op::{Kind, Op},
    rules::{Existing, Not, Post, Spot},
    world::{Base, Input, Refused, Tag, World},
};
use test_support::client::{Answer, Client};

/// A case: what there ought to be, and the server.
pub struct Case<'a> {
    pub world: World,
    pub client: &'a Client,
    /// Requests and answers so far.
    pub trace: Vec<String>,
    /// Operations carried out so far.
    pub done: usize,
    /// Messages sent so far.
    said: usize,
    /// Threads that the operation may have changed.
    touched: Vec<usize>,
}

/// Names that operations give: few, so that they meet.
const NAMES: [&str; 5] = ["alt", "main-v2", "main-v3", "x/y", "main"];
/// Nobody has this id.
const NOBODY: &str = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
/// Most threads of a case.
const THREADS: usize = 7;

/// One of several, if there is one.
fn pick<T: Clone>(of: &[T], number: u16) -> Option<T> {
    match of.len() {
        0 => None,
        count => Some(of[usize::from(number) % count].clone()),
    }
}

impl<'a> Case<'a> {
    pub fn new(client: &'a Client) -> Self {
        Self {
            world: World::default(),
            client,
            trace: vec![],
            done: 0,
            said: 0,
            touched: vec![],
        }
    }

    /// Runs a whole case and compares after every step.
    pub fn run(&mut self, ops: &[Op]) -> Result<(), Differs> {
        self.thread()?;
        for (at, op) in ops.iter().enumerate() {
            self.touched.clear();
            self.step(op)?;
            let touched = self.touched.clone();
            for thread in touched {
                let all = op.kind == Kind::Prune;
                self.world.compare(self.client, thread, all)?;
            }
            if at % 10 == 9 {
                self.compare_all()?;
            }
            self.done += 1;
        }
        self.compare_all()
    }

    fn compare_all(&mut self) -> Result<(), Differs> {
        for thread in 0..self.world.threads.len() {
            self.world.compare(self.client, thread, true)?;
        }
        Ok(())
    }

    /// Deletes every tree of the case.
    pub fn clean(&self) {
        for thread in self.world.threads.iter().filter(|thread| !thread.deleted) {
            self.client
                .delete(&format!("/threads/{}?scope=tree", thread.id));
        }
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let bytes = match body {
            Value::Null => vec![],
            body => body.to_string().into_bytes(),
        };
        let answer = self.client.send(method, path, &[], &bytes);
        let text = String::from_utf8_lossy(&answer.body);
        let text: String = text.chars().take(300).collect();
        let status = answer.status;
        self.trace
            .push(format!("{method} {path} {body} -> {status} {text}"));
        answer
    }

    /// Sends a request that must be answered like this.
    fn expect(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
        wanted: Result<u16, Refused>,
    ) -> Result<Value, Differs> {
        let answer = self.send(method, path, body);
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let code = value["code"].as_str().unwrap_or_default();
        let good = match wanted {
            Ok(status) => answer.status == status,
            Err((status, wanted)) => {
                answer.status == status && (code == wanted || wanted.is_empty())
            }
        };
        if good {
            Ok(value)
        } else {
            Err(format!(
                "{method} {path} {body}\n  server: {} {value}\n  model:  {wanted:?}",
                answer.status
            ))
        }
    }

    fn of(&self, at: usize, path: &str) -> String {
        format!("/threads/{}/{path}", self.world.threads[at].id)
    }

    fn living(&self, number: u16) -> Option<usize> {
        let all: Vec<usize> = (0..self.world.threads.len())
            .filter(|at| !self.world.threads[*at].deleted)
            .collect();
        pick(&all, number)
    }

    fn new_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }

    /// A message nobody has said before.
    fn message(&mut self, role: u16) -> Input {
        self.said += 1;
        Input {
            id: format!("m{}", self.said),
            role: ["user", "assistant", "system"][usize::from(role) % 3],
            text: format!("text {}", self.said),
            edit_of: None,
        }
    }

    fn thread(&mut self) -> Result<(), Differs> {
        let body = json!({"metadata": {"graph_id": "agent"}});
        let made = self.expect("POST", "/threads", &body, Ok(200))?;
        let id = made["thread_id"].as_str().unwrap_or_default().to_owned();
        let at = self.world.root(id);
        self.touched.push(at);
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<(), Differs> {
        let full = self.world.threads.len() >= THREADS;
        let makes = matches!(
            op.kind,
            Kind::Thread | Kind::Fork | Kind::Implicit | Kind::Copy
        );
        if full && makes {
            return Ok(());
        }
        if op.kind == Kind::Thread {
            return self.thread();
        }
        let Some(at) = self.living(op.thread) else {
            return Ok(());
        };
        self.touched.push(at);
        match op.kind {
            Kind::Thread => Ok(()),
            Kind::Run => self.run_graph(at, op),
            Kind::Post => self.post(at, op),
            Kind::Edit => self.edit(at, op),
            Kind::Repeat => self.repeat(op),
            Kind::State => self.state(at, op),
            Kind::Rewind => self.branch_off(at, op, "rewind", true),
            Kind::Begin => self.branch_off(at, op, "checkpoint", op.c.is_multiple_of(2)),
            Kind::Btw => self.btw(at, op),
            Kind::Restore => self.restore(at, op),
            Kind::Activate => self.activate(at, op),
            Kind::Rename => self.rename(at, op),
            Kind::DeleteBranch => self.delete_branch(at, op),
            Kind::SetTag => self.set_tag(at, op),
            Kind::DeleteTag => self.delete_tag(at, op),
            Kind::Fork => self.fork(at, op),
            Kind::Implicit => self.implicit(at, op),
            Kind::Copy => self.copy(at),
            Kind::Prune => self.prune(at),
            Kind::DeleteThread => self.delete_thread(at),
            Kind::DeleteTree => self.delete_tree(at),
            Kind::Wrong => self.wrong(at, op),
        }
    }

    /// An address and how a request writes it.
    fn address(&self, at: usize, how: u16, number: u16) -> (At, Value) {
        let thread = &self.world.threads[at];
        let names: Vec<String> = thread.branches.iter().map(|one| one.name.clone()).collect();
        let tags: Vec<String> = thread.tags.keys().cloned().collect();
        let messages = self.world.seen(at);
        let points = self.world.visible(at);
        match how % 6 {
            1 if !points.is_empty() => {
                let point = pick(&points, number).unwrap();
                (
                    At::Point(point),
                    json!({"checkpoint_id": self.world.points[point].id}),
                )
            }
            2 | 3 if !messages.is_empty() => {
                let node = pick(&messages, number).unwrap();
                let id = self.world.nodes[node].id.clone();
                let body = match how % 6 {
                    2 => json!({"message_id": id}),
                    _ => json!({"message_id": id, "position": "before"}),
                };
                (At::Message(id, how % 6 == 3), body)
            }
            4 if !tags.is_empty() => {
                let tag = pick(&tags, number).unwrap();
                (At::Tag(tag.clone()), json!({"tag": tag}))
            }
            _ => {
                let name = pick(&names, number).unwrap();
                (At::Branch(name.clone()), json!({"branch": name}))
            }
        }
    }

    fn branch_off(
        &mut self,
        at: usize,
        op: &Op,
        origin: &'static str,
        activate: bool,
    ) -> Result<(), Differs> {
        let (address, mut body) = self.address(at, op.a, op.b);
        let name = (op.c % 4 == 3).then(|| pick(&NAMES, op.d).unwrap().to_owned());
        if let Some(name) = &name {
            body["name"] = json!(name);
        }
        let path = match origin {
            "rewind" => self.of(at, "rewind"),
            _ => {
                body["activate"] = json!(activate);
                self.of(at, "branches")
            }
        };
        let thread = &self.world.threads[at];
        let taken = name
            .as_ref()
            .is_some_and(|name| thread.named(name).is_some());
        let resolved = match self.world.resolve(at, &address) {
            Ok(_) if taken => Err((409, "name_taken")),
            other => other,
        };
        let wanted = resolved.as_ref().map(|_| 201).map_err(|refused| *refused);
        self.expect("POST", &path, &body, wanted)?;
        if let Ok((base, from, _)) = resolved {
            self.world
                .create_branch(at, &base, from, name, origin, activate);
        }
        Ok(())
    }

    fn btw(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let name = (op.c % 4 == 3).then(|| pick(&NAMES, op.d).unwrap().to_owned());
        let thread = &self.world.threads[at];
        let (active, path) = (thread.active, thread.active().path.clone());
        let taken = name
            .as_ref()
            .is_some_and(|name| thread.named(name).is_some());
        let body = json!({"name": name});
        let wanted = match (path.is_empty(), taken) {
            (true, _) => Err((409, "empty_branch")),
            (false, true) => Err((409, "name_taken")),
            (false, false) => Ok(201),
        };
        self.expect("POST", &self.of(at, "btw"), &body, wanted)?;
        if wanted.is_ok() {
            let base = Base::At(path);
            self.world
                .create_branch(at, &base, active, name, "btw", false);
        }
        Ok(())
    }

    fn restore(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let tags: Vec<String> = self.world.threads[at].tags.keys().cloned().collect();
        let tag = pick(&tags, op.a).unwrap_or_else(|| "t9".to_owned());
        let resolved = self.world.resolve(at, &At::Tag(tag.clone()));
        let wanted = resolved.as_ref().map(|_| 201).map_err(|refused| *refused);
        let body = json!({"tag": tag});
        self.expect("POST", &self.of(at, "restore"), &body, wanted)?;
        if let Ok((base, from, _)) = resolved {
            self.world
                .create_branch(at, &base, from, None, "restore", true);
        }
        Ok(())
    }

    fn activate(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let branch = pick(&self.world.threads[at].branches, op.a).unwrap();
        let path = self.of(at, &format!("branches/{}/activate", escape(&branch.name)));
        self.expect("POST", &path, &json!({}), Ok(200))?;
        self.world.activate(at, branch.key);
        Ok(())
    }

    fn rename(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let thread = &self.world.threads[at];
        let branch = pick(&thread.branches, op.a).unwrap();
        let name = pick(&NAMES, op.b).unwrap();
        let there = thread.named(name).map(|other| other.key);
        let wanted = match there {
            Some(key) if key != branch.key => Err((409, "name_taken")),
            _ => Ok(200),
        };
        let path = self.of(at, &format!("branches/{}", escape(&branch.name)));
        self.expect("PATCH", &path, &json!({"name": name}), wanted)?;
        if wanted.is_ok() && there.is_none() {
            let branch = branch.key;
            self.world.threads[at].branch_mut(branch).name = name.to_owned();
            self.world
                .tell(at, "BranchRenamed", Some(branch), None, None);
            self.world.touch(at, branch);
        }
        Ok(())
    }

    fn delete_branch(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let thread = &self.world.threads[at];
        let branch = pick(&thread.branches, op.a).unwrap();
        let wanted = if branch.key == thread.active {
            Err((409, "branch_active"))
        } else {
            Ok(204)
        };
        let path = self.of(at, &format!("branches/{}", escape(&branch.name)));
        self.expect("DELETE", &path, &Value::Null, wanted)?;
        if wanted.is_ok() {
            let head = branch.path.last().copied();
            let key = Some(branch.key);
            self.world.tell(at, "BranchDeleted", key, head, None);
            let branches = &mut self.world.threads[at].branches;
            branches.retain(|one| one.key != branch.key);
        }
        Ok(())
    }

    fn set_tag(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let name = format!("t{}", op.c % 3);
        let (address, body) = match op.a % 6 {
            5 => (At::Active, json!({})),
            _ => self.address(at, op.a, op.b),
        };
        let resolved = self.world.resolve(at, &address);
        let resolved = resolved.and_then(|(base, _, message)| match base {
            Base::Empty => Err((409, "empty_branch")),
            base => Ok((base, message)),
        });
        let new = !self.world.threads[at].tags.contains_key(&name);
        let wanted = resolved.as_ref().map(|_| if new { 201 } else { 200 });
        let wanted = wanted.map_err(|refused| *refused);
        let path = self.of(at, &format!("tags/{name}"));
        self.expect("PUT", &path, &body, wanted)?;
        if let Ok((base, named)) = resolved
            && let Some(point) = self.world.stand(at, &base)
        {
            let last = self.world.points[point].lines.last();
            let last = last.map(|line| line.node);
            let named = named.filter(|_| !matches!(address, At::Message(_, true)));
            let message = named.or(last);
            let tags = &mut self.world.threads[at].tags;
            tags.insert(name, Tag { point, message });
            self.world.tell(at, "TagSet", None, Some(point), message);
        }
        Ok(())
    }

    fn delete_tag(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let name = format!("t{}", op.c % 3);
        let there = self.world.threads[at].tags.get(&name).cloned();
        let wanted = there.as_ref().map(|_| 204).ok_or((404, "tag_not_found"));
        let path = self.of(at, &format!("tags/{name}"));
        self.expect("DELETE", &path, &Value::Null, wanted)?;
        if let Some(tag) = there {
            self.world.threads[at].tags.remove(&name);
            self.world
                .tell(at, "TagDeleted", None, Some(tag.point), None);
        }
        Ok(())
    }
}

mod lifetime;
mod talk;
mod wrong;
