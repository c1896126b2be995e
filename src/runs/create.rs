//! Creating runs: one builder makes the row, its stream and its handle; the run is launched once
//! its row is durable.

mod batch;
mod contents;
#[cfg(feature = "server")]
mod cron;
mod ending;
mod ids;
mod message_ids;
mod metadata;
mod placement;
mod registration;
mod waiting;

use std::{collections::HashSet, sync::Arc};

pub(crate) use self::registration::Registration;
use self::{
    metadata::{own_keys, run_metadata, thread_config, thread_metadata},
    placement::RunPlacement,
};
use super::{
    Created, Error, NewRun, Run, RunHandle, Service, Strategy,
    execute::{Start, context_properties},
    listing::BATCH_BYTES,
    request::{self, Ids, IfNotExists, Kwargs, OnCompletion, Requester, identity},
    shared::memory::ChangeMemory,
};
use crate::{
    assistants::{Registered, Resolved},
    checkpoint,
    contention::Turn,
    id::{BranchId, RunId, ThreadId, TreeId},
    stream::{self, FrameSource, Publisher},
    tree::{
        self, IfExists, NewThread, Outcome,
        load::StateMemory,
        members::{Denied, Level},
        resolve,
        store::rows::OpenRun,
    },
    value::Value,
};

/// A run that was just created.
pub struct SubmittedRun {
    /// The row.
    pub row: Run,
    /// Its stream and its result.
    pub handle: RunHandle,
    /// Its stream from the first event on, if it is to be watched.
    pub frames: Option<Box<dyn FrameSource>>,
}

/// A run that is not written yet. Its stream is there already, since the worker may claim the run
/// before the response of the storage is here.
pub(crate) struct PreparedRun {
    /// Its stream and its handle in this process.
    pub registration: Registration,
    /// The row to write.
    pub new: NewRun,
    /// Its graph.
    pub registered: Arc<Registered>,
    handle: RunHandle,
    kwargs: Kwargs,
}

/// How often a run that resumes interrupts is created anew because its thread has changed meanwhile.
const RESUME_TRIES: usize = 8;

impl PreparedRun {
    /// Records that the event of a message of the input is written already.
    pub fn announce(&mut self, message: &Arc<str>, number: i64) -> Result<(), Error> {
        let announced = self.kwargs.announced.get_or_insert_default();
        announced.insert(message.clone(), Value::Int(number));
        self.new.kwargs = stored(&self.kwargs)?;
        Ok(())
    }
}

impl Service {
    /// Creates a run on `thread`, or on a new one that is deleted with the run. It is durable when
    /// this returns, and already running if its slot was free.
    ///
    /// # Errors
    /// No such thread, assistant or checkpoint; the slot is taken and the strategy is `reject`;
    /// the storage failed.
    pub async fn create(
        &self,
        thread: Option<ThreadId>,
        request: request::Run,
        watch: bool,
    ) -> Result<SubmittedRun, Error> {
        if request.open_interrupts.is_empty() {
            self.create_once(thread, request, watch).await
        } else {
            // On the heap, because its copy of the request would make the future of every creation larger.
            Box::pin(self.create_resuming(thread, request, watch)).await
        }
    }

    /// Creates a run that resumes interrupts: anew while its thread changes.
    async fn create_resuming(
        &self,
        thread: Option<ThreadId>,
        request: request::Run,
        watch: bool,
    ) -> Result<SubmittedRun, Error> {
        for _ in 1..RESUME_TRIES {
            match self.create_once(thread, request.clone(), watch).await {
                Err(Error::Changed) => {}
                created => return created,
            }
        }
        Err(Error::Changed)
    }

