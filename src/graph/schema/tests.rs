//! Tests of schemas: those of a graph, and mismatches of types.

use super::*;
use crate::prelude::{Deserialize, Graph, JsonSchema, START, Serialize, State};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Joke {
    text: String,
}

#[derive(State)]
struct Show {
    #[state(append)]
    all_jokes: Vec<Joke>,
    best: Option<Joke>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema counts")]
struct Settings {
    who: String,
}

#[test]
fn schemas_carry_the_struct_name_a_property_per_channel_and_shared_definitions() {
    async fn idle() {}
    let graph = Graph::<Show>::new()
        .context::<Settings>()
        .node("a", idle)
        .edge(START, "a")
        .output(["best"])
        .build()
        .expect("sound");
    let schemas = &graph.schemas;
    assert_eq!(schemas.state["title"], "Show");
    assert_eq!(schemas.state["properties"]["all_jokes"]["type"], "array");
    assert_eq!(
        schemas.state["properties"]["all_jokes"]["title"],
        "All Jokes"
    );
    assert_eq!(
        schemas.state["$defs"]["Joke"]["properties"]["text"]["type"],
        "string"
    );
    assert!(schemas.state["properties"]["best"].get("$defs").is_none());
    assert!(schemas.output["properties"].get("all_jokes").is_none());
    assert!(schemas.input["properties"].get("all_jokes").is_some());
    let context = schemas.context.as_ref().expect("a context schema");
    assert_eq!(context["title"], "Settings");
    assert_eq!(context["properties"]["who"]["type"], "string");
}

#[test]
fn schemas_have_the_keywords_of_the_author_enums_in_place_and_the_type_of_conversations() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Mood {
        Glad,
        Sad,
    }
    #[derive(State)]
    struct Talk {
        #[state(messages)]
        messages: Vec<crate::message::Message>,
        #[state(schema(description = "How it sounds"))]
        mood: Option<Mood>,
        moods: Vec<Mood>,
        #[state(
            rename = "type",
            schema(title = "Kind of talk", minLength = 1, maxLength = 80)
        )]
        kind: String,
    }
    async fn idle() {}
    let graph = Graph::<Talk>::new().node("a", idle).edge(START, "a");
    let schema = graph.build().expect("sound").schemas.state.clone();
    let channels = &schema["properties"];
    assert_eq!(channels["messages"]["langgraph_type"], "messages");
    assert!(channels["kind"].is_null());
    assert_eq!(
        channels["type"],
        json!({"type": "string", "title": "Kind of talk", "minLength": 1, "maxLength": 80})
    );
    assert_eq!(
        channels["moods"]["items"],
        json!({"type": "string", "enum": ["glad", "sad"]})
    );
    assert_eq!(channels["mood"]["description"], "How it sounds");
    assert_eq!(channels["mood"]["anyOf"][0]["enum"], json!(["glad", "sad"]));
    assert!(schema["$defs"].get("Mood").is_none());
}

fn of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

#[test]
fn schemas_differ_when_no_value_fits_both() {
    assert!(mismatch(&of::<String>(), &of::<u32>()).is_some());
    assert!(mismatch(&of::<Vec<String>>(), &of::<Vec<u32>>()).is_some());
    assert!(mismatch(&of::<Joke>(), &of::<String>()).is_some());
    assert!(mismatch(&of::<Vec<Joke>>(), &of::<Vec<bool>>()).is_some());
    assert!(mismatch(&of::<Option<String>>(), &of::<Option<u32>>()).is_some());
}

#[test]
fn schemas_agree_when_some_value_fits_both() {
    assert_eq!(mismatch(&of::<Option<String>>(), &of::<String>()), None);
    assert_eq!(mismatch(&of::<f64>(), &of::<u32>()), None);
    assert_eq!(mismatch(&of::<Option<Joke>>(), &of::<Joke>()), None);
    assert_eq!(mismatch(&of::<crate::value::Value>(), &of::<Joke>()), None);
    assert_eq!(mismatch(&json!({}), &of::<u32>()), None);
    assert_eq!(mismatch(&of::<Vec<Joke>>(), &of::<Vec<Joke>>()), None);
}
