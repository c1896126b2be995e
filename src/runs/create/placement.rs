//! Placing a run: which branch it works on, and which checkpoint it starts from.

use crate::{
    id::{BranchId, CheckpointId, ThreadId},
    runs::{
        Created, Error, NewRun, Service,
        request::{self, IfNotExists},
        shared::memory::ChangeMemory,
    },
    tree::{
        self, Address, AddressTarget, Base, branch,
        branch::SwitchPolicy,
        resolve,
        store::rows::{Branch, Position},
    },
};

/// The branch of a run and the checkpoint it starts from.
#[derive(Clone, Debug, Default)]
pub(super) struct RunPlacement {
    /// The checkpoint it addresses; the head of its branch without one.
    pub checkpoint: Option<CheckpointId>,
    /// The branch it is pinned to; it floats without one.
    pub pin: Option<BranchId>,
    /// The pinned branch becomes the active one.
    pub activate: bool,
    /// A branch to make first, when no checkpoint is what it starts from.
    pub make: Option<(Base, Branch)>,
    /// The request named a branch.
    is_named: bool,
}

impl RunPlacement {
    /// Whether the tree changes with the run.
    pub fn changes_tree(&self) -> bool {
        self.activate && self.pin.is_some() || self.make.is_some()
    }

    /// The error when the thread or the branch is gone.
    pub fn missing(&self) -> Error {
        if self.is_named {
            let detail = "The branch of the run was deleted meanwhile";
            tree::Error::missing("branch_not_found", detail).into()
        } else {
            Error::NoThreadOrAssistant
        }
    }
}

impl Service {
    /// Places a run on a thread, by its request and the thread as it is now.
    ///
    /// # Errors
    /// No such thread, or the address is not visible in it; a checkpoint that is not the head of
    /// the branch named with it; it would open a branch too many; or the storage failed.
    pub(super) async fn choose_placement(
        &self,
        id: ThreadId,
        request: &request::Run,
    ) -> Result<RunPlacement, Error> {
        let requested = request.address.root();
        let address = match (&request.address.tree_address, requested) {
            (Some(address), _) => address.clone(),
            (None, Some(checkpoint)) => Address::at(AddressTarget::Checkpoint(checkpoint)),
            (None, None) => return Ok(RunPlacement::default()),
        };
        let mut reader = self.shared.parts.tree.reader().await?;
        let read = &mut *reader;
        let row = read.thread_row(id).await?;
        let first = AddressTarget::Branch("main".into());
        if row.is_none()
            && request.if_not_exists == IfNotExists::Create
            && address == Address::at(first)
        {
            // The branch that the new thread will have.
            return Ok(RunPlacement::default());
        }
        let thread = row
            .filter(|row| row.deleted_at.is_none())
            .ok_or(Error::NoThreadOrAssistant)?;
        self.authorize_creation(request, id).await?;
        let resolved = tree::resolve(read, &thread, &address).await;
        let resolved = resolved.map_err(|error| as_langgraph(error, &address))?;
        let active = resolve::active(read, &thread).await?;
        if let Some(branch) = resolved.named.filter(|_| address.position == Position::At) {
            return Ok(RunPlacement {
                checkpoint: requested,
                pin: Some(branch.id),
                activate: request.activate == Some(true) && branch.id != active.id,
                make: None,
                is_named: true,
            });
        }
        let activate = request.activate != Some(false);
        let point = match resolved.base {
            Base::At(point) => point,
            base @ (Base::Empty | Base::Trim { .. }) => {
                return Ok(RunPlacement {
                    activate,
                    make: Some((base, active)),
                    ..RunPlacement::default()
                });
            }
        };
        if active.head == Some(point.id) {
            return Ok(RunPlacement {
                checkpoint: requested,
                ..RunPlacement::default()
            });
        }
        let heads = read.branches(thread.tree, id).await?;
        let on_head = heads
            .iter()
            .filter(|branch| branch.head == Some(point.id))
            .max_by_key(|branch| (branch.updated_at, branch.id));
        Ok(match on_head {
            Some(branch) => RunPlacement {
                checkpoint: requested,
                pin: Some(branch.id),
                activate,
                ..RunPlacement::default()
            },
            None => {
                // The run will open one.
                branch::ensure_room(&heads)?;
                RunPlacement {
                    checkpoint: Some(point.id),
                    ..RunPlacement::default()
                }
            }
        })
    }

    /// Creates a run together with the change of the tree that it needs; the state at the place takes `memory`.
    pub(super) async fn create_placed(
        &self,
        mut new: NewRun,
        placement: &RunPlacement,
        memory: &ChangeMemory,
    ) -> Result<Created, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let tree = resolve::thread(&mut *reader, new.thread).await?.tree;
        drop(reader);
        let mut tx = self.shared.parts.runs.begin(tree).await?;
        let thread = resolve::thread(&mut *tx, new.thread).await?;
        if let Some((base, from)) = &placement.make {
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
                activate: placement.activate.then_some(SwitchPolicy::FLOAT),
                waits: false,
            };
            let made = branch::create(&mut *tx, &thread, made).await?;
            let made = self
                .shared
                .trim_branch(&mut *tx, &thread, made.branch, base, memory)
                .await?;
            new.branch = Some(made.id);
        }
        let pinned = new.branch;
        let created = tx.create_run(new).await?;
        if !matches!(created, Created::Started(..) | Created::Queued(_)) {
            return Ok(created);
        }
        if let Some(id) = placement.pin.filter(|_| placement.activate)
            && pinned == Some(id)
            && let Some(branch) = tx.branch(tree, id).await?
        {
            branch::activate(&mut *tx, &thread, &branch, SwitchPolicy::FLOAT).await?;
        }
        tx.commit().await?;
        Ok(created)
    }
}

/// The error of a missing checkpoint in the form that LangGraph's clients know.
fn as_langgraph(error: tree::Error, address: &Address) -> Error {
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
