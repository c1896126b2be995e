//! Tasks: a run of a thread together with the runs that resumed its interrupts, and how they are read.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use futures::TryStreamExt;

mod shown;

use self::shown::id_of;
use super::{
    agent::Agent,
    codes::NO_TASK,
    generation::{Artifact, Generation, Message, State, Status},
};
use crate::{
    engine::Interrupt,
    http::{
        json_rpc::Failure,
        server::{Call, Error},
    },
    id::{CheckpointId, RunId, ThreadId},
    runs::{
        self, Listing, Run,
        request::Target,
        service::RequestPart,
        shared::memory::{ReadMemory, ReadingMemory},
    },
    threads::{self, request::View},
    tree::members::Access,
    value::{Map, Value},
};

/// The field of a run's metadata that names the first run of its task.
pub const FIRST_RUN: &str = "a2a_task";
/// The field of a run's metadata that names the request which resumed a task, by the id from its idempotency key.
pub const REQUEST: &str = "a2a_request";
/// How often one task can be resumed.
const RESUMED_MAX: usize = 1000;
/// The most runs of a context whose tasks are listed: the newest ones.
const LISTED_MAX: usize = 1000;

/// A task by the thread and its first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub thread: ThreadId,
    pub run: RunId,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.thread, self.run)
    }
}

impl Key {
    /// Reads an id as clients know it.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let parsed = text.split_once(':').and_then(|(thread, run)| {
            let (thread, run) = (thread.parse().ok()?, run.parse().ok()?);
            Some(Self { thread, run })
        });
        parsed.ok_or_else(|| missing(text))
    }

    /// That of the task that a run belongs to.
    fn of(thread: ThreadId, run: &Run) -> Self {
        let first = run.metadata.get(FIRST_RUN).and_then(Value::as_str);
        let first = first.and_then(|first| first.parse().ok());
        Self {
            thread,
            run: first.unwrap_or(run.id),
        }
    }

    pub fn context(self) -> String {
        self.thread.to_string()
    }
}

/// There is no such task.
pub fn missing(id: &str) -> Failure {
    let id: String = id.chars().take(80).collect();
    Failure::new(NO_TASK, format!("Task not found: {id}"))
}

/// What of a context's history a task shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it, up to the task's end.
    Context,
    /// What the task has added.
    Task,
}

impl Scope {
    pub fn parse(header: Option<&str>) -> Result<Self, Failure> {
        match header {
            None | Some("context") => Ok(Self::Context),
            Some("task") => Ok(Self::Task),
            Some(_) => Err(Failure::params(
                "LangGraph-A2A-History-Scope must be context or task",
            )),
        }
    }
}

/// A task with everything that is shown of it.
#[derive(Clone, Debug)]
pub struct Task {
    pub key: Key,
    pub status: Status,
    pub artifacts: Vec<Artifact>,
    pub history: Vec<Message>,
    /// What was reserved for the state that it is made of.
    pub memory: Option<ReadingMemory>,
}

/// The runs of a task.
pub struct Runs {
    pub first: Run,
    /// The one by which it stands as it does.
    pub last: Run,
    /// How many resumed it.
    pub resumed: usize,
}

/// The tasks of an agent, as a client sees them.
#[derive(Clone)]
pub struct Tasks {
    pub agent: Agent,
    pub generation: Generation,
    scope: Scope,
    runs: runs::Service,
    threads: threads::Service,
    access: Access,
    /// The memory of large states that are read for the response.
    memory: ReadMemory,
}

impl Tasks {
    pub fn new(call: &Call, agent: Agent, generation: Generation, scope: Scope) -> Self {
        Self {
            agent,
            generation,
            scope,
            runs: call.runs().clone(),
            threads: call.threads(),
            access: call.access.clone(),
            memory: call.read_memory(),
        }
    }

    /// The same for a response that is not refused for want of memory: it waits for it.
    pub fn patient(self) -> Self {
        let memory = self.memory.apart();
        Self { memory, ..self }
    }

    /// A run with its request, which takes memory.
    async fn run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, runs::Error> {
        let target = Target { thread, run };
        let run = self.runs.visible_run(&self.access, target, &self.memory);
        run.await
    }

