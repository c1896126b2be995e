//! The commands that start runs: `run.start` and `input.respond`.

use std::sync::Arc;

use super::message::{Code, Fault};
use crate::{
    http::{
        parse::{fields::Fields, ids},
        runs::{put_address, put_config},
        server::{Call, Error},
    },
    id::{RunId, ThreadId},
    message::blocks,
    runs::{
        self, Strategy,
        request::{Command, IfNotExists, Requester, Run, Target},
    },
    stream::protocol::MODES,
    threads,
    tree::{self, members::Level, metadata::Limits},
    value::{Map, Value},
};

/// Names under which the strategy is sent.
const STRATEGY: [&str; 2] = ["multitaskStrategy", "multitask_strategy"];

/// Starts runs on a thread on behalf of a client.
#[derive(Clone)]
pub struct Starter {
    runs: runs::Service,
    threads: threads::Service,
    thread: ThreadId,
    requester: Requester,
    /// How much metadata runs may have.
    metadata: Limits,
    /// The id of the run, from the idempotency key of the request.
    id: Option<RunId>,
    /// The run that an earlier attempt of the request may have created.
    earlier: Option<RunId>,
}

impl Starter {
    pub fn new(call: &Call, thread: ThreadId) -> Self {
        Self {
            runs: call.runs().clone(),
            threads: call.threads().at(Level::Writer),
            thread,
            metadata: call.shared.options.metadata,
            id: call.run_id,
            earlier: call.earlier_run(),
            requester: Requester {
                access: call.access.at(Level::Writer),
                ..call.requester()
            },
        }
    }

    /// `run.start`: creates the thread if it is missing. While an interrupt is open, an input resumes
    /// it.
    pub async fn start(&self, params: &Value) -> Result<Map, Fault> {
        if let Some(run) = self.created_before().await? {
            return Ok(started(run));
        }
        let mut run = self.read_start(params).map_err(Fault::argument)?;
        let is_addressed = run.address != runs::request::Address::default();
        let open = if run.input.is_none() || is_addressed {
            vec![]
        } else {
            self.open_interrupts().await?
        };
        if !open.is_empty() {
            let resume = run.input.clone().map(|input| ("resume".into(), input));
            let mut resuming = run.clone();
            resuming.command = Some(Value::map(resume.into_iter().collect()));
            resuming.open_interrupts = open;
            match self.create(resuming).await {
                // Somebody else resumed it meanwhile: this is the input of the next run.
                Err(error) if is_resumed(&error) => {}
                created => return Ok(created?),
            }
        }
        run.if_not_exists = IfNotExists::Create;
        self.create(run).await.map_err(|error| match error {
            // The client has not said whether the thread is there.
            runs::Error::ThreadTaken(_) => runs::Error::NoThreadOrAssistant.into(),
            error => error.into(),
        })
    }

