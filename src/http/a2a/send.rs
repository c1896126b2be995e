//! Sending a message: it begins a task, or resumes one that waits for it.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};

use super::{
    codes::UNSUPPORTED,
    generation::{Message, State, Status},
    incoming::Incoming,
    task::{FIRST_RUN, Key, REQUEST, Task, Tasks, interrupts, missing},
    updates::Updates,
};
use crate::{
    http::{
        json_rpc::{self, Failure, Request},
        runs::of_call,
        server::{Body, Call, Error, body, deferred::Ready, sse, withdrawal::until_withdrawn},
    },
    id::{RunId, ThreadId},
    runs::{
        self,
        request::{Assistant, IfNotExists, Mode, Run, Target},
    },
    stream::FrameSource,
    threads::{self, request::View},
    time::Timestamp,
    value,
};

/// A message that a run works on.
struct Begun {
    key: Key,
    /// Its stream, if it is to be watched.
    frames: Option<Box<dyn FrameSource>>,
    /// When it has ended.
    end: BoxFuture<'static, ()>,
    /// The task as it is at this moment.
    task: Task,
}

/// `message/send`: the task at its end, or at once if the client wants that.
pub async fn send(call: &Call, tasks: Tasks, request: Request) -> Result<Response<Body>, Failure> {
    let incoming = Incoming::parse(&request.params)?;
    let slot = call.stream_slot()?;
    let begun = begin(call, &tasks, &incoming, false).await?;
    let (id, generation) = (request.id, tasks.generation);
    if incoming.returns_at_once {
        let task = generation.task_or_message(tasks.show(&begun.task, incoming.history));
        return Ok(body::json(StatusCode::OK, &json_rpc::result(&id, task)));
    }
    let key = begun.key;
    // What was carried out is not refused any more, also not for want of memory. Of what was read so far the response
    // shows nothing.
    let read = call.states.lock().take();
    drop(read);
    let tasks = tasks.patient();
    let message = async move {
        begun.end.await;
        let task = match tasks.load(key).await {
            Ok(task) => task.ok_or_else(|| missing(&key.to_string())),
            Err(error) => Err(error.into()),
        };
        match task {
            Ok(task) => {
                let shown = tasks.show(&task, incoming.history);
                Ready {
                    value: json_rpc::result(&id, generation.task_or_message(shown)),
                    memory: task.memory,
                    breaks_off: false,
                }
            }
            Err(failure) => failure.into_message(&id).into(),
        }
    };
    let watch = call.runs().watch_access(&call.access, key.thread);
    Ok(until_withdrawn(
        json_rpc::respond_later(call, message.boxed(), slot).await,
        watch,
    ))
}

/// `message/stream`: the task, its updates, and how it ends.
pub async fn stream(
    call: &Call,
    tasks: Tasks,
    request: Request,
) -> Result<Response<Body>, Failure> {
    if call.run_id.is_some() {
        return Err(Failure::params(
            "A stream is not repeated for its Idempotency-Key: send the message without one, or without a stream",
        ));
    }
    let incoming = Incoming::parse(&request.params)?;
    let slot = call.stream_slot()?;
    let begun = begin(call, &tasks, &incoming, true).await?;
    let thread = begun.key.thread;
    let updates = Updates::new(request.id, tasks, begun.task, begun.frames, begun.end);
    let mut response = sse::respond(call, Box::new(updates), None, slot);
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    let watch = call.runs().watch_access(&call.access, thread);
    Ok(until_withdrawn(response, watch))
}

