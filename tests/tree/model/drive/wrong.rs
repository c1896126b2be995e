//! Requests that make no sense: refused, and nothing changes.

use serde_json::{Value, json};

use super::{Case, Differs, NOBODY, Op, pick};

impl Case<'_> {
    pub(super) fn wrong(&mut self, at: usize, op: &Op) -> Result<(), Differs> {
        let run = |mut body: Value| {
            body["assistant_id"] = json!("agent");
            body["input"] = json!({"messages": [{"role": "user", "content": "never"}]});
            body
        };
        let say = |mut body: Value| {
            body["role"] = json!("user");
            body["content"] = json!("never");
            body
        };
        // What another thread has and this one does not see.
        let message = (0..self.world.nodes.len()).filter(|node| !self.world.sees(at, *node));
        let message: Vec<String> = message
            .map(|node| self.world.nodes[node].id.clone())
            .filter(|id| {
                let mut own = self.world.seen(at).into_iter();
                own.all(|node| self.world.nodes[node].id != *id)
            })
            .collect();
        let mine: Vec<String> = [self.world.visible(at), vec![]]
            .concat()
            .into_iter()
            .map(|point| self.world.points[point].id.clone())
            .collect();
        let points = self.world.points.iter();
        let point: Vec<String> = points
            .map(|point| point.id.clone())
            .filter(|id| !mine.contains(id))
            .collect();
        let message = pick(&message, op.b).unwrap_or_else(|| NOBODY.to_owned());
        let point = pick(&point, op.b).unwrap_or_else(|| NOBODY.to_owned());
        let unknown = uuid::Uuid::parse_str(&message).is_ok();
        let no_parent = if unknown {
            (404, "message_not_found")
        } else {
            (400, "invalid_id")
        };
        let known = json!({"message_id": message});
        let here = json!({"checkpoint_id": point});
        let (method, path, body, refused) = match op.a % 18 {
            0 => ("POST", "rewind", known, (404, "message_not_found")),
            1 => ("POST", "rewind", here, (404, "checkpoint_not_found")),
            2 => ("POST", "rewind", json!({}), (422, "invalid_request")),
            3 => (
                "POST",
                "rewind",
                json!({"branch": "none"}),
                (404, "branch_not_found"),
            ),
            4 => (
                "POST",
                "restore",
                json!({"tag": "none"}),
                (404, "tag_not_found"),
            ),
            5 => ("POST", "fork", known, (404, "message_not_found")),
            6 => ("POST", "fork", here, (404, "checkpoint_not_found")),
            7 => ("PUT", "tags/t0", known, (404, "message_not_found")),
            8 => ("PUT", "tags/no%20good", json!({}), (422, "invalid_request")),
            9 => (
                "POST",
                "messages",
                say(json!({"parent_id": message})),
                no_parent,
            ),
            10 => (
                "POST",
                "messages",
                say(json!({"branch": "none"})),
                (404, "branch_not_found"),
            ),
            11 => (
                "POST",
                "runs/wait",
                run(json!({"branch": "none"})),
                (404, ""),
            ),
            12 => ("POST", "runs/wait", run(here), (404, "")),
            13 => ("POST", "runs/wait", run(known), (404, "")),
            14 => (
                "POST",
                "branches/none/activate",
                json!({}),
                (404, "branch_not_found"),
            ),
            15 => (
                "DELETE",
                "branches/none",
                Value::Null,
                (404, "branch_not_found"),
            ),
            16 => (
                "POST",
                "branches",
                json!({"tag": "none"}),
                (404, "tag_not_found"),
            ),
            _ => {
                let mut body =
                    json!({"values": {"messages": [say(json!({}))]}, "as_node": "model"});
                body["checkpoint_id"] = here["checkpoint_id"].clone();
                ("POST", "state", body, (404, ""))
            }
        };
        self.expect(method, &self.of(at, path), &body, Err(refused))?;
        Ok(())
    }
}
