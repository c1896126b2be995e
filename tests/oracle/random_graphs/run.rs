//! One case: the script performed by the engine and by the reference, compared after every call.

use std::sync::Arc;

use backstitch::{
    engine::{ClientCommand, Durability, Ended, Error, Input, StateUpdate, Tolerance},
    id::ThreadId,
    local::{self, History, RunOptions, Thread},
    tree::ThreadState,
    value::{Map, Value},
};
use serde_json::{Value as Json, json};

use super::{
    generate::{self, Tape},
    naive::{self, Counters, Machine, Record, Stop},
};
use crate::{graph, lang::World};

pub use super::check::Place;

/// Nothing needs more supersteps.
const LIMIT: u32 = 200;
/// Items of the log after which a script ends.
const LONG_LOG: usize = 300;

struct Pair<'a> {
    place: &'a Place,
    /// A task of the graph may ask more than one question.
    asks_twice: bool,
    thread: Thread,
    world: Arc<World>,
    machine: Machine,
    counters: Counters,
    /// The reference at every checkpoint of the root graph, in the order they were made.
    checkpoints: Vec<Machine>,
}

impl<'a> Pair<'a> {
    fn new(place: &'a Place, described: &Json) -> Self {
        let world = Arc::new(World::default());
        let graph = graph::build(described, &world, "");
        Self {
            thread: place.local.thread_with(&graph, ThreadId::mint()),
            asks_twice: asks_twice(described),
            place,
            world,
            machine: Machine::new(described, ""),
            counters: Counters::default(),
            checkpoints: vec![],
        }
    }
}

fn asks_twice(graph: &Json) -> bool {
    let mut nodes = graph["nodes"].as_array().unwrap().iter();
    nodes.any(|node| node.to_string().matches("\"interrupt\"").count() > 1)
}

fn options() -> RunOptions {
    RunOptions {
        recursion_limit: Some(LIMIT),
        tolerance: Tolerance::LANGGRAPH,
        ..RunOptions::default()
    }
}

/// Every call gives what the reference gives, and the history is the same in the end.
pub async fn exact(place: &Place, tape: &[u16]) -> Result<(), String> {
    let mut tape = Tape::new(tape);
    let described = generate::graph(&mut tape);
    let script = generate::script(&mut tape, &described);
    let mut pair = Pair::new(place, &described);
    for (number, call) in script.iter().enumerate() {
        let context = |what: String| {
            format!(
                "call {number} of {}\n{what}\ngraph: {described}",
                json!(script)
            )
        };
        if !pair.call(call).await.map_err(context)? || pair.has_long_log() {
            break;
        }
    }
    pair.compare_history(&script, &described).await
}

