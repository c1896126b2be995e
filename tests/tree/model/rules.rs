//! What posts of messages and runs do.

use super::{
    find::NO_MESSAGE,
    world::{Base, Input, Refused, World},
};

/// What known ids mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Existing {
    Branch,
    Replace,
    Reject,
}

/// Messages to store. One without an id has an empty one.
#[derive(Clone, Debug)]
pub struct Post {
    pub messages: Vec<Input>,
    /// The message they follow, or come in place of.
    pub parent: Option<(String, bool)>,
    pub branch: Option<String>,
    pub activate: bool,
    pub existing: Existing,
    pub expected: Option<Option<String>>,
}

/// What became of a post.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    pub branch: usize,
    pub created: bool,
}

/// Why a post is not carried out.
#[derive(Clone, Debug)]
pub enum Not {
    Refused(Refused),
    /// It was before.
    Stored,
    /// Nothing says what should happen.
    Unclear,
}

impl From<Refused> for Not {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Where a run begins.
#[derive(Clone, Debug)]
pub enum Spot {
    /// At the head of a branch, which may become the active one.
    Head(usize, bool),
    /// At another checkpoint: a branch is made with its first write.
    Old(Vec<usize>, bool),
    /// Where there is no checkpoint to start from: a branch is made first.
    Place(Base, bool),
}

impl World {
    /// Stores messages.
    pub fn post(&mut self, at: usize, post: &Post) -> Result<Posted, Not> {
        let thread = &self.threads[at];
        let main = match &post.branch {
            Some(name) => thread.named(name).ok_or((404, "branch_not_found"))?,
            None => thread.active(),
        };
        let main = main.key;
        let place = match &post.parent {
            None => None,
            Some((id, before)) => match self.message(at, id, main) {
                Ok(node) => Some((node, *before)),
                Err(NO_MESSAGE) if uuid::Uuid::parse_str(id).is_err() => {
                    return Err(Not::Refused((400, "invalid_id")));
                }
                Err(refused) => return Err(refused.into()),
            },
        };
        let mut after = place.map(|(node, before)| {
            if before {
                self.nodes[node].parent
            } else {
                Some(node)
            }
        });
        let mut there = vec![];
        for message in &post.messages {
            match self.stored(at, main, message, after)? {
                Some(node) => {
                    there.push(node);
                    after = Some(Some(node));
                }
                None => break,
            }
        }
        if there.len() == post.messages.len() {
            return Err(Not::Stored);
        }
        if post.existing == Existing::Replace {
            after = place.map(|(node, before)| {
                if before {
                    self.nodes[node].parent
                } else {
                    Some(node)
                }
            });
            there.clear();
        }
        let rest = &post.messages[there.len()..];
        let taken = |world: &Self, id: &str| {
            let seen = world.seen(at);
            let named = seen.into_iter();
            let named = named.filter(|node| !id.is_empty() && world.nodes[*node].id == id);
            named.collect::<Vec<usize>>()
        };
        let first = taken(self, &rest[0].id);
        if post.existing == Existing::Reject
            && rest.iter().any(|one| !taken(self, &one.id).is_empty())
        {
            return Err(Not::Refused((409, "message_exists")));
        }
        let mut edited = first.clone();
        edited.retain(|node| after.is_none_or(|after| after == self.nodes[*node].parent));
        let mut newest = edited.iter().rev().copied();
        let on_path = newest.find(|node| self.on_branch(at, main, *node));
        let edited = on_path.or(edited.last().copied());
        let last = |world: &Self, branch: usize| {
            let lines = world.lines(at, branch);
            lines.last().map(|line| line.node)
        };
        let thread = &self.threads[at];
        let expected = |world: &Self, branch: usize| -> Result<(), Not> {
            let head = world.threads[at].branch(branch).path.last();
            let head = head.map(|head| &*world.points[*head].id);
            match &post.expected {
                Some(expected) if expected.as_deref() != head => {
                    Err(Not::Refused((409, "head_conflict")))
                }
                _ => Ok(()),
            }
        };
        let (base, origin) = if !first.is_empty() && post.existing == Existing::Replace {
            (Err(main), "")
        } else if let Some(node) = edited {
            expected(self, main)?;
            (Ok(self.before_message(at, node)?), "edit")
        } else {
            match after {
                None => (Err(main), ""),
                Some(after) if last(self, main) == after => (Err(main), ""),
                Some(after) => {
                    let ends = thread.branches.iter();
                    let ends = ends.filter(|branch| last(self, branch.key) == after);
                    let newest = ends.clone().map(|branch| branch.updated).max();
                    let mut newest = ends.filter(|branch| Some(branch.updated) == newest);
                    match (newest.next(), newest.next()) {
                        (Some(_), Some(_)) => return Err(Not::Unclear),
                        (Some(branch), None) => (Err(branch.key), ""),
                        (None, _) => {
                            expected(self, main)?;
                            let base = match (there.last(), place) {
                                (Some(node), _) => self.at_message(at, *node)?,
                                (None, Some((node, true))) => self.before_message(at, node)?,
                                (None, Some((node, false))) => self.at_message(at, node)?,
                                (None, None) => return Err(Not::Unclear),
                            };
                            (Ok(base), "message")
                        }
                    }
                }
            }
        };
        let messages: Vec<Input> = rest
            .iter()
            .map(|one| {
                if !taken(self, &one.id).is_empty() && post.existing != Existing::Replace {
                    Input {
                        id: String::new(),
                        edit_of: Some(one.id.clone()),
                        ..one.clone()
                    }
                } else {
                    one.clone()
                }
            })
            .collect();
        let (branch, created) = match base {
            Err(branch) => {
                expected(self, branch)?;
                if post.activate {
                    self.activate(at, branch);
                }
                (branch, false)
            }
            Ok(base) => {
                let made = self.create_branch(at, &base, main, None, origin, post.activate);
                (made, true)
            }
        };
        let waits = matches!(messages.last().unwrap().role, "user" | "system");
        self.write(at, branch, "update", &messages, waits);
        Ok(Posted { branch, created })
    }

