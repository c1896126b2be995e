//! What threads, branches and messages there ought to be. Every branch holds its whole path and
//! every checkpoint its whole conversation; nothing is shared, and nothing knows of rows.

use std::collections::BTreeMap;

/// Everything a case has made. Things are named by their place in these lists and never leave
/// them.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub threads: Vec<Thread>,
    pub points: Vec<Point>,
    pub nodes: Vec<Node>,
    /// Bodies that messages were posted with, by thread: what a client may send once more.
    pub posted: Vec<(usize, serde_json::Value)>,
    /// Something was pruned.
    pub pruned: bool,
    clock: u64,
}

/// A checkpoint.
#[derive(Clone, Debug)]
pub struct Point {
    /// As the server calls it; empty until it was seen.
    pub id: String,
    pub parent: Option<usize>,
    pub source: &'static str,
    /// The whole conversation up to here.
    pub lines: Vec<Line>,
    /// Input that no node has taken yet.
    pub start: Vec<Input>,
    /// The model is to answer next.
    pub waits: bool,
    /// Number of the newest event when it was written.
    pub event: i64,
    pub thread: usize,
    pub pruned: bool,
}

/// A message at a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub node: usize,
    pub role: &'static str,
    pub text: String,
    /// The checkpoints that changed it.
    pub edits: Vec<usize>,
    /// The checkpoint whose successor removed it.
    pub gone: Option<usize>,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Node {
    /// As the server calls it; empty until it was seen.
    pub id: String,
    pub parent: Option<usize>,
    pub edit_of: Option<String>,
    /// The checkpoint it came with.
    pub first: usize,
    /// The end of the run that said it last.
    pub settled: Option<usize>,
    pub event: Option<i64>,
    pub thread: usize,
}

