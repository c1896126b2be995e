//! The server that integration tests start when they need graphs that misbehave.

mod fault;
mod rescued;

use std::io::Write;

use backstitch::{Server, prelude::*, value, value::Map};

/// Two nodes at once: one adds a line to the file `trace` and ends, the other waits until somebody
/// makes the file `gate`.
#[derive(State)]
struct Pair {
    gate: Option<String>,
    trace: Option<String>,
    #[state(append)]
    done: Vec<String>,
}

async fn quick(state: Pair) -> Result<Update<Pair>> {
    let mut trace = std::fs::File::options()
        .create(true)
        .append(true)
        .open(state.trace.unwrap_or_default())?;
    writeln!(trace, "quick")?;
    Ok(Pair::update().done("quick"))
}

async fn stuck(state: Pair) -> Update<Pair> {
    let gate = state.gate.unwrap_or_default();
    while !std::path::Path::new(&gate).exists() {
        // The test makes the file, and no event of the file system is the same everywhere.
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Pair::update().done("stuck")
}

/// A conversation whose answer to `wait` never comes, to `call` is a call of a tool that never ends, and to `as ID`
/// has that id.
#[derive(State)]
struct Talk {
    #[state(messages)]
    messages: Vec<Message>,
}

async fn answer(state: Talk) -> Update<Talk> {
    let said = state.messages.last().map(Message::text).unwrap_or_default();
    if said == "wait" {
        std::future::pending::<()>().await;
    }
    let answer = match (&*said, said.strip_prefix("as ")) {
        ("call", _) => Message::ai("").calling("never", Map::new()),
        (_, Some(id)) => Message::ai("named").with_id(id),
        (said, None) => Message::ai(format!("so: {said}")),
    };
    Talk::update().messages(answer)
}

async fn never() -> Update<Talk> {
    std::future::pending().await
}

fn calls(state: &Talk) -> &'static str {
    match state.messages.last().map(Message::tool_calls) {
        Some(calls) if !calls.is_empty() => "never",
        _ => END,
    }
}

/// Notes of a person, kept in the memory that all threads share.
#[derive(State)]
struct Notes {
    who: String,
    text: Option<String>,
    /// All notes, this one included.
    notes: Option<Vec<String>>,
    /// How often the node `look` ran with these words: not at all when its result was known.
    looked: Option<i64>,
}

async fn note(state: Notes, ctx: Ctx) -> Result<Update<Notes>> {
    let namespace = ["notes", &state.who];
    let mut notes: Vec<String> = ctx.recall(&namespace, "all").await?.unwrap_or_default();
    match state.text.as_deref() {
        Some("forget") => {
            ctx.forget(&namespace, "all").await?;
            notes.clear();
        }
        Some(text) if text.starts_with("near ") => {
            let found = ctx.search::<Value>(&["n"], text.get(5..), 2).await?;
            notes = found.into_iter().map(|item| item.key).collect();
        }
        text => {
            notes.extend(text.map(str::to_owned));
            ctx.remember(&namespace, "all", &notes).await?;
        }
    }
    Ok(Notes::update().notes(notes))
}

async fn look() -> Update<Notes> {
    static RUNS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);
    let before = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Notes::update().looked(before + 1)
}

/// Makes the mistake that `how` names.
#[derive(State)]
struct Astray {
    how: Option<String>,
    x: Option<i64>,
    y: Option<i64>,
}

async fn first(state: Astray, ctx: Ctx) -> Command<Astray> {
    let plain = Command::from(Astray::update());
    match state.how.as_deref() {
        Some("goto") => plain.goto("nowhere"),
        Some("ask") => Astray::update()
            .x(ctx.interrupt::<i64>("a number?").await)
            .into(),
        Some("wait") => std::future::pending().await,
        _ => plain,
    }
}

async fn left() -> Update<Astray> {
    Astray::update().x(1)
}

async fn right(state: Astray) -> Update<Astray> {
    match state.how.as_deref() {
        Some("two") => Astray::update().y(2),
        _ => Astray::update().x(2),
    }
}

fn choose(state: &Astray) -> Vec<Target> {
    match state.how.as_deref() {
        Some("key") => vec![goto("nowhere")],
        Some("both" | "two") => vec![goto("left"), goto("right")],
        _ => vec![],
    }
}

/// Logs, and has a graph inside that keeps its state for the thread.
#[derive(State)]
struct Keeper {
    #[state(append)]
    log: Vec<String>,
    kept: Option<Vec<String>>,
}

/// The graph inside.
#[derive(State)]
struct Inside {
    #[state(append)]
    own: Vec<String>,
    kept: Option<Vec<String>>,
}

async fn begin() -> Update<Inside> {
    Inside::update().own("first")
}

async fn ask(ctx: Ctx) -> Update<Inside> {
    Inside::update().own(ctx.interrupt::<String>("what now?").await)
}

async fn keep(state: Inside) -> Update<Inside> {
    Inside::update().kept(state.own)
}