impl Pair<'_> {
    /// Whether the log is so long that further calls would fill the memory: a graph inside returns the
    /// log it was given, so that every visit doubles it.
    fn has_long_log(&self) -> bool {
        let values = self.machine.record().values;
        values["log"]
            .as_array()
            .is_some_and(|log| log.len() > LONG_LOG)
    }

    /// Performs a call on both sides; false when the thread cannot go on.
    async fn call(&mut self, call: &Json) -> Result<bool, String> {
        let kind = call["call"].as_str().unwrap();
        let mut options = options();
        let input = match kind {
            "invoke" => {
                let input = call["input"].clone();
                self.machine.take(input.clone(), &mut self.checkpoints);
                Input::Value(Value::from(input))
            }
            "go_on" => self.go_on(call["share"].as_u64().unwrap()).await?,
            "replay" => {
                let index = call["at"].as_u64().unwrap() as usize % self.checkpoints.len();
                let superseded = index + 1 != self.checkpoints.len();
                let made = matches!(self.checkpoints[index].source, "update" | "fork");
                // At a head that an edit or a replay made, it is no replay but goes on.
                if superseded || !made {
                    let states = self.history().await?;
                    options.at = Some(states[index].snapshot.checkpoint.id);
                    self.machine = self.checkpoints[index].clone();
                    self.machine.replay(&mut self.checkpoints);
                }
                Input::Null
            }
            "update_state" => return self.edit(call).await,
            other => panic!("unknown call {other}"),
        };
        let expected = self.machine.run(&mut self.counters, &mut self.checkpoints);
        let finished = self
            .thread
            .run(input, options)
            .await
            .map_err(|e| e.to_string())?;
        let found = stop(&finished.result);
        same("end", &expected, &found)?;
        if expected == Stop::Done {
            same(
                "values",
                &self.machine.record().values,
                &finished.values.to_json_value(),
            )?;
        }
        if expected == Stop::Failed("InvalidUpdateError") || self.machine.conflicts() {
            return Ok(false);
        }
        self.stands().await?;
        Ok(true)
    }

    async fn edit(&mut self, call: &Json) -> Result<bool, String> {
        let node = call["as_node"].as_str().unwrap();
        let (counters, checkpoints) = (&mut self.counters, &mut self.checkpoints);
        let expected = self
            .machine
            .edit(node, &call["values"], counters, checkpoints);
        let update = StateUpdate {
            values: Some(Value::from(call["values"].clone())),
            as_node: Some(node.into()),
            ..StateUpdate::default()
        };
        let found = match self.thread.update_state(&"".into(), None, update).await {
            Ok(_) => Ok(()),
            Err(local::Error::Engine(error)) => Err(error.class().to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        same("edit", &expected.map_err(str::to_owned), &found)?;
        self.stands().await?;
        Ok(true)
    }

    /// Answers some of the open questions, or just goes on.
    async fn go_on(&mut self, share: u64) -> Result<Input, String> {
        let questions = self.machine.questions();
        let chosen: Vec<String> = match share {
            0 => questions.clone(),
            1 => questions[..questions.len().div_ceil(2)].to_vec(),
            2 => vec![],
            _ => questions.last().cloned().into_iter().collect(),
        };
        if chosen.is_empty() {
            return Ok(Input::Null);
        }
        // A plain answer stays where it was given: a second question of the task would get it.
        let alone =
            !self.asks_twice && questions.len() == 1 && self.machine.unfinished().len() == 1;
        self.machine.answer(&chosen);
        if alone {
            return Ok(resume(Value::from(naive::answer_to(&chosen[0]))));
        }
        let answers = self.answers(&chosen).await?;
        Ok(resume(answers))
    }

    /// Answers by id to the open questions among `chosen`.
    async fn answers(&self, chosen: &[String]) -> Result<Value, String> {
        let state = self.state().await?.ok_or("there is no state")?;
        let mut answers = Map::new();
        for asked in state.snapshot.interrupts() {
            let question = asked.value.as_str().unwrap_or_default().to_owned();
            if chosen.contains(&question) {
                answers.insert(asked.id, Value::from(naive::answer_to(&question)));
            }
        }
        Ok(Value::map(answers))
    }

    async fn state(&self) -> Result<Option<ThreadState>, String> {
        let state = self.thread.state(&"".into(), None, false).await;
        state.map_err(|error| format!("no state can be shown: {error}"))
    }

    async fn history(&self) -> Result<Vec<ThreadState>, String> {
        let states = self.thread.history(History::default()).await;
        let mut states = states.map_err(|error| format!("no history: {error}"))?;
        states.reverse();
        Ok(states)
    }

    /// How the thread stands, and what ran.
    async fn stands(&self) -> Result<(), String> {
        let state = self.state().await?.ok_or("there is no state")?;
        let next = next(&state);
        same("next", &self.machine.unfinished(), &next)?;
        let asked = state.snapshot.interrupts();
        let mut asked: Vec<String> = asked
            .iter()
            .map(|one| one.value.as_str().unwrap().to_owned())
            .collect();
        asked.sort();
        same("open questions", &self.machine.shown_questions(), &asked)?;
        same(
            "bodies started",
            &self.counters.started,
            &self.world.counts(),
        )
    }

    async fn compare_history(&self, script: &[Json], described: &Json) -> Result<(), String> {
        let expected: Vec<Record> = self.checkpoints.iter().map(Machine::record).collect();
        let found: Vec<Record> = self.history().await?.iter().map(record).collect();
        let shown = |at: usize| format!("{:?}\n   {:?}", expected.get(at), found.get(at));
        for at in 0..expected.len().max(found.len()) {
            if expected.get(at) != found.get(at) {
                let script = json!(script);
                let shown = shown(at);
                return Err(format!(
                    "checkpoint {at}: {shown}\nof {script}\ngraph: {described}"
                ));
            }
        }
        Ok(())
    }
}

fn resume(answers: Value) -> Input {
    Input::Command(ClientCommand {
        resume: Some(answers),
        ..ClientCommand::default()
    })
}

fn stop(result: &Result<Ended, Error>) -> Stop {
    match result {
        Ok(Ended::Done) => Stop::Done,
        Ok(Ended::Interrupted(asked)) => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut asked: Vec<String> = asked.iter().map(|one| text(&one.value)).collect();
            asked.sort();
            Stop::Asked(asked)
        }
        Err(error) if error.class() == "Boom" => Stop::Failed("Boom"),
        Err(error) if error.class() == "InvalidUpdateError" => Stop::Failed("InvalidUpdateError"),
        other => panic!("{other:?}"),
    }
}