    async fn create_once(
        &self,
        thread: Option<ThreadId>,
        mut request: request::Run,
        watch: bool,
    ) -> Result<SubmittedRun, Error> {
        let temporary = thread.is_none() && request.on_completion == OnCompletion::Delete;
        let run = request.id.unwrap_or_else(RunId::mint);
        // A repeated request must find the thread.
        let new_id = request.id.map(ThreadId::of_run);
        let on = thread.or(new_id).unwrap_or_else(ThreadId::mint);
        let (ids, resolved) = self.ids(run, on, &mut request).await?;
        if let Some(command) = &request.command {
            request::Command::parse(command).map_err(Error::Invalid)?;
        }
        let placement = match thread {
            Some(thread) => self.choose_placement(thread, &request).await?,
            None => RunPlacement::default(),
        };
        // What refuses the request by itself does so before others are kept waiting.
        self.check_contents(&ids, &resolved, &request).await?;
        // Before anything is read or locked that others change or want, since it may take time.
        let strategy = request.multitask_strategy;
        let leads = self.close_leads(&request.requester.access, on, strategy);
        let _leads = leads.await;
        let unchanged_since = self.last_event(thread, &request).await?;
        // Until the run is written: of those that resume at the same time at this process one is accepted. Those at
        // others change the thread, so that the run is not created.
        let _lock = match thread.filter(|_| resumes(&request)) {
            Some(thread) => self.lock_resume(thread, placement.pin, &request).await?,
            None => None,
        };
        self.check_interrupts(thread, &request).await?;
        let requested = request.address.root();
        // A run is one of the root graph, wherever its address was.
        request.address.checkpoint = placement.checkpoint;
        request.address.ns = "".into();
        request.address.map = None;
        let mut prepared = self.build(&ids, &resolved, &request, temporary)?;
        prepared.new.create_thread = self.new_thread(&request, &ids, thread, temporary);
        prepared.new.address = placement.checkpoint;
        prepared.new.branch = placement.pin;
        prepared.new.unchanged_since = unchanged_since;
        let (handle, registration) = (prepared.handle, prepared.registration);
        let frames = watch.then(|| self.follow_from_start(&handle.publisher));
        let created = if placement.changes_tree() {
            let memory = self.change_memory(&request.requester);
            self.create_placed(prepared.new, &placement, &memory).await
        } else {
            let created = self.shared.parts.runs.create_run(prepared.new).await;
            created.map_err(Error::from)
        };
        match created {
            Ok(Created::NoThread) => Err(placement.missing()),
            Ok(created) => {
                let row = self.launch(&request, registration, created).await?;
                if !row.temporary {
                    request
                        .requester
                        .access
                        .at(Level::Writer)
                        .record_grant(row.thread);
                }
                Ok(SubmittedRun {
                    row,
                    handle,
                    frames,
                })
            }
            // The request named it, and it was pruned since it was looked up.
            Err(Error::Storage(checkpoint::Error::Pruned(id))) if requested == Some(id) => {
                Err(Error::NoCheckpoint(id))
            }
            Err(error) => Err(error),
        }
    }

    /// Prepares a run on an existing thread, for a transaction that has more in it.
    /// [`launch`](Self::launch) follows when it is written.
    pub(crate) async fn prepare(
        &self,
        thread: ThreadId,
        request: &mut request::Run,
    ) -> Result<PreparedRun, Error> {
        let run = request.id.unwrap_or_else(RunId::mint);
        let (ids, resolved) = self.ids(run, thread, request).await?;
        self.check_contents(&ids, &resolved, request).await?;
        self.build(&ids, &resolved, request, false)
    }

    /// The one builder of a new run whose [contents are checked](Self::check_contents): its row, its stream and its handle.
    fn build(
        &self,
        ids: &Ids,
        resolved: &Resolved,
        request: &request::Run,
        temporary: bool,
    ) -> Result<PreparedRun, Error> {
        let registered = &resolved.registered;
        let metadata = run_metadata(request, ids, &resolved.metadata, temporary);
        let known = context_properties(&registered.graph);
        let kwargs = Kwargs::of(request, ids, &metadata, known, temporary);
        let mut new = NewRun {
            id: ids.run,
            thread: ids.thread,
            create_thread: None,
            assistant: ids.assistant,
            metadata,
            kwargs: stored(&kwargs)?,
            address: None,
            branch: None,
            strategy: request.multitask_strategy,
            after: request.after,
            temporary,
            claim: None,
            own_metadata: (!temporary).then(|| own_keys(request)),
            thread_metadata: thread_metadata(ids),
            thread_config: thread_config(
                request,
                identity::user_of(resolved.config()),
                self.shared.parts.metadata,
            ),
            inherits_user: !ids.names_user,
            max_queued: self.inner.options.max_queued,
            access: request.requester.access.at(Level::Writer),
            unchanged_since: None,
        };
        let publisher = Publisher::new(stream::Options {
            modes: request.stream_mode.clone(),
            temporary,
            principal: request.requester.access.principal().cloned(),
            subgraphs: request.stream_subgraphs,
            resumable: request.stream_resumable,
            graph_name: registered.name.clone(),
            ..stream::Options::new(ids.run, ids.thread, registered.graph.clone())
        });
        let principal = request.requester.access.principal();
        let (registration, handle) = self.register(&publisher, principal.cloned())?;
        if self.reserve_slot(ids.run, ids.thread, principal, &new.kwargs) {
            new.claim = Some(self.shared.worker);
        }
        Ok(PreparedRun {
            registration,
            new,
            registered: registered.clone(),
            handle,
            kwargs,
        })
    }

