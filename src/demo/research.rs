//! A small research desk: plans questions, searches all of them at once, writes, reviews until
//! the text is good, and interrupts for a human before it publishes. Custom events show progress.

use std::sync::Arc;

use backstitch::{
    graph::{Compiled, Invalid},
    prelude::*,
};

use super::{Model, PACE};

mod script;

#[derive(State)]
struct Report {
    /// The topic of the report.
    topic: String,
    /// The questions that the plan consists of.
    questions: Vec<String>,
    /// What was found, one entry per question.
    #[state(append)]
    findings: Vec<Finding>,
    /// What reviewers and humans want changed.
    #[state(append)]
    remarks: Vec<String>,
    /// How often the text was written.
    #[state(merge = add)]
    drafts: u32,
    /// The newest draft.
    draft: Option<String>,
    /// The text, once a human approved it.
    report: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Finding {
    #[serde(rename = "question")]
    query: String,
    #[serde(rename = "answer")]
    result: String,
}

fn add(old: u32, new: u32) -> u32 {
    old + new
}

/// Reviews send a text back at most this often.
const MOST_DRAFTS: u32 = 3;

const PLAN: &str = "List three short questions that a report on the topic must answer, one per \
    line, without numbers.";
const SEARCH: &str = "Answer the question in two plain sentences.";
const WRITE: &str = "Write a report of a few short paragraphs from these notes. Heed all remarks.";
const REVIEW: &str = "You review a report. If it is good, say only OK. Otherwise name the one \
    most important improvement in one sentence.";

/// Calls the model, whose words are streamed to clients.
async fn call_model(ctx: &Ctx, model: &dyn ChatModel, order: &str, text: String) -> Result<String> {
    let messages = [Message::system(order), Message::human(text)];
    Ok(ctx.chat(model, &messages, &[]).await?.text())
}

/// The part of the state that planning reads.
#[derive(State)]
struct Topic {
    topic: String,
}

async fn plan(state: Topic, model: Dep<dyn ChatModel>, ctx: Ctx) -> Result<Update<Report>> {
    ctx.emit(json!({"stage": "plan", "topic": state.topic}));
    let questions: Vec<String> =
        call_model(&ctx, &*model.0, PLAN, format!("Topic: {}", state.topic))
            .await?
            .lines()
            .map(|line| line.trim().trim_start_matches(['-', '*', ' ']).to_owned())
            .filter(|line| !line.is_empty())
            .take(5)
            .collect();
    anyhow::ensure!(!questions.is_empty(), "the model planned no questions");
    ctx.emit(json!({"stage": "planned", "questions": questions}));
    // A thread may have an earlier report, whose notes do not belong to this one.
    let update = Report::update().questions(questions);
    Ok(update
        .set_findings(Vec::new())
        .set_remarks(Vec::new())
        .set_drafts(0u32))
}

/// One task per question.
fn search_each(state: &Report) -> Vec<Target> {
    let questions = state.questions.iter();
    questions.map(|query| goto("search").with(query)).collect()
}

async fn search(
    Arg(query): Arg<String>,
    model: Dep<dyn ChatModel>,
    ctx: Ctx,
) -> Result<Update<Report>> {
    ctx.emit(json!({"stage": "search", "question": query}));
    let result = call_model(&ctx, &*model.0, SEARCH, query.clone()).await?;
    ctx.emit(json!({"stage": "found", "question": query}));
    Ok(Report::update().findings(Finding { query, result }))
}

/// The part of the state that writing reads.
#[derive(State)]
struct Notes {
    topic: String,
    #[state(append)]
    findings: Vec<Finding>,
    #[state(append)]
    remarks: Vec<String>,
}

async fn write(state: Notes, model: Dep<dyn ChatModel>, ctx: Ctx) -> Result<Update<Report>> {
    ctx.emit(json!({"stage": "write", "remarks": state.remarks.len()}));
    let mut notes = format!("Topic: {}\n", state.topic);
    for Finding { query, result } in &state.findings {
        notes += &format!("Note: {query} {result}\n");
    }
    for remark in &state.remarks {
        notes += &format!("Remark: {remark}\n");
    }
    let draft = call_model(&ctx, &*model.0, WRITE, notes).await?;
    Ok(Report::update().draft(draft).drafts(1u32))
}

/// The part of the state that reviewing reads.
#[derive(State)]
struct Draft {
    draft: String,
    #[state(merge = add)]
    drafts: u32,
}

async fn review(state: Draft, model: Dep<dyn ChatModel>, ctx: Ctx) -> Result<Command<Report>> {
    ctx.emit(json!({"stage": "review", "draft": state.drafts}));
    let verdict = call_model(&ctx, &*model.0, REVIEW, state.draft).await?;
    let good = verdict
        .trim()
        .trim_end_matches('.')
        .eq_ignore_ascii_case("ok");
    Ok(if good || state.drafts >= MOST_DRAFTS {
        Command::from(goto("approve"))
    } else {
        Report::update().remarks(verdict).goto("write")
    })
}

/// The resume value of a human: yes or no, or what to change.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Verdict {
    Publish(bool),
    Change(String),
}

async fn approve(state: Draft, ctx: Ctx) -> Result<Command<Report>> {
    let request = json!({
        "question": "Publish this report?",
        "answers": "true, false, or a text that says what to change",
        "draft": state.draft,
    });
    let verdict: Verdict = ctx.interrupt(request).await;
    Ok(match verdict {
        Verdict::Publish(true) => {
            ctx.emit(json!({"stage": "published"}));
            Report::update().report(state.draft).goto(END)
        }
        Verdict::Publish(false) => {
            ctx.emit(json!({"stage": "dropped"}));
            Command::from(goto(END))
        }
        Verdict::Change(remark) => Report::update().remarks(remark).goto("write"),
    })
}

/// The desk with this model.
pub fn graph(model: &Model) -> Result<Arc<Compiled>, Invalid> {
    let leads_to = |nodes: [&'static str; 2]| NodeOpts::new().destinations(nodes);
    Graph::<Report>::new()
        .provide(model.or(ScriptedModel::new(script::reply).pace(PACE)))
        .input(["topic"])
        .node("plan", plan)
        .node_with("search", search, NodeOpts::new().retry(Retry::times(2)))
        .node("write", write)
        .node_with("review", review, leads_to(["write", "approve"]))
        .node_with("approve", approve, leads_to(["write", END]))
        .edge(START, "plan")
        .route("plan", search_each, ["search"])
        .edge("search", "write")
        .edge("write", "review")
        .build()
}