/// The nodes that come next, sorted.
fn next(state: &ThreadState) -> Vec<String> {
    let next = state.snapshot.next.iter();
    let mut next: Vec<String> = next.map(ToString::to_string).collect();
    next.sort();
    next
}

fn record(state: &ThreadState) -> Record {
    let checkpoint = &state.snapshot.checkpoint;
    let next = next(state);
    Record {
        source: checkpoint.source.as_str(),
        step: checkpoint.step,
        values: state.snapshot.values.to_json_value(),
        next,
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}\n   found {found:?}"))
    }
}

/// Runs that are dropped, or whose storage fails, at random points leave a thread from which the
/// next run comes to the same end along the same checkpoints.
pub async fn crashing(place: &Place, tape: &[u16]) -> Result<(), String> {
    let mut tape = Tape::new(tape);
    let crashes = 1 + tape.pick(4);
    let durability = [Durability::Async, Durability::Sync, Durability::Exit][tape.pick(3)];
    let points: Vec<(usize, usize, usize)> = (0..crashes)
        .map(|_| (tape.pick(80), tape.pick(20), tape.pick(4)))
        .collect();
    let inputs: Vec<Json> = (0..1 + tape.pick(2))
        .map(|_| json!({"log": ["in"], "n": 1 + tape.pick(4)}))
        .collect();
    let described = generate::graph(&mut tape);
    let mut pair = Pair::new(place, &described);
    let mut points = points.into_iter();
    for input in &inputs {
        pair.machine.take(input.clone(), &mut pair.checkpoints);
        let wanted = pair.machine.step;
        loop {
            match pair.machine.run(&mut pair.counters, &mut pair.checkpoints) {
                Stop::Done => break,
                Stop::Asked(questions) => pair.machine.answer(&questions),
                Stop::Failed("Boom") => {}
                // Such a thread cannot go on, whatever happens to it.
                Stop::Failed(_) => return Ok(()),
            }
        }
        let context = |what: String| {
            format!(
                "{what}\n{durability:?}, inputs {}\ngraph: {described}",
                json!(inputs)
            )
        };
        let values = pair
            .until_done(input, wanted, durability, &mut points)
            .await
            .map_err(context)?;
        same("values", &pair.machine.record().values, &values).map_err(context)?;
        pair.place.check(pair.thread.id()).await.map_err(context)?;
    }
    match durability {
        Durability::Exit => Ok(()),
        _ => pair.compare_history(&inputs, &described).await,
    }
}

impl Pair<'_> {
    /// Runs until nothing is left, with crashes as long as there are points for them.
    async fn until_done(
        &self,
        input: &Json,
        wanted: i64,
        durability: Durability,
        points: &mut impl Iterator<Item = (usize, usize, usize)>,
    ) -> Result<Json, String> {
        let id = self.thread.id();
        for _ in 0..100 {
            let state = self.state().await?;
            let step = state
                .as_ref()
                .map_or(-2, |state| state.snapshot.checkpoint.step);
            let questions: Vec<String> = state
                .iter()
                .flat_map(|state| state.snapshot.interrupts())
                .map(|one| one.value.as_str().unwrap().to_owned())
                .collect();
            let next = match (step < wanted, questions.is_empty()) {
                (true, _) => Input::Value(Value::from(input.clone())),
                (false, true) => Input::Null,
                (false, false) => resume(self.answers(&questions).await?),
            };
            let options = RunOptions {
                durability,
                ..options()
            };
            let run = self.thread.run(next, options);
            let Some((polls, call, fault)) = points.next() else {
                let finished = run.await.map_err(|error| error.to_string())?;
                if let Stop::Done = stop(&finished.result) {
                    return Ok(finished.values.to_json_value());
                }
                continue;
            };
            self.place.faults.arm(call, fault);
            let ended = dropped_after(polls, run).await;
            self.place.faults.disarm();
            // What is on its way arrives, or is refused from now on.
            self.place
                .tree
                .take_slot(id)
                .await
                .map_err(|error| error.to_string())?;
            self.place.check(id).await?;
            if let Some(Ok(finished)) = ended
                && let Ok(Ended::Done) = finished.result
            {
                return Ok(finished.values.to_json_value());
            }
        }
        Err("it does not end".to_owned())
    }
}

/// Polls a future so often, then drops it.
async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| match left {
        0 => std::task::Poll::Ready(None),
        _ => {
            left -= 1;
            future.as_mut().poll(context).map(Some)
        }
    })
    .await
}