/// Starts as many tasks at once as `count` names, in the way that `how` names, and adds up what they
/// found.
#[derive(State)]
struct Wide {
    count: i64,
    how: Option<String>,
    #[state(append)]
    found: Vec<i64>,
    #[state(messages)]
    messages: Vec<Message>,
    total: Option<i64>,
}

async fn spread(state: Wide) -> Command<Wide> {
    let how = state.how.unwrap_or_default();
    let part = |n| goto("part").with(value!({"n": n, "how": how.clone()}));
    Command::from(Wide::update()).goto_each((0..state.count).map(part))
}

async fn part(ctx: Ctx) -> Result<Update<Wide>> {
    let n = ctx.input()["n"].as_i64().unwrap_or_default();
    match ctx.input()["how"].as_str() {
        Some("ask") => {
            ctx.interrupt::<String>("go on?").await;
        }
        Some("fail") => return Err(Raised::new("ValueError", "no luck").into()),
        // Nothing ends it but a cancellation of its run.
        Some("wait") => std::future::pending::<()>().await,
        Some("speak") => return Ok(Wide::update().found(n).messages(Message::ai("here"))),
        _ => {}
    }
    Ok(Wide::update().found(n))
}

async fn gather(state: Wide) -> Update<Wide> {
    Wide::update().total(state.found.iter().sum::<i64>())
}

/// A way of several kinds of steps: two nodes at once, two questions in one node, and a graph inside
/// that asks and keeps its state for the thread. Each node adds its name to the file `trace`.
#[derive(State)]
struct Journey {
    trace: Option<String>,
    #[state(append)]
    log: Vec<String>,
    kept: Option<Vec<String>>,
}

/// The graph inside.
#[derive(State)]
struct Stay {
    trace: Option<String>,
    #[state(append)]
    own: Vec<String>,
    kept: Option<Vec<String>>,
}

fn leave_trace(file: Option<&String>, name: &str) -> Result<()> {
    let mut options = std::fs::File::options();
    let mut trace = options
        .create(true)
        .append(true)
        .open(file.map_or("trace", |file| file))?;
    // At once, for nodes run beside each other.
    Ok(trace.write_all(format!("{name}\n").as_bytes())?)
}

async fn leave(state: Journey) -> Result<Update<Journey>> {
    leave_trace(state.trace.as_ref(), "leave")?;
    Ok(Journey::update().log("leave"))
}

async fn by_sea(state: Journey) -> Result<Update<Journey>> {
    leave_trace(state.trace.as_ref(), "by_sea")?;
    Ok(Journey::update().log("by_sea"))
}

async fn by_land(state: Journey) -> Result<Update<Journey>> {
    leave_trace(state.trace.as_ref(), "by_land")?;
    Ok(Journey::update().log("by_land"))
}

async fn customs(state: Journey, ctx: Ctx) -> Result<Update<Journey>> {
    leave_trace(state.trace.as_ref(), "customs")?;
    let name: String = ctx.interrupt("your name?").await;
    let goods: String = ctx.interrupt("anything to declare?").await;
    Ok(Journey::update().log(format!("{name}: {goods}")))
}

async fn arrive(state: Journey) -> Result<Update<Journey>> {
    leave_trace(state.trace.as_ref(), "arrive")?;
    Ok(Journey::update().log(state.kept.unwrap_or_default().join(" ")))
}

async fn check_in(state: Stay) -> Result<Update<Stay>> {
    leave_trace(state.trace.as_ref(), "check_in")?;
    Ok(Stay::update().own("check_in"))
}

async fn breakfast(state: Stay, ctx: Ctx) -> Result<Update<Stay>> {
    leave_trace(state.trace.as_ref(), "breakfast")?;
    Ok(Stay::update().own(ctx.interrupt::<String>("tea or coffee?").await))
}

async fn check_out(state: Stay) -> Result<Update<Stay>> {
    leave_trace(state.trace.as_ref(), "check_out")?;
    Ok(Stay::update().kept(state.own))
}

fn a_stay() -> Graph<Stay> {
    Graph::<Stay>::new()
        .persist(Persist::Thread)
        .node("check_in", check_in)
        .node("breakfast", breakfast)
        .node("check_out", check_out)
        .edge(START, "check_in")
        .edge("check_in", "breakfast")
        .edge("breakfast", "check_out")
}

/// Lets a traveller pass whose papers are good: it says so to the graph around it.
async fn officer(state: Journey, ctx: Ctx) -> Result<Command<Journey>> {
    leave_trace(state.trace.as_ref(), "officer")?;
    let papers: String = ctx.interrupt("papers?").await;
    let seen = Journey::update().log(papers);
    Ok(Command::from(seen).goto("customs").to_parent())
}

/// Two guests who arrive at once at one graph inside that keeps its state for the thread: in whichever
/// order they enter, one finds one guest and the other two.
#[derive(State)]
struct Inn {
    trace: Option<String>,
    #[state(append)]
    found: Vec<usize>,
    total: Option<usize>,
}