/// Creates the run of a message, unless an earlier attempt of the request has done so.
async fn begin(
    call: &Call,
    tasks: &Tasks,
    incoming: &Incoming,
    watch: bool,
) -> Result<Begun, Failure> {
    let named = incoming.task.as_deref().map(Key::parse).transpose()?;
    let context = match (&incoming.context, named) {
        (Some(context), Some(key)) if **context != *key.context() => {
            return Err(missing(&key.to_string()));
        }
        (_, Some(key)) => Some(key.thread),
        (Some(context), None) => {
            let thread = context.parse();
            Some(thread.map_err(|_| Failure::params("Invalid contextId: must be a UUID"))?)
        }
        (None, None) => None,
    };
    if let Some(request) = call.earlier_run() {
        let thread = context.unwrap_or_else(|| ThreadId::of_run(request));
        if let Some((key, run)) = tasks.run_of_request(thread, request).await? {
            return joined(call, incoming, key, &run).await;
        }
    }
    let view = match context {
        Some(thread) => match call.threads().to_change(thread).await {
            Ok(view) => Some(view),
            Err(threads::Error::NoThread(_)) => None,
            Err(error) => return Err(Error::from(error).into()),
        },
        None => None,
    };
    if let Some(key) = named {
        let state = match &view {
            Some(view) => tasks.state_of(key, view).await?,
            None => None,
        };
        takes_message(state.ok_or_else(|| missing(&key.to_string()))?)?;
    }
    let mut run = Run {
        if_not_exists: IfNotExists::Create,
        stream_mode: vec![Mode::Messages],
        ..of_call(call, Assistant::Id(tasks.agent.id))
    };
    let mut first = None;
    match &view {
        Some(view) if is_interrupted(view) => {
            if let Some(request) = call.run_id {
                run.metadata.insert(REQUEST, request.to_string());
            }
            first = resume(tasks, incoming, view, named, &mut run).await?;
        }
        _ => run.input = Some(incoming.to_input(&tasks.agent)?),
    }
    let thread = context.unwrap_or_else(|| match run.id {
        Some(run) => ThreadId::of_run(run),
        None => ThreadId::mint(),
    });
    let new = call.runs().create(Some(thread), run, watch).await;
    let new = new.map_err(|error| match error {
        // It exists, and is somebody else's.
        runs::Error::NoThreadOrAssistant
        | runs::Error::NoThread(_)
        | runs::Error::ThreadTaken(_) => Failure::params(format!("Context not found: {thread}")),
        runs::Error::RunExists(_) | runs::Error::NoInterrupt(_) => Failure::new(
            json_rpc::CONFLICT,
            "Another message resumes the task at this moment: get the task",
        ),
        error => Error::from(error).into(),
    })?;
    let key = Key {
        thread: new.row.thread,
        run: first.unwrap_or(new.row.id),
    };
    let target = Target {
        thread,
        run: new.row.id,
    };
    let (runs, handle) = (call.runs().clone(), new.handle);
    let end = async move { drop(runs.result(target, false, handle).await) };
    Ok(Begun {
        key,
        task: submitted(key, incoming),
        frames: new.frames,
        end: end.boxed(),
    })
}

/// A message whose run is there already.
async fn joined(
    call: &Call,
    incoming: &Incoming,
    key: Key,
    run: &runs::Run,
) -> Result<Begun, Failure> {
    let target = Target {
        thread: key.thread,
        run: run.id,
    };
    let end = call.runs().join(&call.access, target, None).await;
    let end = end.map_err(Error::from)?;
    Ok(Begun {
        key,
        task: submitted(key, incoming),
        frames: None,
        end: async move {
            if let Some(end) = end {
                drop(end.await);
            }
        }
        .boxed(),
    })
}

/// Whether the next message of a context is what its interrupts wait for.
fn is_interrupted(view: &View) -> bool {
    !view.row.busy && !view.interrupts.is_empty()
}

fn takes_message(state: State) -> Result<(), Failure> {
    let reason = match state {
        State::InputRequired => return Ok(()),
        state if state.is_final() => {
            "The task has ended: send the message with its contextId alone, which begins another task"
        }
        _ => {
            "The task is being worked on: send the message with its contextId alone, which begins another task after it"
        }
    };
    Err(Failure::new(UNSUPPORTED, reason))
}

/// Lets a run resume what a context waits for; returns the first run of the task that it continues.
async fn resume(
    tasks: &Tasks,
    incoming: &Incoming,
    view: &View,
    named: Option<Key>,
    run: &mut Run,
) -> Result<Option<RunId>, Failure> {
    let open = interrupts(&view.interrupts);
    let ids: Vec<&str> = open.iter().map(|interrupt| &*interrupt.id).collect();
    let value = incoming.to_resume_value(&ids)?;
    run.command = Some(value!({"resume": value}));
    // Another message may have resumed them since they were read.
    run.open_interrupts = ids.iter().map(|id| Arc::from(*id)).collect();
    let task = match named {
        Some(key) => tasks.runs_of(key).await?.map(|runs| (key, runs)),
        None => tasks.newest(view.row.id).await?,
    };
    // The runs of a thread may be gone, or be another assistant's: then this one begins a task.
    let Some((key, runs)) = task else {
        return Ok(None);
    };
    // Of two messages that resume one state the second finds its run there already.
    run.id = Some(key.run.resuming(runs.resumed + 1));
    run.metadata.insert(FIRST_RUN, key.run.to_string());
    Ok(Some(key.run))
}

/// A task whose message was just taken.
fn submitted(key: Key, incoming: &Incoming) -> Task {
    Task {
        key,
        status: Status {
            state: State::Submitted,
            message: None,
            at: Timestamp::now().to_string(),
        },
        artifacts: vec![],
        history: vec![Message {
            is_users: !incoming.is_agents,
            parts: incoming.parts.clone(),
            id: incoming.id.clone(),
            task: Some(key.to_string().into()),
        }],
        memory: None,
    }
}
