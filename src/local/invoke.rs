//! Running a graph to its end or to an interrupt, with the outcome as an author wants it.

use std::{ops::Index, sync::Arc};

use parking_lot::Mutex;
use serde::Serialize;

use super::{Error, RunOptions, Thread};
use crate::{
    engine::{
        self, Barrier, Body, ClientCommand, Ended, Event, Finished, Input, Interrupt, Kind, Sink,
    },
    extract::RunConfig,
    id::CheckpointId,
    state::{FromValues, IntoInput, Unreadable, Unsuitable},
    value::{Value, to_value},
};

/// What a run left that ended, or that waits at an interrupt.
#[derive(Clone, Debug)]
pub struct RunOutput {
    values: Value,
    interrupts: Vec<Interrupt>,
    next: Vec<Arc<str>>,
}

impl RunOutput {
    /// The values that the graph shows, read as its state or as a smaller struct with
    /// `#[derive(State)]`.
    ///
    /// # Errors
    /// A field has no value, or one of another type.
    pub fn values<T: FromValues>(&self) -> Result<T, Unreadable> {
        T::from_values(&self.values)
    }

    /// The values as they are.
    pub fn as_value(&self) -> &Value {
        &self.values
    }

    /// The interrupts at which the run waits for [`resume`](Thread::resume); none if it has ended.
    pub fn interrupts(&self) -> &[Interrupt] {
        &self.interrupts
    }

    /// The nodes that run next; none if the run has ended.
    pub fn next(&self) -> &[Arc<str>] {
        &self.next
    }
}

/// One of the values: `output["topic"]`; null when there is none.
impl Index<&str> for RunOutput {
    type Output = Value;

    fn index(&self, channel: &str) -> &Value {
        &self.values[channel]
    }
}

impl Thread {
    /// The same thread, with options for its further runs.
    ///
    /// ```
    /// # use backstitch::{Local, RunOptions, prelude::*, value};
    /// # #[derive(State)]
    /// # struct Count { n: Option<u32> }
    /// # async fn one() -> Update<Count> { Count::update().n(1) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let graph = Graph::<Count>::new().node("one", one).edge(START, "one").build()?;
    /// let mut options = RunOptions::default();
    /// options.config.context = value!({"language": "en"});
    /// let thread = Local::memory()?.thread(&graph).with(options);
    /// thread.invoke(value!({"n": 0})).await?;
    /// # anyhow::Ok(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn with(&self, options: RunOptions) -> Self {
        Self {
            options,
            ..self.clone()
        }
    }

    /// Runs the graph with this input until it ends or interrupts: an update of the state, a
    /// [`Value`], JSON, or `()` to go on where the thread stopped.
    ///
    /// ```
    /// use backstitch::{Local, prelude::*};
    ///
    /// #[derive(State)]
    /// struct Letter {
    ///     text: String,
    ///     posted: Option<bool>,
    /// }
    ///
    /// async fn post(letter: Letter, ctx: Ctx) -> Update<Letter> {
    ///     let agreed: bool = ctx.interrupt(format!("Post {:?}?", letter.text)).await;
    ///     Letter::update().posted(agreed)
    /// }
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let graph = Graph::<Letter>::new().node("post", post).edge(START, "post").build()?;
    /// let thread = Local::memory()?.thread(&graph);
    /// let asked = thread.invoke(Letter::update().text("Hello!")).await?;
    /// assert_eq!(asked.interrupts()[0].value, "Post \"Hello!\"?");
    /// let letter: Letter = thread.resume(true).await?.values()?;
    /// assert_eq!(letter.posted, Some(true));
    /// # anyhow::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The run failed: [`Error::Run`] names the node. The input cannot be encoded, or the storage
    /// failed.
    pub async fn invoke(&self, input: impl IntoInput) -> Result<RunOutput, Error> {
        self.finish(started_with(input)?, self.options.clone())
            .await
    }

    /// Goes on from the open interrupt with this value; with a map of values by
    /// [`id`](Interrupt::id) from several ones.
    ///
    /// # Errors
    /// As [`invoke`](Self::invoke), and when no interrupt is open.
    pub async fn resume(&self, value: impl Serialize) -> Result<RunOutput, Error> {
        self.finish(resumed_with(value)?, self.options.clone())
            .await
    }

    pub(super) async fn finish(
        &self,
        input: Input,
        mut options: RunOptions,
    ) -> Result<RunOutput, Error> {
        let failures = Arc::new(FailureSink {
            events: options.sink,
            failed: Mutex::default(),
        });
        options.sink = failures.clone();
        output(self.run(input, options).await?, &failures)
    }
}

/// What a run starts with that has this input.
pub(super) fn started_with(input: impl IntoInput) -> Result<Input, Error> {
    Ok(match input.into_input()? {
        Value::Null => Input::Null,
        value => Input::Value(value),
    })
}

/// What a run starts with that goes on from an interrupt.
pub(super) fn resumed_with(value: impl Serialize) -> Result<Input, Error> {
    let value = to_value(&value).map_err(Unsuitable::from)?;
    Ok(Input::Command(ClientCommand {
        resume: Some(value),
        ..ClientCommand::default()
    }))
}

fn output(finished: Finished, failures: &FailureSink) -> Result<RunOutput, Error> {
    let interrupts = match finished.result {
        Ok(Ended::Interrupted(interrupts)) => interrupts,
        Ok(Ended::Done | Ended::Breakpoint) => vec![],
        Err(source) => {
            let node = failures.node_of(&source);
            let source = Box::new(source);
            return Err(Error::Run { node, source });
        }
    };
    Ok(RunOutput {
        values: finished.values,
        interrupts,
        next: finished.next,
    })
}

/// Passes events on, and takes down which nodes failed.
struct FailureSink {
    events: Arc<dyn Sink>,
    /// The nodes that failed in the superstep under way, each with what happened.
    failed: Mutex<Vec<(Arc<str>, Value)>>,
}

impl FailureSink {
    /// The node whose failure this is: in a graph inside, the node in there.
    fn node_of(&self, error: &engine::Error) -> Option<Arc<str>> {
        let failure = error.to_value();
        let failed = self.failed.lock();
        let found = failed.iter().find(|(_, found)| *found == failure);
        found.map(|(node, _)| node.clone())
    }
}

impl Sink for FailureSink {
    fn wants(&self, kind: Kind, ns: &str) -> bool {
        kind == Kind::Tasks || self.events.wants(kind, ns)
    }

    fn emit(&self, event: Event) {
        if let Body::TaskEnd {
            task,
            error: Some(error),
            ..
        } = &event.body
        {
            self.failed.lock().push((task.name.clone(), error.clone()));
        }
        let is_task = matches!(event.body, Body::TaskStart { .. } | Body::TaskEnd { .. });
        if !is_task || self.events.wants(Kind::Tasks, &event.ns) {
            self.events.emit(event);
        }
    }

    fn superstep(&self, checkpoint: Option<CheckpointId>) {
        self.failed.lock().clear();
        self.events.superstep(checkpoint);
    }

    fn barrier(&self) -> Option<Barrier> {
        self.events.barrier()
    }

    fn started(&self, config: &Arc<RunConfig>) {
        self.events.started(config);
    }
}