    /// The message that a post of one has stored already.
    fn stored(
        &self,
        at: usize,
        main: usize,
        message: &Input,
        after: Option<Option<usize>>,
    ) -> Result<Option<usize>, Not> {
        if message.id.is_empty() {
            return Ok(None);
        }
        let mut found = vec![];
        let lines = self.lines(at, main);
        for node in self.seen(at) {
            let known = &self.nodes[node];
            if known.id != message.id && known.edit_of.as_ref() != Some(&message.id) {
                continue;
            }
            let here = lines.iter().find(|line| line.node == node);
            let now = match here.filter(|line| line.gone.is_none()) {
                Some(line) => line,
                // Who knows what it said where nobody can look any more.
                None if self.points[known.first].pruned => return Err(Not::Unclear),
                None => {
                    let told = self.points[known.first].lines.iter();
                    let mut told = told.filter(|line| line.node == node);
                    told.next().unwrap()
                }
            };
            let same = now.text == message.text && now.role == message.role;
            // One that was written in place of another stands beside it, unless a place is named.
            let beside = known.id == message.id || {
                let mut seen = self.seen(at).into_iter().map(|other| &self.nodes[other]);
                seen.any(|other| other.id == message.id && other.parent == known.parent)
            };
            if same && after.map_or(beside, |after| after == known.parent) {
                found.push((here.is_some(), node));
            }
        }
        // On the path first, then the newest.
        found.sort_unstable();
        Ok(found.last().map(|(_, node)| *node))
    }

    /// Runs the graph `agent`: it takes the input and answers the last message.
    pub fn run(&mut self, at: usize, spot: &Spot, input: &[Input]) -> usize {
        let begin = |world: &mut Self, branch: usize| {
            world.tell(at, "RunEnqueued", Some(branch), None, None);
            world.tell(at, "RunStarted", Some(branch), None, None);
        };
        let active = self.threads[at].active;
        let branch = match spot {
            Spot::Head(branch, activate) => {
                begin(self, *branch);
                if *activate {
                    self.activate(at, *branch);
                }
                *branch
            }
            Spot::Place(base, activate) => {
                let made = self.create_branch(at, base, active, None, "checkpoint", *activate);
                begin(self, made);
                made
            }
            Spot::Old(path, activate) => {
                begin(self, active);
                let base = Base::At(path.clone());
                let made = self.create_branch(at, &base, active, None, "checkpoint", *activate);
                if input.is_empty() {
                    let of = self.points[*path.last().unwrap()].clone();
                    self.append(at, made, "fork", of.lines, of.start, of.waits);
                }
                made
            }
        };
        if !input.is_empty() {
            let lines = self.lines(at, branch);
            self.append(at, branch, "input", lines, input.to_vec(), false);
        }
        let head = self.threads[at].branch(branch).path.last().copied();
        let head = head.map(|head| self.points[head].clone());
        let Some(head) = head.filter(|head| head.waits || !head.start.is_empty()) else {
            let end = self.threads[at].branch(branch).path.last().copied();
            self.tell(at, "RunFinished", Some(branch), end, None);
            self.touch(at, branch);
            return branch;
        };
        if !head.start.is_empty() {
            self.write(at, branch, "loop", &head.start, true);
        }
        let lines = self.lines(at, branch);
        let heard = lines.iter().rev().find(|line| line.gone.is_none()).unwrap();
        let answer = Input {
            id: String::new(),
            role: "assistant",
            text: format!("echo: {}", heard.text),
            edit_of: None,
        };
        let end = self.write(at, branch, "loop", &[answer], false);
        self.nodes.last_mut().unwrap().settled = Some(end);
        self.tell(at, "CheckpointCreated", Some(branch), Some(end), None);
        self.tell(at, "RunFinished", Some(branch), Some(end), None);
        self.touch(at, branch);
        branch
    }
}
