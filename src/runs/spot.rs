//! Where a run begins: which branch it works on, and which checkpoint it starts from.

use super::{
    Created, Error, NewRun, Service,
    request::{self, IfNotExists},
};
use crate::{
    id::{BranchId, CheckpointId, ThreadId},
    tree::{
        self, Address, AddressTarget, Base, branch,
        branch::SwitchPolicy,
        resolve,
        store::rows::{Branch, Position},
    },
};

/// Where a run begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Spot {
    /// The checkpoint it addresses; the head of its branch without one.
    pub checkpoint: Option<CheckpointId>,
    /// The branch it is pinned to; it floats without one.
    pub pin: Option<BranchId>,
    /// The pinned branch becomes the active one.
    pub activate: bool,
    /// A branch to make first, when no checkpoint is what it starts from.
    pub make: Option<(Base, Branch)>,
    /// The request named a branch.
    named: bool,
}

impl Spot {
    /// Whether the tree changes with the run.
    pub fn changes(&self) -> bool {
        self.activate && self.pin.is_some() || self.make.is_some()
    }

    /// What to say when its place is gone.
    pub fn gone(&self) -> Error {
        match self.named {
            true => tree::Error::missing(
                "branch_not_found",
                "The branch of the run was deleted meanwhile",
            )
            .into(),
            false => Error::NoThreadOrAssistant,
        }
    }
}

impl Service {
    /// Where a run on a thread begins, by its request and the thread as it is now.
    ///
    /// # Errors
    /// No such thread, or the thread does not see such a place; a checkpoint that is not the head
    /// of the branch named with it; it would open a branch too many; or the storage failed.
    pub(super) async fn spot(&self, id: ThreadId, request: &request::Run) -> Result<Spot, Error> {
        let stated = request.address.root();
        let address = match (&request.address.place, stated) {
            (Some(place), _) => place.clone(),
            (None, Some(checkpoint)) => Address::at(AddressTarget::Checkpoint(checkpoint)),
            (None, None) => return Ok(Spot::default()),
        };
        let mut reader = self.inner.parts.tree.reader().await?;
        let read = &mut *reader;
        let row = read.thread_row(id).await?;
        let first = AddressTarget::Branch("main".into());
        if row.is_none()
            && request.if_not_exists == IfNotExists::Create
            && address == Address::at(first)
        {
            // The branch that the new thread will have.
            return Ok(Spot::default());
        }
        let thread = row
            .filter(|row| row.deleted_at.is_none())
            .ok_or(Error::NoThreadOrAssistant)?;
        let place = tree::resolve(read, &thread, &address).await;
        let place = place.map_err(|error| plain(error, &address))?;
        let active = resolve::active(read, &thread).await?;
        if let Some(branch) = place.named.filter(|_| address.position == Position::At) {
            return Ok(Spot {
                checkpoint: stated,
                pin: Some(branch.id),
                activate: request.activate == Some(true) && branch.id != active.id,
                make: None,
                named: true,
            });
        }
        let activate = request.activate != Some(false);
        let point = match place.base {
            Base::At(point) => point,
            base @ (Base::Empty | Base::Trim { .. }) => {
                return Ok(Spot {
                    activate,
                    make: Some((base, active)),
                    ..Spot::default()
                });
            }
        };
        if active.head == Some(point.id) {
            return Ok(Spot {
                checkpoint: stated,
                ..Spot::default()
            });
        }
        let heads = read.branches(thread.tree, id).await?;
        let there = heads
            .iter()
            .filter(|branch| branch.head == Some(point.id))
            .max_by_key(|branch| (branch.updated_at, branch.id));
        Ok(match there {
            Some(branch) => Spot {
                checkpoint: stated,
                pin: Some(branch.id),
                activate,
                ..Spot::default()
            },
            None => {
                // The run will open one.
                branch::ensure_room(&heads)?;
                Spot {
                    checkpoint: Some(point.id),
                    ..Spot::default()
                }
            }
        })
    }

    /// Creates a run together with the change of the tree that it needs.
    pub(super) async fn create_with(&self, mut new: NewRun, spot: &Spot) -> Result<Created, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let tree = resolve::thread(&mut *reader, new.thread).await?.tree;
        drop(reader);
        let mut tx = self.inner.parts.runs.begin(tree).await?;
        let thread = resolve::thread(&mut *tx, new.thread).await?;
        if let Some((base, from)) = &spot.make {
            if let Some(id) = base.id()
                && tx.point(tree, id).await?.is_none()
            {
                return Err(crate::checkpoint::Error::Pruned(id).into());
            }
            let made = branch::CreateBranch {
                base: base.point().cloned(),
                name: None,
                from: from.clone(),
                origin: "checkpoint",
                activate: spot.activate.then_some(SwitchPolicy::FLOAT),
                waits: false,
            };
            let made = branch::create(&mut *tx, &thread, made).await?;
            let made = self.cut(&mut *tx, &thread, made.branch, base).await?;
            new.branch = Some(made.id);
        }
        let pinned = new.branch;
        let created = tx.create_run(new).await?;
        if !matches!(created, Created::Started(..) | Created::Queued(_)) {
            return Ok(created);
        }
        if let Some(id) = spot.pin.filter(|_| spot.activate)
            && pinned == Some(id)
            && let Some(branch) = tx.branch(tree, id).await?
        {
            branch::activate(&mut *tx, &thread, &branch, SwitchPolicy::FLOAT).await?;
        }
        tx.commit().await?;
        Ok(created)
    }
}

/// A checkpoint that is not there is told of as LangGraph's clients know it.
fn plain(error: tree::Error, address: &Address) -> Error {
    match (error, &address.target) {
        (
            tree::Error::Refused {
                code: "checkpoint_not_found",
                ..
            },
            AddressTarget::Checkpoint(id),
        ) => Error::NoCheckpoint(*id),
        (error, _) => error.into(),
    }
}
