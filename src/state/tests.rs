//! Tests of states: decoding, updates and merging.

use super::*;
use crate::prelude::*;
use crate::value;

fn longest(old: String, new: u32) -> String {
    if old.len() >= new as usize {
        old
    } else {
        "x".repeat(new as usize)
    }
}

fn add(old: u32, new: u32) -> u32 {
    old + new
}

#[derive(State, Debug, PartialEq)]
struct All {
    plain: String,
    maybe: Option<String>,
    #[state(default)]
    fallback: u32,
    #[state(append)]
    list: Vec<String>,
    #[state(topic)]
    topic: Vec<u32>,
    #[state(merge = add)]
    sum: u32,
    #[state(merge = longest, update = u32)]
    text: String,
    #[state(ephemeral)]
    hint: Option<bool>,
    #[state(untracked)]
    client: Option<u32>,
    r#type: Option<String>,
}

fn state(value: Value) -> Map {
    value.as_map().cloned().expect("a map")
}

#[test]
fn fields_decode_from_channels_of_their_name() {
    let all = All::decode(&state(value!({
        "plain": "p", "maybe": "m", "fallback": 1, "list": ["a"], "topic": [2], "sum": 3,
        "text": "t", "hint": true, "client": 4, "type": "raw", "unknown": "ignored",
    })));
    let expected = All {
        plain: "p".into(),
        maybe: Some("m".into()),
        fallback: 1,
        list: vec!["a".into()],
        topic: vec![2],
        sum: 3,
        text: "t".into(),
        hint: Some(true),
        client: Some(4),
        r#type: Some("raw".into()),
    };
    assert_eq!(all, Ok(expected));
}

#[test]
fn absent_channels_read_as_their_initial_value() {
    let all = All::decode(&state(value!({ "plain": "p" }))).expect("only `plain` is required");
    assert_eq!(
        (
            all.maybe,
            all.fallback,
            all.list,
            all.topic,
            all.sum,
            all.hint
        ),
        (None, 0, vec![], vec![], 0, None)
    );
}