/// The graph inside.
#[derive(State)]
struct Room {
    trace: Option<String>,
    guest: Option<String>,
    #[state(append)]
    guests: Vec<String>,
    found: Option<Vec<usize>>,
}

async fn invite(state: Inn) -> Command<Inn> {
    let trace = state.trace.unwrap_or_default();
    let room = |guest| goto("room").with(value!({"guest": guest, "trace": trace.clone()}));
    Command::from(Inn::update()).goto_each(["Ada", "Bob"].map(room))
}

async fn enter(state: Room) -> Result<Update<Room>> {
    let guest = state.guest.unwrap_or_default();
    report(state.trace, format!("{guest} enters")).await?;
    Ok(Room::update().guests(guest))
}

async fn look_around(state: Room) -> Result<Update<Room>> {
    let guest = state.guest.unwrap_or_default();
    report(state.trace, format!("{guest} looks around")).await?;
    Ok(Room::update().found(vec![state.guests.len()]))
}

/// A trace that is a pipe blocks its writers until somebody reads it. They wait outside the threads on
/// which the server answers: two guests would otherwise hold up all of them on two processors.
async fn report(trace: Option<String>, what: String) -> Result<()> {
    tokio::task::spawn_blocking(move || leave_trace(trace.as_ref(), &what)).await?
}

async fn count(state: Inn) -> Update<Inn> {
    Inn::update().total(state.found.iter().sum::<usize>())
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let fault = fault::graph();
    let pair = Graph::<Pair>::new()
        .node("quick", quick)
        .node("stuck", stuck)
        .edge(START, "quick")
        .edge(START, "stuck")
        .build();
    let talk = Graph::<Talk>::new()
        .node("answer", answer)
        .node("never", never)
        .edge(START, "answer")
        .route("answer", calls, ["never", END])
        .build();
    let by_words = Cache::forever().key(|input| input["text"].clone());
    let notes = Graph::<Notes>::new()
        .node("note", note)
        .node_with("look", look, NodeOpts::new().cache(by_words))
        .edge(START, "note")
        .edge("note", "look")
        .build();
    let astray = Graph::<Astray>::new()
        .node("first", first)
        .node("left", left)
        .node("right", right)
        .edge(START, "first")
        .route("first", choose, ["left", "right"])
        .build();
    let inside = Graph::<Inside>::new()
        .persist(Persist::Thread)
        .node("begin", begin)
        .node("ask", ask)
        .node("keep", keep)
        .edge(START, "begin")
        .edge("begin", "ask")
        .edge("ask", "keep")
        .build();
    let keeper = inside.and_then(|inside| {
        Graph::<Keeper>::new()
            .subgraph("child", inside)
            .edge(START, "child")
            .build()
    });
    let stops = a_stay()
        .interrupt_before(["breakfast"])
        .interrupt_after(["breakfast"]);
    let stopover = stops.build().and_then(|stay| {
        Graph::<Journey>::new()
            .node("leave", leave)
            .subgraph("stay", stay)
            .node("arrive", arrive)
            .edge(START, "leave")
            .edge("leave", "stay")
            .edge("stay", "arrive")
            .build()
    });
    let post = Graph::<Journey>::new()
        .node("officer", officer)
        .edge(START, "officer");
    let border = post.build().and_then(|post| {
        Graph::<Journey>::new()
            .subgraph("post", post)
            .node("customs", customs)
            .edge(START, "post")
            .build()
    });
    let journey = a_stay().build().and_then(|stay| {
        Graph::<Journey>::new()
            .node("leave", leave)
            .node("by_sea", by_sea)
            .node("by_land", by_land)
            .node("customs", customs)
            .subgraph("stay", stay)
            .node("arrive", arrive)
            .edge(START, "leave")
            .edge("leave", "by_sea")
            .edge("leave", "by_land")
            .join(["by_sea", "by_land"], "customs")
            .edge("customs", "stay")
            .edge("stay", "arrive")
            .build()
    });
    let wide = Graph::<Wide>::new()
        .node("spread", spread)
        .node("part", part)
        .node("gather", gather)
        .edge(START, "spread")
        .edge("part", "gather")
        .build();
    let room = Graph::<Room>::new()
        .persist(Persist::Thread)
        .output(["found"])
        .node("enter", enter)
        .node("look_around", look_around)
        .edge(START, "enter")
        .edge("enter", "look_around")
        .build();
    let inn = room.and_then(|room| {
        Graph::<Inn>::new()
            .output(["total"])
            .node("invite", invite)
            .subgraph("room", room)
            .node("count", count)
            .edge(START, "invite")
            .edge("room", "count")
            .build()
    });
    Server::new()
        .graph("wide", wide)
        .graph("journey", journey)
        .graph("stopover", stopover)
        .graph("border", border)
        .graph("inn", inn)
        .graph("keeper", keeper)
        .graph("talk", talk)
        .graph("astray", astray)
        .graph("notes", notes)
        .graph("fault", fault)
        .graph("pair", pair)
        .graph("rescued", rescued::graph())
        .run()
        .await
}
