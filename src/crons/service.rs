//! What clients do with crons, and which of them are due.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    Change, Clock, CronRow, Error, Schedule, Store,
    change::put_id,
    request::{Columns, Filter, OnRunCompleted, Search},
    store::{CreatedCron, DueCron},
};
use crate::{
    checkpoint,
    contention::{Lines, Patience},
    id::{AssistantId, CronId, ThreadId},
    time::Timestamp,
    tree::{members::Access, metadata},
    value::{Map, Value},
};

/// How often a change is tried that others, or a due time, interfered with.
const ATTEMPTS: usize = 20;

/// Settings of crons.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether this process creates the runs of crons that are due.
    pub fires: bool,
    /// Most bytes of the payload and metadata of one, as JSON.
    pub bytes: usize,
    /// How much metadata one may have.
    pub metadata: metadata::Limits,
    /// Most of one principal.
    pub most: usize,
    /// Who has a key, if keys are needed: the crons of all others make no runs.
    pub principals: Option<BTreeSet<Arc<str>>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fires: true,
            bytes: 256 << 10,
            metadata: metadata::Limits::default(),
            most: 50_000,
            principals: None,
        }
    }
}

/// A cron to create.
#[derive(Clone, Debug)]
pub struct NewCron {
    /// Its id: what has it was created by an earlier attempt of the request. `None` for a new one.
    pub id_of_key: Option<CronId>,
    /// The principal whom it is to belong to.
    pub owner: Arc<str>,
    /// On whose behalf it is created, with the level that runs on its thread take.
    pub access: Access,
    /// The assistant of its runs.
    pub assistant: AssistantId,
    /// The thread of its runs; without one each has a new thread.
    pub thread: Option<ThreadId>,
    /// Its fields; it has a schedule.
    pub content: Change,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Clock,
    options: Options,
    turns: Lines<CronId>,
    /// Orphans were told of.
    has_warned: AtomicBool,
}

/// The crons of this server. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

