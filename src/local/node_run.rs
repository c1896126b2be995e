//! One node by itself, for tests: with a state, dependencies and resume values that are given.

mod host;

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    marker::PhantomData,
    sync::{Arc, atomic::AtomicUsize},
};

use parking_lot::Mutex;
use serde::Serialize;

use crate::{
    channel::Channel,
    extract::{Ctx, RunConfig, Task},
    graph::{Compiled, Deps, Goto, Handler, NodeFn, handler::erase},
    hint::did_you_mean,
    id::TaskId,
    message::Message,
    state::{IntoInput, State, Unreadable},
    value::{Map, Value, to_value},
};
use host::NodeHost;

type Provided = HashMap<TypeId, Box<dyn Any + Send + Sync>>;
type Provide = Box<dyn Fn(&mut Provided) + Send + Sync>;

/// Runs one node of a graph over `S` without the graph.
///
/// ```
/// use std::sync::Arc;
///
/// use backstitch::{NodeRun, prelude::*};
///
/// #[derive(State)]
/// struct Post {
///     topic: String,
///     body: Option<String>,
/// }
///
/// struct Signature {
///     name: &'static str,
/// }
///
/// async fn write(post: Post, sign: Dep<Signature>, ctx: Ctx) -> Command<Post> {
///     ctx.emit(json!({"writing": post.topic}));
///     let body = format!("On {}. {}", post.topic, sign.name);
///     let publish: bool = ctx.interrupt(&body).await;
///     Post::update().body(body).goto(if publish { "publish" } else { END })
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let node = NodeRun::<Post>::of(write)
///     .state(Post::update().topic("bees"))
///     .provide(Arc::new(Signature { name: "Ada" }));
/// let asked = node.run().await?;
/// assert!(asked.is_interrupted());
/// assert_eq!(asked.interrupts, ["On bees. Ada"]);
///
/// let done = node.resume(true).run().await?;
/// assert_eq!(done.state()?.body.as_deref(), Some("On bees. Ada"));
/// assert_eq!(done.goto[0].node.as_ref(), "publish");
/// assert_eq!(done.emitted[0]["writing"], "bees");
/// # anyhow::Ok(())
/// # }).unwrap();
/// ```
#[must_use = "the node does not run before `.run().await`"]
pub struct NodeRun<S> {
    node: NodeFn,
    state: Value,
    argument: Option<Value>,
    context: Value,
    resume: Vec<Value>,
    provide: Vec<Provide>,
    calls: Vec<(Arc<str>, Arc<Compiled>)>,
    /// The first value that could not be encoded.
    problem: Option<String>,
    of: PhantomData<fn() -> S>,
}

/// What a node did.
#[derive(Clone, Debug)]
pub struct NodeOutput<S> {
    /// What it wrote, in order: channel and update.
    pub writes: Vec<(Arc<str>, Value)>,
    /// Where its command goes.
    pub goto: Vec<Goto>,
    /// What it emitted.
    pub emitted: Vec<Value>,
    /// The text that it streamed.
    pub text: String,
    /// The messages that it emitted as a whole.
    pub messages: Vec<Message>,
    /// What its interrupts showed, in order.
    pub interrupts: Vec<Value>,
    is_interrupted: bool,
    state: Map,
    of: PhantomData<fn() -> S>,
}

impl<S: State> NodeOutput<S> {
    /// Whether it waits at the last of its interrupts, for which no resume value was given.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// The state with what it wrote.
    ///
    /// # Errors
    /// A field has no value, or one of another type.
    pub fn state(&self) -> Result<S, Unreadable> {
        S::decode(&self.state)
    }
}

