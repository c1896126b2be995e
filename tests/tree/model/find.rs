//! From an address to what is meant by it, as a thread sees it.

use super::world::{Base, Refused, World};

pub const NO_MESSAGE: Refused = (404, "message_not_found");
pub const PRUNED: Refused = (409, "checkpoint_pruned");

/// An address of a request.
#[derive(Clone, Debug)]
pub enum At {
    Active,
    Branch(String),
    Tag(String),
    Point(usize),
    /// A message, and whether the place before it is meant.
    Message(String, bool),
}

impl World {
    /// The path of a checkpoint that a thread sees.
    pub fn path(&self, at: usize, point: usize) -> Option<Vec<usize>> {
        let thread = &self.threads[at];
        if let Some(path) = thread.own.get(&point) {
            return Some(path.clone());
        }
        let end = thread.base.iter().position(|one| *one == point)?;
        Some(thread.base[..=end].to_vec())
    }

    /// Checkpoints that a thread sees and that are still there.
    pub fn visible(&self, at: usize) -> Vec<usize> {
        let thread = &self.threads[at];
        let mut all: Vec<usize> = thread.base.clone();
        all.extend(thread.own.keys());
        all.retain(|point| !self.points[*point].pruned);
        all
    }

    /// Whether a thread sees a message.
    pub fn sees(&self, at: usize, node: usize) -> bool {
        let thread = &self.threads[at];
        let first = self.nodes[node].first;
        let told = |point: &usize| {
            let lines = &self.points[*point].lines;
            lines.iter().any(|line| line.node == node)
        };
        self.nodes[node].thread == at
            || thread.base.contains(&first)
            || thread.base.last().is_some_and(told)
    }

    /// Messages that a thread sees, newest last.
    pub fn seen(&self, at: usize) -> Vec<usize> {
        let all = 0..self.nodes.len();
        all.filter(|node| self.sees(at, *node)).collect()
    }

    /// Whether a message is on the path of a branch.
    pub fn on_branch(&self, at: usize, branch: usize, node: usize) -> bool {
        let lines = self.lines(at, branch);
        lines.iter().any(|line| line.node == node)
    }

    /// The message that an id means: the one on the branch, else the newest.
    pub fn message(&self, at: usize, id: &str, branch: usize) -> Result<usize, Refused> {
        let mut named = self.seen(at);
        named.retain(|node| self.nodes[*node].id == id);
        let here = named.iter().copied();
        let here = here.rev().find(|node| self.on_branch(at, branch, *node));
        here.or(named.last().copied()).ok_or(NO_MESSAGE)
    }

    /// Messages that came with a message, itself too.
    fn beside(&self, node: usize) -> Vec<usize> {
        let first = self.nodes[node].first;
        let all = 0..self.nodes.len();
        all.filter(|other| self.nodes[*other].first == first)
            .collect()
    }

    /// The end of the turn that a message ends, or where it came.
    pub fn at_message(&self, at: usize, node: usize) -> Result<Base, Refused> {
        let settled = self.nodes[node].settled;
        if let Some(point) = settled.filter(|point| !self.points[*point].pruned)
            && let Some(path) = self.path(at, point)
        {
            return Ok(Base::At(path));
        }
        let first = self.nodes[node].first;
        if self.points[first].pruned {
            return Err(PRUNED);
        }
        let path = self.path(at, first).unwrap();
        let later = self.beside(node).into_iter().find(|other| *other > node);
        Ok(match later {
            Some(later) => Base::Trim(path, later),
            None => Base::At(path),
        })
    }

    /// What there was before a message came.
    pub fn before_message(&self, at: usize, node: usize) -> Result<Base, Refused> {
        let first = self.nodes[node].first;
        if self.points[first].pruned {
            return Err(PRUNED);
        }
        let path = self.path(at, first).unwrap();
        if self.beside(node)[0] != node {
            return Ok(Base::Trim(path, node));
        }
        let mut before = &path[..path.len() - 1];
        while let Some((last, rest)) = before.split_last() {
            if self.points[*last].source != "input" {
                break;
            }
            before = rest;
        }
        match before.last() {
            None => Ok(Base::Empty),
            Some(last) if self.points[*last].pruned => Err(PRUNED),
            Some(_) => Ok(Base::At(before.to_vec())),
        }
    }

    /// What an address means, the branch that gives a new one its name, and the message named.
    pub fn resolve(
        &self,
        at: usize,
        address: &At,
    ) -> Result<(Base, usize, Option<usize>), Refused> {
        let thread = &self.threads[at];
        let whole = |path: Vec<usize>| {
            if path.is_empty() {
                Base::Empty
            } else {
                Base::At(path)
            }
        };
        match address {
            At::Active => Ok((whole(thread.active().path.clone()), thread.active, None)),
            At::Branch(name) => {
                let branch = thread.named(name).ok_or((404, "branch_not_found"))?;
                Ok((whole(branch.path.clone()), branch.key, None))
            }
            At::Tag(name) => {
                let tag = thread.tags.get(name).ok_or((404, "tag_not_found"))?;
                let path = self.path(at, tag.point).unwrap();
                Ok((Base::At(path), thread.active, None))
            }
            At::Point(point) => {
                let path = self.path(at, *point).ok_or((404, "checkpoint_not_found"))?;
                Ok((Base::At(path), thread.active, None))
            }
            At::Message(id, before) => {
                let node = self.message(at, id, thread.active)?;
                let base = if *before {
                    self.before_message(at, node)?
                } else {
                    self.at_message(at, node)?
                };
                Ok((base, thread.active, Some(node)))
            }
        }
    }
}