/// A message to write.
#[derive(Clone, Debug)]
pub struct Input {
    pub id: String,
    pub role: &'static str,
    pub text: String,
    pub edit_of: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Branch {
    pub key: usize,
    pub name: String,
    pub path: Vec<usize>,
    pub origin: &'static str,
    pub source: Option<usize>,
    pub interrupted: bool,
    pub updated: u64,
    /// It was not compared since it changed.
    pub fresh: bool,
}

#[derive(Clone, Debug)]
pub struct Tag {
    pub point: usize,
    pub message: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub kind: &'static str,
    /// What its branch was called then.
    pub branch: Option<String>,
    pub point: Option<usize>,
    pub node: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Thread {
    pub id: String,
    pub root: usize,
    pub parent: Option<usize>,
    /// What it inherits.
    pub base: Vec<usize>,
    pub base_event: i64,
    pub anchor: Option<String>,
    pub position: Option<&'static str>,
    pub level: i64,
    pub branches: Vec<Branch>,
    pub active: usize,
    pub tags: BTreeMap<String, Tag>,
    pub events: Vec<Event>,
    /// What it wrote, each with its whole path.
    pub own: BTreeMap<usize, Vec<usize>>,
    pub deleted: bool,
    keys: usize,
}

/// What something is built on.
#[derive(Clone, Debug, PartialEq)]
pub enum Base {
    Empty,
    At(Vec<usize>),
    /// The last checkpoint of the path without its messages from this one on.
    Trim(Vec<usize>, usize),
}

/// Status and code of a refusal.
pub type Refused = (u16, &'static str);

impl Base {
    /// The path, with the checkpoint that is to be cut.
    pub fn path(&self) -> &[usize] {
        match self {
            Self::Empty => &[],
            Self::At(path) | Self::Trim(path, _) => path,
        }
    }
}

impl Thread {
    pub fn branch(&self, key: usize) -> &Branch {
        let found = self.branches.iter().find(|branch| branch.key == key);
        found.unwrap()
    }

    pub fn branch_mut(&mut self, key: usize) -> &mut Branch {
        let mut all = self.branches.iter_mut();
        all.find(|branch| branch.key == key).unwrap()
    }

    pub fn named(&self, name: &str) -> Option<&Branch> {
        self.branches.iter().find(|branch| branch.name == name)
    }

    pub fn active(&self) -> &Branch {
        self.branch(self.active)
    }

    /// Number of the newest event.
    pub fn last_event(&self) -> i64 {
        self.base_event + self.events.len() as i64
    }

    /// The name that a branch made from `name` gets.
    pub fn auto_name(&self, name: &str) -> String {
        let name = without_number(name)
            .and_then(without_number)
            .unwrap_or(name);
        let family = |other: &&Branch| {
            other.name == name
                || other
                    .name
                    .strip_prefix(&format!("{name}-v"))
                    .is_some_and(|rest| rest.parse::<u64>().is_ok())
        };
        let mut number = 1 + self.branches.iter().filter(family).count();
        while self.named(&format!("{name}-v{number}")).is_some() {
            number += 1;
        }
        format!("{name}-v{number}")
    }
}

/// A name without the number that an automatic name ends with.
fn without_number(name: &str) -> Option<&str> {
    let (name, number) = name.rsplit_once("-v")?;
    number.parse::<u64>().is_ok().then_some(name)
}

impl World {
    /// A root thread.
    pub fn root(&mut self, id: String) -> usize {
        let at = self.threads.len();
        self.threads.push(Thread {
            id,
            root: at,
            parent: None,
            base: vec![],
            base_event: 0,
            anchor: None,
            position: None,
            level: 0,
            branches: vec![],
            active: 0,
            tags: BTreeMap::new(),
            events: vec![],
            own: BTreeMap::new(),
            deleted: false,
            keys: 0,
        });
        self.tell(at, "ThreadCreated", None, None, None);
        self.push_branch(at, "main".to_owned(), "root", None, vec![], false);
        at
    }

    /// A fork of a thread.
    pub fn fork(
        &mut self,
        parent: usize,
        id: String,
        base: &Base,
        anchor: Option<String>,
        position: Option<&'static str>,
    ) -> usize {
        let at = self.root(id);
        let path = base.path().to_vec();
        let from = &self.threads[parent];
        let (root, level) = (from.root, from.level + 1);
        let inherited = path.last().map_or(0, |point| self.points[*point].event);
        let thread = &mut self.threads[at];
        thread.root = root;
        thread.level = level;
        thread.parent = Some(parent);
        thread.base = path;
        thread.base_event = inherited;
        thread.anchor = anchor;
        thread.position = position;
        thread.events.clear();
        thread.branches.clear();
        let waits = matches!(base, Base::At(_)) && self.waits(base.path());
        let path = base.path().to_vec();
        let main = self.push_branch(at, "main".to_owned(), "fork", None, path, waits);
        self.threads[at].active = main;
        let point = base.path().last().copied();
        self.tell(at, "ThreadCreated", Some(main), None, None);
        self.tell(at, "ThreadForked", Some(main), point, None);
        self.cut(at, main, base);
        at
    }

    /// Whether somebody is to run next at the end of a path.
    pub fn waits(&self, path: &[usize]) -> bool {
        path.last()
            .is_some_and(|point| self.points[*point].waits || !self.points[*point].start.is_empty())
    }

    pub fn push_branch(
        &mut self,
        at: usize,
        name: String,
        origin: &'static str,
        source: Option<usize>,
        path: Vec<usize>,
        interrupted: bool,
    ) -> usize {
        self.clock += 1;
        let thread = &mut self.threads[at];
        let key = thread.keys;
        thread.keys += 1;
        thread.branches.push(Branch {
            key,
            name,
            path,
            origin,
            source,
            interrupted,
            updated: self.clock,
            fresh: true,
        });
        key
    }

    /// Writes an event and gives its number.
    pub fn tell(
        &mut self,
        at: usize,
        kind: &'static str,
        branch: Option<usize>,
        point: Option<usize>,
        node: Option<usize>,
    ) -> i64 {
        let thread = &mut self.threads[at];
        let called = |key| thread.branches.iter().find(|branch| branch.key == key);
        let branch = branch.and_then(called).map(|branch| branch.name.clone());
        thread.events.push(Event {
            kind,
            branch,
            point,
            node,
        });
        thread.last_event()
    }

    pub fn touch(&mut self, at: usize, branch: usize) {
        self.clock += 1;
        let clock = self.clock;
        let branch = self.threads[at].branch_mut(branch);
        branch.updated = clock;
        branch.fresh = true;
    }

    /// Cuts the newest messages off at the beginning of a branch, if its base says so.
    fn cut(&mut self, at: usize, branch: usize, base: &Base) {
        let Base::Trim(path, from) = base else {
            return;
        };
        let of = &self.points[*path.last().unwrap()];
        let end = of.lines.iter().position(|line| line.node == *from);
        let lines = of.lines[..end.unwrap()].to_vec();
        self.append(at, branch, "fork", lines, vec![], false);
    }

    /// The checkpoint that a name stands on: one of its own where the place is cut out of another.
    pub fn stand(&mut self, at: usize, base: &Base) -> Option<usize> {
        let mut path = base.path().to_vec();
        if matches!(base, Base::Trim(..)) {
            let nobodys = self.push_branch(at, String::new(), "checkpoint", None, path, false);
            self.cut(at, nobodys, base);
            path = self.threads[at].branch(nobodys).path.clone();
            let branches = &mut self.threads[at].branches;
            branches.retain(|branch| branch.key != nobodys);
        }
        path.last().copied()
    }

    /// Makes a branch, as every operation that makes one does.
    pub fn create_branch(
        &mut self,
        at: usize,
        base: &Base,
        from: usize,
        name: Option<String>,
        origin: &'static str,
        activate: bool,
    ) -> usize {
        let thread = &self.threads[at];
        let name = name.unwrap_or_else(|| thread.auto_name(&thread.branch(from).name));
        let waits = matches!(base, Base::At(_)) && self.waits(base.path());
        let path = base.path().to_vec();
        let key = self.push_branch(at, name, origin, Some(from), path, waits);
        let point = base.path().last().copied();
        self.tell(at, "BranchCreated", Some(key), point, None);
        if activate {
            self.activate(at, key);
        }
        self.cut(at, key, base);
        key
    }

    /// Makes a branch active that is not.
    pub fn activate(&mut self, at: usize, branch: usize) {
        if self.threads[at].active != branch {
            self.tell(at, "BranchActivated", Some(branch), None, None);
            self.threads[at].active = branch;
        }
    }

    /// Puts a checkpoint at the end of a branch.
    pub fn append(
        &mut self,
        at: usize,
        branch: usize,
        source: &'static str,
        lines: Vec<Line>,
        start: Vec<Input>,
        waits: bool,
    ) -> usize {
        let key = self.points.len();
        let event = self.threads[at].last_event();
        let path = &mut self.threads[at].branch_mut(branch).path;
        let parent = path.last().copied();
        path.push(key);
        let path = path.clone();
        self.points.push(Point {
            id: String::new(),
            parent,
            source,
            lines,
            start,
            waits,
            event,
            thread: at,
            pruned: false,
        });
        self.threads[at].own.insert(key, path);
        let waits = self.waits(&[key]);
        self.touch(at, branch);
        self.threads[at].branch_mut(branch).interrupted = waits;
        key
    }

    /// The conversation at the end of a branch.
    pub fn lines(&self, at: usize, branch: usize) -> Vec<Line> {
        let path = &self.threads[at].branch(branch).path;
        let head = path.last().map(|head| self.points[*head].lines.clone());
        head.unwrap_or_default()
    }

    /// Writes messages through the reducer: a new checkpoint with what they make of the state.
    /// `by_run` says whether a model's message is an answer.
    pub fn write(
        &mut self,
        at: usize,
        branch: usize,
        source: &'static str,
        messages: &[Input],
        waits: bool,
    ) -> usize {
        let by_run = source == "loop";
        let mut lines = self.lines(at, branch);
        let point = self.points.len();
        for message in messages {
            let there = lines
                .iter_mut()
                .find(|line| line.gone.is_none() && self.nodes[line.node].id == message.id);
            if let Some(line) = there.filter(|_| !message.id.is_empty()) {
                if line.text != message.text || line.role != message.role {
                    line.text.clone_from(&message.text);
                    line.role = message.role;
                    line.edits.push(point);
                    let node = line.node;
                    self.tell(at, "MessageEdited", Some(branch), Some(point), Some(node));
                }
                continue;
            }
            let node = self.nodes.len();
            let kind = match message.role {
                "user" => "UserMessageAdded",
                "assistant" if by_run => "LLMResponseGenerated",
                _ => "MessageAdded",
            };
            let event = self.tell(at, kind, Some(branch), Some(point), Some(node));
            self.nodes.push(Node {
                id: message.id.clone(),
                parent: lines.last().map(|line| line.node),
                edit_of: message.edit_of.clone(),
                first: point,
                settled: None,
                event: Some(event),
                thread: at,
            });
            lines.push(Line {
                node,
                role: message.role,
                text: message.text.clone(),
                edits: vec![],
                gone: None,
            });
        }
        if !by_run {
            self.tell(at, "CheckpointCreated", Some(branch), Some(point), None);
        }
        assert_eq!(self.append(at, branch, source, lines, vec![], waits), point);
        point
    }

    /// Removes a message from the state at the end of a branch.
    pub fn remove(&mut self, at: usize, branch: usize, node: usize) {
        let mut lines = self.lines(at, branch);
        let head = self.threads[at].branch(branch).path.last().copied();
        let line = lines.iter_mut().find(|line| line.node == node).unwrap();
        line.gone = head;
        let point = self.points.len();
        self.tell(at, "MessageRemoved", Some(branch), Some(point), Some(node));
        self.tell(at, "CheckpointCreated", Some(branch), Some(point), None);
        self.append(at, branch, "update", lines, vec![], false);
    }
}