    /// The runs of a task of this agent; `None` without such a task that the client may see.
    pub async fn runs_of(&self, key: Key) -> Result<Option<Runs>, Error> {
        let first = match self.run(key.thread, key.run).await {
            Ok(Some(run)) if run.assistant == self.agent.id => run,
            Ok(_) | Err(runs::Error::NoThread(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut resumed = 0;
        while resumed < RESUMED_MAX {
            let next = key.run.resuming(resumed + 1);
            if self.runs.find_row(key.thread, next).await?.is_none() {
                break;
            }
            resumed += 1;
        }
        let last = match resumed {
            0 => None,
            nth => self.run(key.thread, key.run.resuming(nth)).await?,
        };
        let last = last.unwrap_or_else(|| first.clone());
        Ok(Some(Runs {
            first,
            last,
            resumed,
        }))
    }

    /// The newest runs of a context, at most so many, without their requests.
    async fn listed(
        &self,
        thread: ThreadId,
        limit: usize,
    ) -> Result<Listing<Run, runs::Error>, runs::Error> {
        let part = RequestPart::Nothing;
        self.runs
            .list(&self.access, thread, None, (limit, 0), part)
            .await
    }

    /// The runs of the task that the newest run of a context belongs to; `None` without runs.
    pub async fn newest(&self, thread: ThreadId) -> Result<Option<(Key, Runs)>, Error> {
        let page = self.listed(thread, 1).await?;
        let newest: Vec<Run> = page.items.try_collect().await?;
        let Some(newest) = newest.first() else {
            return Ok(None);
        };
        let Some(newest) = self.run(thread, newest.id).await? else {
            return Ok(None);
        };
        let key = Key::of(thread, &newest);
        Ok(self.runs_of(key).await?.map(|runs| (key, runs)))
    }

    /// The run that a request with this id from its idempotency key has created in a context, with its task.
    pub async fn run_of_request(
        &self,
        thread: ThreadId,
        request: RunId,
    ) -> Result<Option<(Key, Run)>, Error> {
        let runs: Vec<RunId> = match self.listed(thread, LISTED_MAX).await {
            Ok(page) => page.items.map_ok(|run| run.id).try_collect().await?,
            Err(runs::Error::NoThread(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Of the others only those can be it that resumed a task.
        let all: HashSet<RunId> = runs.iter().copied().collect();
        let resumed = runs.iter().flat_map(|first| {
            let later = (1..).map(|nth| first.resuming(nth));
            later.take_while(|run| all.contains(run))
        });
        let own = all.contains(&request).then_some(request);
        let name = request.to_string();
        for id in own.into_iter().chain(resumed) {
            let Some(run) = self.run(thread, id).await? else {
                continue;
            };
            let named = run.metadata.get(REQUEST).and_then(Value::as_str);
            if id == request || named == Some(&name) {
                return Ok(Some((Key::of(thread, &run), run)));
            }
        }
        Ok(None)
    }

    /// A task with everything that is shown of it; `None` without such a task that the client may see.
    pub async fn load(&self, key: Key) -> Result<Option<Task>, Error> {
        let Some(runs) = self.runs_of(key).await? else {
            return Ok(None);
        };
        let last = &runs.last;
        let mut view = self.threads.get_patiently(key.thread).await?;
        let open = open_of(&view, last);
        // The states are read one after the other: nothing stays in memory of those before.
        let head = match last.last_checkpoint {
            Some(_) => None,
            None => Some(std::mem::take(&mut view.values)),
        };
        drop(view);
        let before = match runs.first.base {
            Some(base) => self.messages_at(&runs.first, base).await?,
            None => HashSet::new(),
        };
        let (values, memory) = match last.last_checkpoint {
            Some(at) => self.runs.values_at(last, at, &self.memory).await?,
            None => (head.unwrap_or_default(), None),
        };
        let history = self.history(key, &values, &before);
        Ok(Some(Task {
            key,
            status: self.status(key, last, &open),
            artifacts: self.artifacts(last, &open, &values, &history),
            history,
            memory: memory.map(Into::into),
        }))
    }

    /// The state of a task, where its context is known; `None` without such a task that the client may see.
    pub async fn state_of(&self, key: Key, view: &View) -> Result<Option<State>, Error> {
        let runs = self.runs_of(key).await?;
        Ok(runs.map(|runs| {
            let open = open_of(view, &runs.last);
            self.status(key, &runs.last, &open).state
        }))
    }

    /// The ids of the messages at a checkpoint of a run's branch.
    async fn messages_at(&self, run: &Run, at: CheckpointId) -> Result<HashSet<Arc<str>>, Error> {
        let (values, _memory) = self.runs.values_at(run, at, &self.memory).await?;
        Ok(self.messages(&values).iter().filter_map(id_of).collect())
    }

    /// The messages in some values.
    fn messages<'a>(&self, values: &'a Value) -> &'a [Value] {
        let channel = self.agent.registered.graph.message_channel();
        let list = channel.and_then(|channel| values.get(channel)?.as_list());
        list.unwrap_or_default()
    }

    /// The tasks of a context, newest first, without their histories and artifacts.
    pub async fn of_context(&self, thread: ThreadId) -> Result<Vec<Task>, Error> {
        let view = match self.threads.get_patiently(thread).await {
            Ok(view) => threads::request::View {
                values: Value::Null,
                ..view
            },
            Err(threads::Error::NoThread(_)) => return Ok(vec![]),
            Err(error) => return Err(error.into()),
        };
        let page = self.listed(thread, LISTED_MAX).await?;
        let all: Vec<Run> = page.items.try_collect().await?;
        let by_id: HashMap<RunId, &Run> = all.iter().map(|run| (run.id, run)).collect();
        let mut others = HashSet::new();
        let mut tasks = vec![];
        // The first run of a task is older than those that resumed it.
        for first in all
            .iter()
            .rev()
            .filter(|run| run.assistant == self.agent.id)
        {
            if others.contains(&first.id) {
                continue;
            }
            let later = (1..).map_while(|nth| by_id.get(&first.id.resuming(nth)));
            let mut last = first;
            for run in later {
                others.insert(run.id);
                last = *run;
            }
            let key = Key {
                thread,
                run: first.id,
            };
            tasks.push(Task {
                key,
                status: self.status(key, last, &open_of(&view, last)),
                artifacts: vec![],
                history: vec![],
                memory: None,
            });
        }
        tasks.reverse();
        Ok(tasks)
    }
}

/// The open interrupts of a thread, out of those by task.
pub fn interrupts(by_task: &Map) -> Vec<Interrupt> {
    let lists = by_task.values().filter_map(Value::as_list);
    lists.flatten().filter_map(Interrupt::from_value).collect()
}

/// The open interrupts of a task. Those of a context are those of its head, and the task's while the head is what
/// it left.
fn open_of(view: &View, last: &Run) -> Vec<Interrupt> {
    if view.row.head == last.last_checkpoint {
        interrupts(&view.interrupts)
    } else {
        vec![]
    }
}