    /// `input.respond`: resumes one interrupt, or several of a list.
    pub async fn respond(&self, params: &Value) -> Result<Map, Fault> {
        if self.created_before().await?.is_some() {
            return Ok(Map::new());
        }
        let responses = responses(params)?;
        let fields = Fields::of(params).map_err(Fault::argument)?;
        let first = responses.keys().next().cloned().unwrap_or_default();
        let mut command = Map::from([("resume", Value::map(responses.clone()))]);
        for name in ["update", "goto"] {
            if let Some(value) = fields.any(name) {
                command.insert(name, value.clone());
            }
        }
        let command = Value::map(command);
        Command::parse(&command).map_err(|reason| Fault::new(Code::InvalidArgument, reason))?;
        let assistant = match self.threads.assistant_of(self.thread).await {
            Ok(assistant) => assistant,
            // What is not there waits for nothing.
            Err(threads::Error::NoThread(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let assistant = assistant.ok_or_else(|| Fault::no_interrupt(&first))?;
        let mut run = self.run_of(assistant);
        put_config(&mut run, &fields, self.metadata).map_err(Fault::argument)?;
        run.command = Some(command);
        run.open_interrupts = responses.keys().cloned().collect();
        match self.create(run).await {
            Ok(_) => Ok(Map::new()),
            Err(error) if is_resumed(&error) => Err(Fault::no_interrupt(&first)),
            Err(runs::Error::NoThreadOrAssistant) => Err(Fault::no_interrupt(&first)),
            Err(error) => Err(error.into()),
        }
    }

    async fn create(&self, run: Run) -> Result<Map, runs::Error> {
        let created = self.runs.create(Some(self.thread), run, false).await?;
        self.threads.notify(self.thread);
        Ok(started(created.row.id))
    }

    /// The run, if an earlier attempt of the request has created it.
    async fn created_before(&self) -> Result<Option<RunId>, Fault> {
        let Some(run) = self.earlier else {
            return Ok(None);
        };
        let thread = self.thread;
        let access = &self.requester.access;
        match self.runs.visible_row(access, Target { thread, run }).await {
            Ok(row) => Ok(row.map(|row| row.id)),
            Err(runs::Error::NoThread(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The interrupts that are open on the thread; none on one that does not exist yet.
    async fn open_interrupts(&self) -> Result<Vec<Arc<str>>, Fault> {
        let open = self
            .runs
            .open_interrupts(&self.requester, self.thread)
            .await;
        match open {
            Err(runs::Error::NoThread(_)) => Ok(vec![]),
            open => Ok(open?),
        }
    }

    fn read_start(&self, params: &Value) -> Result<Run, Error> {
        let fields = Fields::of(params)?;
        let assistant = fields.text("assistant_id")?;
        let assistant =
            assistant.ok_or_else(|| Error::invalid("run.start requires an assistant_id."))?;
        let mut run = self.run_of(ids::assistant(assistant));
        run.input = fields.any("input").map(classic);
        put_config(&mut run, &fields, self.metadata)?;
        put_address(&mut run, &fields)?;
        for name in STRATEGY {
            if let Some(strategy) = fields.word(name, Strategy::ALL)? {
                run.multitask_strategy = strategy;
            }
        }
        Ok(run)
    }

    fn run_of(&self, assistant: runs::request::Assistant) -> Run {
        let mut run = Run::of(assistant, self.requester.clone());
        run.id = self.id;
        run.stream_mode = MODES.to_vec();
        run.stream_subgraphs = true;
        run.stream_resumable = true;
        run.event_streaming = true;
        run
    }
}

fn started(run: RunId) -> Map {
    Map::from([("run_id", run.to_string().into())])
}

/// Whether a run was refused because what it resumes was resumed by another one, or is about to be.
fn is_resumed(error: &runs::Error) -> bool {
    matches!(
        error,
        runs::Error::NoInterrupt(_)
            | runs::Error::Tree(tree::Error::Refused {
                code: "head_conflict",
                ..
            })
    )
}

/// The responses of `{interrupt_id, response}` or `{responses: [{interrupt_id, response}]}`, by
/// interrupt.
fn responses(params: &Value) -> Result<Map, Fault> {
    let fields = Fields::of(params).map_err(Fault::argument)?;
    let one = |entry: &Value| -> Result<(Arc<str>, Value), Fault> {
        let fields = Fields::of(entry).map_err(Fault::argument)?;
        let id = fields.text("interrupt_id").map_err(Fault::argument)?;
        let id = id.filter(|id| !id.is_empty()).ok_or_else(|| {
            let message = "input.respond requires an interrupt_id.";
            Fault::new(Code::InvalidArgument, message)
        })?;
        Ok((
            id.clone(),
            entry.get("response").cloned().unwrap_or_default(),
        ))
    };
    let Some(list) = fields.list("responses").map_err(Fault::argument)? else {
        return Ok([one(params)?].into_iter().collect());
    };
    if list.is_empty() {
        let message = "`responses` must have at least one entry";
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    let mut all = Map::with_capacity(list.len());
    for entry in list {
        let (id, response) = one(entry)?;
        if all.insert(id.clone(), response).is_some() {
            let message = format!("`responses` has the interrupt {id} twice");
            return Err(Fault::new(Code::InvalidArgument, message));
        }
    }
    Ok(all)
}

/// An input in whose lists messages with content blocks, as this protocol shows them, have the
/// classic form.
fn classic(input: &Value) -> Value {
    let Value::Map(map) = input else {
        return input.clone();
    };
    let of_message = |item: &Value| match item {
        Value::Map(message) => Value::map(blocks::to_classic(message)),
        other => other.clone(),
    };
    let channels = map.iter().map(|(name, value)| {
        let value = match value {
            Value::List(items) => items.iter().map(of_message).collect(),
            other => other.clone(),
        };
        (name.clone(), value)
    });
    Value::map(channels.collect())
}
