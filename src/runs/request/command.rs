//! The `command` of a run request.

use std::sync::Arc;

use crate::value::{Map, Value};

/// A command to the graph, in place of an input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Command {
    /// Channel writes, in order.
    pub update: Option<Vec<(Arc<str>, Value)>>,
    /// Resume value of interrupts: one value, or a map from interrupt ids to values.
    pub resume: Option<Value>,
    /// Nodes to run next.
    pub goto: Vec<Goto>,
}

/// A node to run next.
#[derive(Clone, Debug, PartialEq)]
pub enum Goto {
    /// With the state.
    Node(Arc<str>),
    /// With an input of its own.
    Send {
        /// The node.
        node: Arc<str>,
        /// Its input.
        input: Value,
    },
}

impl Command {
    /// Reads `{update, resume, goto}`; other fields are ignored and null is absent.
    ///
    /// # Errors
    /// What is wrong, in words, when a field has another form than the ones LangGraph knows:
    /// `update` is an object or a list of `[key, value]` pairs, `goto` a node name,
    /// `{node, input}`, or a list of these.
    pub fn parse(command: &Value) -> Result<Self, String> {
        let Value::Map(fields) = command else {
            return Err(format!(
                "`command` must be an object, not a {}",
                command.type_name()
            ));
        };
        let update = present(fields, "update").map(update).transpose()?;
        let resume = present(fields, "resume").cloned();
        let goto = match present(fields, "goto") {
            None => Vec::new(),
            Some(Value::List(items)) => items.iter().map(goto).collect::<Result<_, _>>()?,
            Some(one) => vec![goto(one)?],
        };
        Ok(Self {
            update,
            resume,
            goto,
        })
    }
}

fn present<'a>(map: &'a Map, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

fn update(value: &Value) -> Result<Vec<(Arc<str>, Value)>, String> {
    let refusal =
        || "`command.update` must be an object or a list of [key, value] pairs".to_owned();
    match value {
        Value::Map(map) => Ok(map.iter().map(|(k, v)| (k.clone(), v.clone())).collect()),
        Value::List(pairs) => pairs
            .iter()
            .map(|pair| match pair.as_list() {
                Some([Value::Str(key), value]) => Ok((key.clone(), value.clone())),
                _ => Err(refusal()),
            })
            .collect(),
        _ => Err(refusal()),
    }
}

fn goto(value: &Value) -> Result<Goto, String> {
    match value {
        Value::Str(node) => Ok(Goto::Node(node.clone())),
        Value::Map(map) => match map.get("node") {
            Some(Value::Str(node)) => Ok(Goto::Send {
                node: node.clone(),
                input: map.get("input").cloned().unwrap_or_default(),
            }),
            _ => Err("`command.goto` needs a `node` in each object".to_owned()),
        },
        _ => {
            Err("`command.goto` must be a node name, {node, input}, or a list of these".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn every_form_of_update_and_goto_is_read() {
        let command = Command::parse(&value!({
            "update": [["count", 5], ["log", ["x"]]],
            "goto": ["last", {"node": "first", "input": {"count": 3}}],
            "resume": null, "bogus": 1
        }))
        .unwrap();
        assert_eq!(command.update.unwrap()[0], ("count".into(), value!(5)));
        assert_eq!(command.resume, None);
        assert_eq!(
            command.goto,
            [
                Goto::Node("last".into()),
                Goto::Send {
                    node: "first".into(),
                    input: value!({"count": 3})
                }
            ]
        );
        let one = Command::parse(&value!({"update": {"a": null}, "goto": "x", "resume": false}));
        let one = one.unwrap();
        assert_eq!(one.update.unwrap(), [("a".into(), Value::Null)]);
        assert_eq!(one.resume, Some(Value::Bool(false)));
    }

    #[test]
    fn malformed_commands_say_which_field_is_wrong() {
        for (command, part) in [
            (value!([]), "`command`"),
            (value!({"update": 1}), "`command.update`"),
            (value!({"update": [["a"]]}), "`command.update`"),
            (value!({"goto": 1}), "`command.goto`"),
            (value!({"goto": [{"input": 1}]}), "`command.goto`"),
        ] {
            assert!(Command::parse(&command).unwrap_err().contains(part));
        }
    }
}