    /// Starts or queues a run that is durable now; one that was refused leaves nothing here.
    pub(crate) async fn launch(
        &self,
        request: &request::Run,
        registration: Registration,
        created: Created,
    ) -> Result<Run, Error> {
        let run = registration.run();
        let (row, slot) = match created {
            Created::Started(row, slot) => (*row, Some(slot)),
            Created::Queued(row) => (*row, None),
            Created::Denied(denied) => {
                return Err(denied_creation(denied, request.if_not_exists));
            }
            refused => return Err(refusal(run, &refused).unwrap_or(Error::Busy)),
        };
        registration.keep();
        self.cancel_superseded(request, &row).await;
        match slot {
            Some(slot) => self.execute(row.clone(), slot, Start::Created),
            None => {
                self.begin_to_wait(run);
                self.release_slot(run);
                self.wake_queue(row.thread);
            }
        }
        Ok(row)
    }

    /// Checks that the client may create a run on a thread that exists, before it learns or locks
    /// anything there. The transaction that creates the run checks it again.
    pub(super) async fn authorize_creation(
        &self,
        request: &request::Run,
        thread: ThreadId,
    ) -> Result<(), Error> {
        let Some(principal) = request.requester.access.principal() else {
            return Ok(());
        };
        let level = self
            .shared
            .parts
            .tree
            .level_on_thread(thread, principal.clone());
        let access = request.requester.access.at(Level::Writer);
        let level = access.check(thread, level.await?);
        level.map_err(|denied| denied_creation(denied, request.if_not_exists))
    }

    /// The memory of the states that are read before a run is created.
    fn change_memory(&self, requester: &Requester) -> ChangeMemory {
        self.shared.states.changed_by(requester.payer.clone())
    }

    /// The interrupts that are open at the head of a thread.
    ///
    /// # Errors
    /// No such thread, or none of the client's; there is no memory for the head; or the storage failed.
    pub async fn open_interrupts(
        &self,
        requester: &Requester,
        thread: ThreadId,
    ) -> Result<Vec<Arc<str>>, Error> {
        self.authorize(&requester.access, thread).await?;
        let thread = self.shared.thread(thread).await?;
        if thread.outcome == Outcome::Idle {
            // No node waits, so that the state need not be loaded.
            return Ok(vec![]);
        }
        let Some(weighed) = self.shared.weighed_head(&thread, BATCH_BYTES).await? else {
            return Ok(vec![]);
        };
        let memory = self.change_memory(requester);
        memory.take(weighed.weight())?;
        let head = self.shared.read_head(&thread, &weighed, None).await?;
        let lists = head.interrupts.values();
        let open = lists.flat_map(|list| list.as_list().unwrap_or_default());
        let ids = open.filter_map(|interrupt| interrupt.get("id")?.as_str());
        Ok(ids.map(Arc::from).collect())
    }

    /// The number of the last event of a thread, before the interrupts that a run resumes are looked up; `None` for
    /// a run that names none.
    async fn last_event(
        &self,
        thread: Option<ThreadId>,
        request: &request::Run,
    ) -> Result<Option<i64>, Error> {
        let Some(thread) = thread.filter(|_| !request.open_interrupts.is_empty()) else {
            return Ok(None);
        };
        let mut reader = self.shared.parts.tree.reader().await?;
        let row = reader.thread_row(thread).await?;
        Ok(row.map(|row| row.last_event_number))
    }

    /// Refuses a run that resumes interrupts of which one is not open any more. Under the lock of
    /// those who resume, so that of two at the same time one is refused.
    async fn check_interrupts(
        &self,
        thread: Option<ThreadId>,
        request: &request::Run,
    ) -> Result<(), Error> {
        let Some(first) = request.open_interrupts.first() else {
            return Ok(());
        };
        let thread = thread.ok_or_else(|| Error::NoInterrupt(first.clone()))?;
        let open = self.open_interrupts(&request.requester, thread).await?;
        let gone = request.open_interrupts.iter().find(|id| !open.contains(id));
        gone.map_or(Ok(()), |id| Err(Error::NoInterrupt(id.clone())))
    }