impl Service {
    /// The crons in `store`.
    pub fn new(store: Arc<dyn Store>, options: Options, clock: Clock, patience: Patience) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                clock,
                options,
                turns: Lines::new(patience),
                has_warned: AtomicBool::new(false),
            }),
        }
    }

    /// Whether this process creates the runs of crons that are due.
    pub fn fires(&self) -> bool {
        self.inner.options.fires
    }

    /// Whether a cron belongs to nobody who could call this server: it was created without keys,
    /// and its runs would have every right, or the key of its principal is gone.
    pub fn is_orphan(&self, cron: &CronRow) -> bool {
        let Some(known) = &self.inner.options.principals else {
            return false;
        };
        let principal = cron.principal.as_ref();
        let is_orphan = !principal.is_some_and(|principal| known.contains(principal));
        if is_orphan && !self.inner.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                cron = %cron.id,
                principal = principal.map_or("", |principal| &**principal),
                "crons that were created without keys, or whose principal has no key any more, make \
                 no runs: the principals of BACKSTITCH_ADMINS can list and delete them"
            );
        }
        is_orphan
    }

    /// Creates a cron; returns it in the form clients see.
    ///
    /// # Errors
    /// Its schedule, zone or end makes no sense, there is no such thread or assistant, the client has
    /// too low a level or as many crons as it may have, it is too large, or the storage failed.
    pub async fn create(&self, new: NewCron) -> Result<Value, Error> {
        let content = new.content;
        let text = content.schedule.unwrap_or_default();
        let timezone = content.timezone.flatten();
        let schedule = Schedule::parse(&text, timezone.as_deref())?;
        let now = self.inner.clock.now(&*self.inner.store).await?;
        let next = schedule.after(now);
        let next = next.ok_or_else(|| Error::Never(text.clone()))?;
        let end_time = content.end_time.flatten();
        if end_time.is_some_and(|end| end <= now) {
            // An earlier attempt of the request may have created it before its end.
            let created = match new.id_of_key {
                Some(id) => {
                    self.inner
                        .store
                        .cron(id, new.access.principal().cloned())
                        .await?
                }
                None => None,
            };
            return created.map(|row| shown(&row)).ok_or(Error::Ended);
        }
        let id = new.id_of_key.unwrap_or_else(CronId::mint);
        let mut payload = content.payload;
        payload.retain(|_, value| !value.is_null());
        // Names of graphs stand for what they name now.
        payload.insert("assistant_id", new.assistant.to_string());
        put_id(&mut payload, id);
        let completed = content.on_run_completed.unwrap_or_default();
        let row = CronRow {
            id,
            owner: new.owner,
            principal: new.access.principal().cloned(),
            assistant: new.assistant,
            thread: new.thread,
            schedule: text,
            timezone,
            end_time,
            enabled: content.enabled.unwrap_or(true),
            on_run_completed: new.thread.is_none().then_some(completed),
            metadata: content.metadata,
            payload,
            next_run: end_time.is_none_or(|end| next <= end).then_some(next),
            last_run: None,
            created_at: now,
            updated_at: now,
        };
        self.ensure_small(&row)?;
        let most = self.inner.options.most;
        match self.inner.store.create_cron(row, new.access, most).await? {
            CreatedCron::Done(row) => Ok(shown(&row)),
            CreatedCron::NoThread => Err(new.thread.map_or(Error::NoCron(id), Error::NoThread)),
            CreatedCron::Denied(denied) => Err(match denied.foreign() {
                Some(thread) => Error::NoThread(thread),
                None => Error::Denied(denied),
            }),
            CreatedCron::NoAssistant => Err(Error::NoAssistant(new.assistant)),
            CreatedCron::Full => Err(Error::Full(most)),
        }
    }

    fn ensure_small(&self, row: &CronRow) -> Result<(), Error> {
        let bytes = |map: &Map| Value::map(map.clone()).to_json().len();
        let (bytes, limit) = (
            bytes(&row.payload) + bytes(&row.metadata),
            self.inner.options.bytes,
        );
        if bytes > limit {
            return Err(Error::TooLarge { bytes, limit });
        }
        Ok(())
    }

    /// A cron in the form clients see.
    ///
    /// # Errors
    /// No such cron, or the storage failed.
    pub async fn get(&self, viewer: Option<Arc<str>>, id: CronId) -> Result<Value, Error> {
        Ok(shown(&self.row(viewer, id).await?))
    }

    async fn row(&self, viewer: Option<Arc<str>>, id: CronId) -> Result<CronRow, Error> {
        let found = self.inner.store.cron(id, viewer).await?;
        found.ok_or(Error::NoCron(id))
    }

    /// Changes a cron, if `check` accepts what its runs would then request, told whether their input is a new
    /// one; returns it in the form clients see.
    ///
    /// # Errors
    /// No such cron, its schedule makes no sense, it is too large, `check` refuses it, or the storage
    /// failed.
    pub async fn change<E: From<Error>, C: Future<Output = Result<(), E>>>(
        &self,
        viewer: Option<Arc<str>>,
        id: CronId,
        change: &Change,
        check: impl Fn(CronRow, bool) -> C,
    ) -> Result<Value, E> {
        let storage = |error: checkpoint::Error| E::from(Error::from(error));
        let crowded = |_| E::from(Error::Conflict(id));
        let _turn = self.inner.turns.alone(id).await.map_err(crowded)?;
        for _ in 0..ATTEMPTS {
            let old = self.row(viewer.clone(), id).await?;
            let now = self.inner.clock.now(&*self.inner.store).await;
            let new = old.changed(change, now.map_err(storage)?, self.inner.options.metadata)?;
            self.ensure_small(&new)?;
            let has_new_input = new.payload.get("input") != old.payload.get("input");
            check(new.clone(), has_new_input).await?;
            let written = self.inner.store.replace_cron(old, new).await;
            if let Some(row) = written.map_err(storage)? {
                return Ok(shown(&row));
            }
        }
        Err(Error::Conflict(id).into())
    }

    /// Deletes a cron. Runs that it has created go on.
    ///
    /// # Errors
    /// No such cron, or the storage failed.
    pub async fn delete(&self, viewer: Option<Arc<str>>, id: CronId) -> Result<(), Error> {
        if self.inner.store.delete_cron(id, viewer).await? {
            Ok(())
        } else {
            Err(Error::NoCron(id))
        }
    }

    /// A page of crons: which ones, and how many bytes each has in these columns.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn search(
        &self,
        search: Search,
        columns: Columns,
    ) -> Result<Vec<(CronId, u64)>, Error> {
        Ok(self.inner.store.search_crons(search, columns).await?)
    }

    /// Crons in the form clients see, with these columns, in the order of their ids here; those that are gone are
    /// left out.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn shown(
        &self,
        viewer: Option<Arc<str>>,
        ids: Vec<CronId>,
        columns: Columns,
    ) -> Result<Vec<Value>, checkpoint::Error> {
        let store = &self.inner.store;
        let mut rows = store.crons(ids.clone(), viewer, columns).await?;
        rows.sort_by_cached_key(|row| ids.iter().position(|id| *id == row.id));
        Ok(rows.iter().map(shown).collect())
    }

    /// How many crons there are.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn count(&self, filter: Filter) -> Result<u64, Error> {
        Ok(self.inner.store.count_crons(filter).await?)
    }

    /// The time, and some of the crons that are due now, behind one of them.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn due(
        &self,
        after: Option<(Timestamp, CronId)>,
        limit: usize,
    ) -> Result<(Timestamp, Vec<DueCron>), checkpoint::Error> {
        let now = self.inner.clock.now(&*self.inner.store).await?;
        let due = self.inner.store.due_crons(now, after, limit).await?;
        Ok((now, due))
    }

    /// A cron, whosever it is.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn row_of(&self, id: CronId) -> Result<Option<CronRow>, checkpoint::Error> {
        self.inner.store.cron(id, None).await
    }
}

/// A cron in the form clients see.
fn shown(row: &CronRow) -> Value {
    let end_time = || Value::from(row.end_time.map(|time| time.to_string()));
    let principal = row.principal.clone().unwrap_or_default();
    let completed = row.on_run_completed.map(OnRunCompleted::as_str);
    let mut map = Map::with_capacity(14);
    map.insert("cron_id", row.id.to_string());
    map.insert("assistant_id", row.assistant.to_string());
    map.insert("thread_id", row.thread.map(|thread| thread.to_string()));
    map.insert("user_id", Value::Str(principal));
    // As the client wrote it.
    let written = row.payload.get("end_time").cloned();
    map.insert("end_time", written.unwrap_or_else(end_time));
    map.insert("schedule", row.schedule.clone());
    map.insert("timezone", row.timezone.clone());
    map.insert("payload", Value::map(row.payload.clone()));
    map.insert("next_run_date", row.next_run.map(short));
    map.insert("metadata", Value::map(row.metadata.clone()));
    map.insert("on_run_completed", completed.map(str::to_owned));
    map.insert("enabled", row.enabled);
    map.insert("created_at", row.created_at.to_string());
    map.insert("updated_at", row.updated_at.to_string());
    Value::map(map)
}

/// A due time: without the fraction of a second that no schedule has.
fn short(time: Timestamp) -> String {
    time.to_string().replace(".000000+", "+")
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}