#[test]
fn an_absent_channel_without_initial_value_is_an_error_that_names_it() {
    let error = All::decode(&Map::new()).expect_err("`plain` is required");
    assert_eq!(error, Unreadable::Absent { channel: "plain" });
    assert!(error.to_string().contains("`plain`"));
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_channel_and_place() {
    let stored = value!({ "plain": "p", "list": ["a", 1] });
    let error = All::decode(&state(stored)).expect_err("1 is no text");
    assert!(matches!(
        error,
        Unreadable::Mismatch {
            channel: "list",
            ..
        }
    ));
    assert!(
        error.to_string().starts_with("channel `list`: [1]"),
        "{error}"
    );
}

#[test]
fn updates_keep_the_order_in_which_they_were_made() {
    let update = All::update()
        .list("a")
        .plain("p")
        .list(["b", "c"])
        .sum(2u32)
        .list(Vec::new());
    let writes = Writes::from(update).finish().expect("encodes");
    let writes: Vec<(&str, Value)> = writes.iter().map(|(c, v)| (&**c, v.clone())).collect();
    assert_eq!(
        writes,
        [
            ("list", value!(["a"])),
            ("plain", value!("p")),
            ("list", value!(["b", "c"])),
            ("sum", value!(2)),
            ("list", value!([])),
        ]
    );
}

#[test]
fn a_setter_for_the_whole_value_bypasses_the_reducer() {
    let writes = Writes::from(All::update().set_list(vec!["a".to_owned()]));
    let expected = crate::channel::overwrite(value!(["a"]));
    assert_eq!(writes.finish(), Ok(vec![("list".into(), expected)]));
}

#[test]
fn what_cannot_be_encoded_surfaces_when_the_update_is_finished() {
    #[derive(State)]
    struct Big {
        number: i128,
    }
    let writes = Writes::from(Big::update().number(i128::MAX));
    let error = writes.finish().expect_err("too large");
    assert_eq!(error.channel, "number");
}

#[test]
fn channels_come_in_the_order_of_the_fields() {
    let names: Vec<&str> = All::channels().iter().map(|channel| channel.name).collect();
    assert_eq!(
        names,
        [
            "plain", "maybe", "fallback", "list", "topic", "sum", "text", "hint", "client", "type"
        ]
    );
    assert_eq!(All::NAME, "All");
}

#[test]
fn a_route_answers_names_targets_and_lists() {
    let names = |route: anyhow::Result<Vec<Target>>| -> Vec<String> {
        let targets = route.expect("a route");
        targets.iter().map(|t| t.node().to_owned()).collect()
    };
    assert_eq!(names("a".into_route()), ["a"]);
    assert_eq!(names(["a", "b"].into_route()), ["a", "b"]);
    assert_eq!(names(None::<&str>.into_route()), [""; 0]);
    assert_eq!(
        names(vec![goto("a").with(1), goto("a").with(2)].into_route()),
        ["a", "a"]
    );
    assert_eq!(names(Result::<_>::Ok("a").into_route()), ["a"]);
    assert!(Err::<&str, _>(anyhow::anyhow!("no")).into_route().is_err());
}

#[test]
fn a_command_keeps_update_targets_and_addressee() {
    let command = All::update()
        .sum(1u32)
        .goto("a")
        .goto(goto("b").with(2))
        .to_parent();
    assert!(command.is_to_parent());
    let (writes, targets) = command.into_parts();
    assert_eq!(writes.finish(), Ok(vec![("sum".into(), value!(1))]));
    assert_eq!(targets, [goto("a"), goto("b").with(2)]);
}

mod renamed {
    pub use crate as stitch;
}

#[test]
fn the_derive_finds_the_crate_under_another_name() {
    #[derive(State)]
    #[state(crate = renamed::stitch)]
    struct Small {
        #[state(append)]
        list: Vec<u32>,
    }
    let small = Small::decode(&state(value!({ "list": [1] }))).expect("fits");
    assert_eq!(small.list, [1]);
}

#[test]
fn a_typed_reducer_starts_at_its_default_and_names_itself_in_errors() {
    let channels = All::channels();
    let find = |name| channels.iter().find(|channel| channel.name == name);
    let Some(crate::channel::Kind::Aggregate(sum)) = find("sum").map(|c| c.kind.clone()) else {
        panic!("`sum` is an aggregate")
    };
    assert_eq!(sum.initial(), &value!(0));
    assert_eq!(sum.fold(value!(2), &value!(3)), Ok(value!(5)));
    let error = sum
        .fold(value!(2), &value!("three"))
        .expect_err("no number");
    assert!(
        error.to_string().contains("reducer `add` failed"),
        "{error}"
    );
}

#[test]
fn setters_take_what_people_write() {
    #[derive(State)]
    struct Post {
        body: Option<String>,
        turns: u32,
        score: Option<f64>,
        #[state(merge = add)]
        likes: u32,
        #[state(rename = "type", append)]
        kinds: Vec<String>,
    }
    let text = "text".to_owned();
    let update = Post::update()
        .body("text")
        .body(&text)
        .body(text.clone())
        .body(Some(text))
        .body(None)
        .turns(1)
        .score(0.5)
        .likes(2)
        .set_likes(3)
        .kinds("blog")
        .set_kinds(["essay".to_owned()]);
    let writes = Writes::from(update).finish().expect("encodes");
    let shown: Vec<String> = writes
        .iter()
        .map(|(channel, value)| format!("{channel}={value}"))
        .collect();
    assert_eq!(
        shown.join(" "),
        "body=\"text\" body=\"text\" body=\"text\" body=\"text\" body=null turns=1 score=0.5 likes=2 \
         likes={\"__overwrite__\":3} type=[\"blog\"] type={\"__overwrite__\":[\"essay\"]}"
    );
}