    /// Locks the tree of a thread until a run that resumes a branch is written, the active branch
    /// without `branch`; there is nothing to lock for a thread that does not exist yet.
    ///
    /// # Errors
    /// 409 `head_conflict`: a run that resumes the branch is pending or running. Or other runs are created here all
    /// the time.
    async fn lock_resume(
        &self,
        thread: ThreadId,
        branch: Option<BranchId>,
        request: &request::Run,
    ) -> Result<Option<Turn<TreeId>>, Error> {
        let parts = &self.shared.parts;
        let Some(row) = parts.tree.reader().await?.thread_row(thread).await? else {
            return Ok(None);
        };
        self.authorize_creation(request, thread).await?;
        let mut known = HashSet::new();
        for _ in 0..RESUME_TRIES {
            let lock = self.shared.turn(row.tree).await?;
            let mut reader = parts.tree.reader().await?;
            let row = resolve::thread(&mut *reader, thread).await?;
            let mut open = reader.open_runs(row.tree, thread).await?;
            drop(reader);
            let of = |pinned: Option<BranchId>| pinned.or(row.active_branch);
            open.retain(|open| of(open.branch) == of(branch) && !known.contains(&open.id));
            if open.is_empty() {
                return Ok(Some(lock));
            }
            // A look-up may wait for memory: others change the tree meanwhile.
            drop(lock);
            for OpenRun { id, .. } in open {
                known.insert(id);
                let resumes = self
                    .shared
                    .of_request(thread, id, |_, kwargs| kwargs.resumes());
                if resumes.await?.unwrap_or(false) {
                    return Err(tree::Error::conflict(
                        "head_conflict",
                        "Another answer is being given here: wait for its run and look at the state",
                    )
                    .into());
                }
            }
        }
        Err(Error::Changed)
    }
}

/// Why a run was not created; `None` if it was.
pub(crate) fn refusal(run: RunId, created: &Created) -> Option<Error> {
    match created {
        Created::Busy => Some(Error::Busy),
        Created::NoThread => Some(Error::NoThreadOrAssistant),
        Created::Exists => Some(Error::RunExists(run)),
        Created::QueueFull(most) => Some(Error::QueueFull(*most)),
        Created::Changed => Some(Error::Changed),
        Created::Denied(denied) => Some(denied_creation(*denied, IfNotExists::Reject)),
        Created::Started(..) | Created::Queued(_) => None,
    }
}

/// Why a client may not create a run: a thread that it does not see is one that is not there, or the id is taken of
/// one that was to come into being with the run.
fn denied_creation(denied: Denied, if_not_exists: IfNotExists) -> Error {
    match denied.foreign() {
        Some(thread) if if_not_exists == IfNotExists::Create => Error::ThreadTaken(thread),
        Some(_) => Error::NoThreadOrAssistant,
        None => denied.into(),
    }
}

fn stored(kwargs: &Kwargs) -> Result<Value, Error> {
    kwargs
        .to_value()
        .map_err(|error| Error::Invalid(error.to_string()))
}

/// Whether a run resumes an interrupt and queues behind others that do.
fn resumes(request: &request::Run) -> bool {
    let command = request.command.as_ref();
    let value = command.and_then(|command| command.get("resume"));
    let enqueues = request.multitask_strategy == Strategy::Enqueue;
    enqueues && value.is_some_and(|value| !value.is_null())
}

impl Service {
    /// The thread that comes into being with a run, if one does. Unless it goes with the run it lives as long as the
    /// settings say.
    fn new_thread(
        &self,
        request: &request::Run,
        ids: &Ids,
        thread: Option<ThreadId>,
        temporary: bool,
    ) -> Option<NewThread> {
        let creates = thread.is_none() || request.if_not_exists == IfNotExists::Create;
        creates.then(|| {
            let mut metadata = thread_metadata(ids);
            if let Some(Value::Map(own)) = request.config.get("metadata") {
                metadata.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            let own = request.metadata.iter();
            metadata.extend(own.map(|(key, value)| (key.clone(), value.clone())));
            if let Some(cron) = request.cron {
                metadata.insert("cron_id", cron.to_string());
            }
            NewThread {
                id: ids.thread,
                metadata,
                owner: request.requester.principal.to_string(),
                if_exists: IfExists::DoNothing,
                ttl: self.inner.options.thread_ttl.filter(|_| !temporary),
            }
        })
    }
}
