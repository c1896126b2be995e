//! Facts that the payloads of events take from other rows: before those rows are deleted or change
//! their parent the facts are stored beside the events, since a payload never changes.

use tokio_postgres::Client;
use uuid::Uuid;

use super::super::connection::Failure;
use crate::tree::event::codes::event_code;

/// Of `CheckpointCreated`: the checkpoint before, and what its run or edit added.
const CHECKPOINTS: &str = concat!(
    "
WITH m AS (
  SELECT COALESCE(run_id, checkpoint_id) AS by, jsonb_agg(message_id ORDER BY ordinal) AS ids,
         (array_agg(message_id ORDER BY ordinal DESC) FILTER (WHERE role = 'ai'))[1] AS answer
    FROM message_nodes WHERE tree_id = $1 AND kind = 'add' GROUP BY 1)
INSERT INTO event_facts (tree_id, thread_id, event_number, facts)
SELECT $1, e.thread_id, e.event_number,
       jsonb_build_object('parent_checkpoint_id', c.parent_checkpoint_id, 'message_ids', COALESCE(m.ids, '[]'), 'source', c.source, 'step', c.step)
       || CASE WHEN m.answer IS NULL THEN '{}' ELSE jsonb_build_object('ai_message_id', m.answer) END
  FROM events e JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = e.checkpoint_id
  LEFT JOIN m ON m.by = COALESCE(c.run_id, c.checkpoint_id)
 WHERE e.tree_id = $1 AND e.kind = ",
    event_code!(CHECKPOINT_CREATED),
    " AND e.checkpoint_id = ANY($2)
ON CONFLICT DO NOTHING"
);

/// Of `LLMResponseGenerated`: the message of the user above.
const RESPONSES: &str = concat!(
    "
WITH RECURSIVE up AS (
  SELECT e.thread_id, e.event_number, n.parent_node_id AS next, NULL::text AS question
    FROM events e JOIN message_nodes n ON n.tree_id = $1 AND n.checkpoint_id = e.checkpoint_id AND n.message_id = e.message_id AND n.kind = 'add'
   WHERE e.tree_id = $1 AND e.kind = ",
    event_code!(LLM_RESPONSE_GENERATED),
    " AND e.checkpoint_id = ANY($2)
  UNION ALL
  SELECT u.thread_id, u.event_number, n.parent_node_id, CASE WHEN n.role = 'human' THEN n.message_id END
    FROM up u JOIN message_nodes n ON n.tree_id = $1 AND n.node_id = u.next WHERE u.question IS NULL)
INSERT INTO event_facts (tree_id, thread_id, event_number, facts)
SELECT $1, thread_id, event_number, jsonb_build_object('reply_to', question) FROM up WHERE question IS NOT NULL
ON CONFLICT DO NOTHING"
);

/// Stores the facts of events about checkpoints, before these change; and, when their `messages` are
/// deleted too, about those.
pub(in super::super) async fn store(
    client: &Client,
    tree: Uuid,
    checkpoints: &[Uuid],
    messages: bool,
) -> Result<(), Failure> {
    if checkpoints.is_empty() {
        return Ok(());
    }
    client.execute(CHECKPOINTS, &[&tree, &checkpoints]).await?;
    if messages {
        client.execute(RESPONSES, &[&tree, &checkpoints]).await?;
    }
    Ok(())
}
