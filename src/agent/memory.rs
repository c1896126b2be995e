//! Tools by which an agent remembers what holds for longer than a conversation.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    extract::Ctx,
    llm::{Tool, tool},
};

/// Most bytes of a fact: it is a sentence or two.
const FACT: usize = 4096;

type Namespace = dyn Fn(&Ctx) -> anyhow::Result<Vec<String>> + Send + Sync;

/// Two tools for agents: `remember` stores a fact in the long-term memory that all threads share, `recall` finds
/// facts. Where a model for embeddings is set up it finds those that are nearest in meaning, else the first ones by key.
///
/// ```
/// use backstitch::{Local, agent::Memory, prelude::*};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let model = ScriptedModel::in_turn([
///     Message::ai("").calling("remember", json!({"fact": "Ada likes tea."})).into(),
///     Message::ai("Noted.").into(),
///     Message::ai("").calling("recall", json!({"about": "drinks"})).into(),
///     Message::ai("Tea.").into(),
/// ]);
/// let graph = agent(model).tools(Memory::new(["facts"]).tools()).build()?;
/// let local = Local::memory()?;
/// local.thread(&graph).invoke(json!({"messages": "I am Ada, and I like tea."})).await?;
/// // Another conversation.
/// let later = local.thread(&graph).invoke(json!({"messages": "What do I drink?"})).await?;
/// assert!(later["messages"][2]["content"].as_str().unwrap().contains("Ada likes tea."));
/// # anyhow::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a memory does nothing until an agent gets its tools"]
pub struct Memory {
    namespace: Arc<Namespace>,
    most: usize,
}

/// What is stored.
#[derive(Serialize, Deserialize)]
struct Fact {
    text: String,
}

/// Remembers a fact that will matter in other conversations too, such as what the user likes or has decided.
#[derive(Deserialize, JsonSchema)]
struct Remember {
    /// The fact, in a sentence that can be understood without this conversation.
    fact: String,
    /// The id of a recalled fact that is no longer true because of this one.
    replaces: Option<String>,
}

/// Recalls facts that were remembered, in this conversation or in others.
#[derive(Deserialize, JsonSchema)]
struct Recall {
    /// What they are about.
    about: String,
}

impl Memory {
    /// Facts under these labels. A server with keys has different items for each principal.
    pub fn new<L: Into<String>>(namespace: impl IntoIterator<Item = L>) -> Self {
        let labels: Vec<String> = namespace.into_iter().map(Into::into).collect();
        Self::with(move |_| Ok(labels.clone()))
    }

    /// Facts under labels that each run chooses, for example by a user in its config.
    ///
    /// ```
    /// use backstitch::{agent::Memory, prelude::*};
    ///
    /// let memory = Memory::with(|ctx: &Ctx| {
    ///     let user = ctx.config().configurable.get("user").and_then(Value::as_str);
    ///     Ok(vec!["facts".to_owned(), user.unwrap_or("nobody").to_owned()])
    /// });
    /// ```
    pub fn with(
        namespace: impl Fn(&Ctx) -> anyhow::Result<Vec<String>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            namespace: Arc::new(namespace),
            most: 10,
        }
    }

    /// At most so many facts are recalled at once; by default ten.
    pub fn at_most(mut self, facts: usize) -> Self {
        self.most = facts;
        self
    }

    /// Both tools.
    pub fn tools(self) -> [Arc<Tool>; 2] {
        [self.clone().remember(), self.recall()]
    }

    /// The tool `remember`.
    pub fn remember(self) -> Arc<Tool> {
        tool("remember", move |args: Remember, ctx: Ctx| {
            let memory = self.clone();
            async move {
                anyhow::ensure!(!args.fact.trim().is_empty(), "the fact is empty");
                anyhow::ensure!(
                    args.fact.len() <= FACT,
                    "a fact has at most {FACT} bytes: remember it in several"
                );
                let labels = (memory.namespace)(&ctx)?;
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                // By its text, so that a fact which is remembered twice is stored once.
                let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, args.fact.as_bytes()).to_string();
                let text = args.fact;
                ctx.remember(&labels, &id, Fact { text }).await?;
                if let Some(old) = args.replaces.filter(|old| *old != id) {
                    ctx.forget(&labels, &old).await?;
                }
                Ok(format!("Remembered as {id}."))
            }
        })
    }

    /// The tool `recall`.
    pub fn recall(self) -> Arc<Tool> {
        tool("recall", move |args: Recall, ctx: Ctx| {
            let memory = self.clone();
            async move {
                let labels = (memory.namespace)(&ctx)?;
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                let query = Some(&*args.about).filter(|about| !about.trim().is_empty());
                let found = ctx.search::<Fact>(&labels, query, memory.most).await?;
                if found.is_empty() {
                    return Ok("Nothing is remembered.".to_owned());
                }
                let lines = found
                    .into_iter()
                    .map(|item| format!("{}: {}", item.key, item.value.text));
                Ok(lines.collect::<Vec<_>>().join("\n"))
            }
        })
    }
}
