//! The tools: one for each assistant that the client sees.

use std::{collections::HashMap, sync::Arc};

use futures::StreamExt;

use crate::{
    assistants::{
        Registered,
        request::{Columns, Filter, Search, SortBy},
    },
    http::{
        assistants::shown,
        json_rpc::Failure,
        server::{Call, Error},
    },
    id::AssistantId,
    value,
    value::{Map, Value},
};

/// The most assistants of clients that are tools: the oldest ones.
const MOST: usize = 1000;
/// How many are read at once.
const PAGE: usize = 50;
/// Bytes at which a page of the list ends.
const PAGE_BYTES: usize = 1 << 20;

/// A tool.
pub struct Tool {
    /// Its name: that of its assistant, with a number behind if an earlier one has it already.
    pub name: Arc<str>,
    /// The assistant.
    pub assistant: AssistantId,
    /// Its messages are a text, that of the user.
    pub takes_text: bool,
    description: Option<Arc<str>>,
    registered: Arc<Registered>,
}

impl Tool {
    fn new(
        name: Arc<str>,
        assistant: AssistantId,
        description: Option<Arc<str>>,
        registered: Arc<Registered>,
    ) -> Self {
        let takes = |name: &Arc<str>| registered.graph.messages.contains(name);
        let takes_text = registered
            .graph
            .input
            .iter()
            .any(|name| &**name == "messages" && takes(name));
        Self {
            name,
            assistant,
            takes_text,
            description,
            registered,
        }
    }

    fn to_value(&self) -> Value {
        let name = &self.name;
        let described = self.description.as_deref().filter(|text| !text.is_empty());
        let description = match described {
            Some(text) => text.to_owned(),
            None => format!("Tool based on the {name} assistant"),
        };
        value!({
            "name": (Value::Str(name.clone())),
            "title": (Value::Str(name.clone())),
            "description": description,
            "inputSchema": (self.schema()),
            "annotations": {
                "readOnlyHint": false,
                "destructiveHint": false,
                "idempotentHint": false,
                "openWorldHint": true
            }
        })
    }

    fn schema(&self) -> Value {
        let mut schema = Value::from_serde_json(self.registered.graph.schemas.input.clone());
        if self.takes_text
            && let Some(map) = schema.make_map_mut()
        {
            let properties = map.get_mut("properties").and_then(Value::make_map_mut);
            if let Some(properties) = properties {
                let text = value!({
                    "type": "string",
                    "title": "Messages",
                    "description": "The user message to send to the agent."
                });
                properties.insert("messages", text);
            }
            map.insert("required", value!(["messages"]));
        }
        schema
    }
}

/// A page of the tools.
pub async fn list(call: &Call, params: &Map) -> Result<Value, Failure> {
    let begin = match params.get("cursor") {
        None | Some(Value::Null) => Some(0),
        Some(Value::Str(cursor)) => cursor.parse().ok(),
        Some(_) => None,
    };
    let tools = all(call).await?;
    let Some(rest) = begin.and_then(|begin: usize| tools.get(begin..)) else {
        return Err(Failure::params(
            "Invalid cursor: take the `nextCursor` of a page",
        ));
    };
    let (mut page, mut bytes) = (vec![], 0);
    for tool in rest {
        if bytes >= PAGE_BYTES {
            break;
        }
        let shown = tool.to_value();
        bytes += shown.rough_size();
        page.push(shown);
    }
    let next = tools.len() - rest.len() + page.len();
    let mut map = Map::with_capacity(2);
    map.insert("tools", Value::list(page));
    if next < tools.len() {
        map.insert("nextCursor", next.to_string());
    }
    Ok(Value::map(map))
}

/// The tool of this name.
pub async fn find(call: &Call, name: &str) -> Result<Option<Tool>, Error> {
    // Names of the server's own assistants come first, so that nothing else has to be read.
    if let Some(registered) = call.assistants().named(name) {
        return Ok(Some(system(registered)));
    }
    let mut tools = all(call).await?;
    let found = tools.iter().position(|tool| &*tool.name == name);
    Ok(found.map(|at| tools.swap_remove(at)))
}

fn system(registered: Arc<Registered>) -> Tool {
    let name = registered.name.clone();
    let id = AssistantId::of_graph(&name);
    Tool::new(name, id, None, registered)
}

/// All tools: the server's own assistants by name, then those of clients, oldest first.
async fn all(call: &Call) -> Result<Vec<Tool>, Error> {
    let assistants = call.assistants();
    let names = assistants.graph_names();
    let own = names.iter().filter_map(|name| assistants.named(name));
    let mut tools: Vec<Tool> = own.map(system).collect();
    let own = tools.len();
    // Each with the number that the next tool of its name gets.
    let mut taken: HashMap<Arc<str>, u32> = names_of(&tools);
    let mut search = Search {
        filter: Filter {
            viewer: call.viewer(),
            ..Filter::default()
        },
        limit: PAGE,
        offset: 0,
        sort_by: SortBy::CreatedAt,
        ascending: true,
    };
    while search.offset < MOST + own {
        let found = assistants.search(search.clone(), Columns::NONE).await?;
        let count = found.len();
        let mut rows = shown(assistants.clone(), call.viewer(), found, Columns::NONE).items;
        while let Some(row) = rows.next().await {
            let row = row?;
            let text = |key: &str| row.get(key).and_then(Value::as_str);
            let (Some(id), Some(registered)) = (
                text("assistant_id").and_then(|id| id.parse().ok()),
                text("graph_id").and_then(|graph| assistants.named(graph)),
            ) else {
                continue;
            };
            if assistants.system(id).is_some() {
                continue;
            }
            let name = free(text("name").unwrap_or_default(), &mut taken);
            let description = text("description").map(Into::into);
            tools.push(Tool::new(name, id, description, registered));
        }
        if count < PAGE {
            break;
        }
        search.offset += PAGE;
    }
    Ok(tools)
}

fn names_of(tools: &[Tool]) -> HashMap<Arc<str>, u32> {
    tools.iter().map(|tool| (tool.name.clone(), 2)).collect()
}

/// A name that no other tool has, which is taken from then on.
fn free(name: &str, taken: &mut HashMap<Arc<str>, u32>) -> Arc<str> {
    let mut free: Arc<str> = name.into();
    while taken.contains_key(&free) {
        let next = taken.entry(name.into()).or_insert(2);
        free = format!("{name}-{next}").into();
        *next += 1;
    }
    taken.insert(free.clone(), 2);
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_the_first_free_number() {
        let mut taken = ["a", "a-2", "b"].map(|name| (name.into(), 2)).into();
        for (name, free_one) in [
            ("a", "a-3"),
            ("b", "b-2"),
            ("c", "c"),
            ("a", "a-4"),
            ("c", "c-2"),
            ("b-2", "b-2-2"),
        ] {
            assert_eq!(&*free(name, &mut taken), free_one);
        }
    }
}