impl<S: State> NodeRun<S> {
    /// The node that this function is.
    pub fn of<Args: 'static>(handler: impl Handler<S, Args>) -> Self {
        Self {
            node: erase(handler),
            state: Value::Null,
            argument: None,
            context: Value::Null,
            resume: vec![],
            provide: vec![],
            calls: vec![],
            problem: None,
            of: PhantomData,
        }
    }

    /// The state that the node reads, merged as the input of a run is.
    pub fn state(mut self, input: impl IntoInput) -> Self {
        match input.into_input() {
            Ok(state) => self.state = state,
            Err(error) => drop(self.problem.get_or_insert(error.to_string())),
        }
        self
    }

    /// The argument of its own that the node takes as [`Arg`](crate::extract::Arg).
    pub fn arg(mut self, argument: impl Serialize) -> Self {
        self.argument = Some(self.encoded("the argument", &argument));
        self
    }

    /// The context that the node takes as [`Config`](crate::extract::Config).
    pub fn context(mut self, context: impl Serialize) -> Self {
        self.context = self.encoded("the context", &context);
        self
    }

    /// The value for the next interrupt.
    pub fn resume(mut self, value: impl Serialize) -> Self {
        let value = self.encoded("a resume value", &value);
        self.resume.push(value);
        self
    }

    /// A dependency, as [`Graph::provide`](crate::graph::Graph::provide) takes it.
    pub fn provide<T: ?Sized + Send + Sync + 'static>(mut self, dep: Arc<T>) -> Self {
        self.provide.push(Box::new(move |deps| {
            deps.insert(TypeId::of::<Arc<T>>(), Box::new(dep.clone()));
        }));
        self
    }

    /// A graph that the node calls by this name.
    pub fn calls(mut self, name: impl Into<Arc<str>>, graph: Arc<Compiled>) -> Self {
        self.calls.push((name.into(), graph));
        self
    }

    fn encoded(&mut self, what: &str, value: &impl Serialize) -> Value {
        to_value(value).unwrap_or_else(|error| {
            let problem = format!("{what} cannot be encoded: {error}");
            self.problem.get_or_insert(problem);
            Value::Null
        })
    }

    /// Runs the node from the top until it returns, or waits at an interrupt for which there is no
    /// resume value. Nothing is stored; what it remembers is forgotten when it ends.
    ///
    /// # Errors
    /// The node's error, a parameter that cannot be made, a state that does not fit, or a resume
    /// value that the node cannot use.
    pub async fn run(&self) -> anyhow::Result<NodeOutput<S>> {
        if let Some(problem) = &self.problem {
            anyhow::bail!("{problem}");
        }
        let mut channels = channels::<S>();
        let none = Map::new();
        let input = match &self.state {
            Value::Null => &none,
            state => state
                .as_map()
                .ok_or_else(|| anyhow::anyhow!("the state is no map: {state}"))?,
        };
        let input = input
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        write(&mut channels, input.collect())?;
        let state = values(&channels);
        let mut deps = Provided::new();
        for provide in &self.provide {
            provide(&mut deps);
        }
        let host = Arc::new(NodeHost::new(self.resume.clone(), state.clone()));
        let config = RunConfig {
            context: self.context.clone(),
            recursion_limit: 1,
            ..RunConfig::default()
        };
        let task = Arc::new(Task {
            id: TaskId::NULL,
            node: "node".into(),
            ns: "node:1".into(),
            step: 1,
            triggers: Arc::new([]),
            shown_path: Value::Null,
            has_arg: self.argument.is_some(),
            input: self.argument.clone().unwrap_or_else(|| Value::map(state)),
            config: Arc::new(config),
            own_config: Default::default(),
            deps: Deps(Arc::new(deps)),
            calls: self.calls.clone().into(),
            host: host.clone(),
            steps: Mutex::new(HashMap::new()),
            attempt: AtomicUsize::new(1),
            failure: None,
        });
        let node = (self.node)(Ctx::new(task));
        let (output, is_interrupted) = tokio::select! {
            biased;
            output = node => (output?, false),
            refused = host.stopped() => match refused {
                Some(error) => return Err(error),
                None => (Default::default(), true),
            },
        };
        let writes = output.writes;
        if !output.to_parent {
            write(&mut channels, writes.clone())?;
        }
        let record = host.record();
        Ok(NodeOutput {
            writes,
            goto: output.goto,
            emitted: record.emitted,
            text: record.text,
            messages: record.messages,
            interrupts: record.interrupts,
            is_interrupted,
            state: values(&channels),
            of: PhantomData,
        })
    }
}

type Channels = Vec<(&'static str, Channel)>;

/// The channels of a state, without values.
fn channels<S: State>() -> Channels {
    let all = S::channels().into_iter();
    all.map(|channel| (channel.name, Channel::new(&channel.kind)))
        .collect()
}

/// Merges updates into channels.
fn write(channels: &mut Channels, writes: Vec<(Arc<str>, Value)>) -> anyhow::Result<()> {
    for (name, _) in &writes {
        if channels.iter().all(|(channel, _)| **channel != **name) {
            let hint = did_you_mean(name, channels.iter().map(|(channel, _)| *channel));
            anyhow::bail!("the state has no channel `{name}`{hint}");
        }
    }
    for (name, channel) in channels {
        let own = writes.iter().filter(|(written, _)| **written == **name);
        let own: Vec<Value> = own.map(|(_, value)| value.clone()).collect();
        if !own.is_empty() {
            let written = channel.update(&own);
            written.map_err(|error| anyhow::anyhow!("channel `{name}`: {error}"))?;
        }
    }
    Ok(())
}

fn values(channels: &Channels) -> Map {
    let values = channels.iter();
    values
        .filter_map(|(name, channel)| Some((Arc::from(*name), channel.get()?.clone())))
        .collect()
}
