//! Facts that the payloads of events take from other rows: before those rows are deleted or change
//! their parent the facts are stored beside the events, since a payload never changes.

use tokio_postgres::Client;
use uuid::Uuid;

use super::super::connection::Result;
use crate::tree::event::codes::event_code;

/// Of `CheckpointCreated`: the checkpoint before, and what its run or edit added: the last messages
/// of its path. An event about a checkpoint is in the log of the thread that wrote it, and newer
/// than the newest event that the checkpoint before knew of.
const CHECKPOINTS: &str = concat!(
    "
WITH w AS MATERIALIZED (
  SELECT c.thread_id, min(COALESCE((SELECT p.event_number FROM checkpoints p
       WHERE p.tree_id = $1 AND p.checkpoint_ns = '' AND p.checkpoint_id = c.parent_checkpoint_id), 0)) AS number
    FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY($2) GROUP BY c.thread_id)
INSERT INTO event_facts (tree_id, thread_id, event_number, facts)
SELECT $1, e.thread_id, e.event_number - CASE WHEN e.kind = ",
    event_code!(CREATED_AND_FINISHED),
    " THEN 1 ELSE 0 END,
       jsonb_build_object('parent_checkpoint_id', c.parent_checkpoint_id, 'message_ids', COALESCE(m.ids, '[]'), 'source', c.source, 'step', c.step)
       || CASE WHEN m.answer IS NULL THEN '{}' ELSE jsonb_build_object('ai_message_id', m.answer) END
  FROM w CROSS JOIN LATERAL (SELECT e.* FROM events e WHERE e.tree_id = $1 AND e.thread_id = w.thread_id AND e.event_number > w.number
     AND e.kind IN (",
    event_code!(CHECKPOINT_CREATED),
    ", ",
    event_code!(CREATED_AND_FINISHED),
    ") AND CASE WHEN e.checkpoint_id IN (SELECT unnest($2::uuid[])) THEN true END OFFSET 0) e
 CROSS JOIN LATERAL (SELECT c.* FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = e.checkpoint_id LIMIT 1) c
 CROSS JOIN LATERAL (
   WITH RECURSIVE added AS (
     SELECT m.* FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = c.last_node_id
        AND COALESCE(m.run_id, m.checkpoint_id) = COALESCE(c.run_id, c.checkpoint_id)
     UNION ALL
     SELECT m.* FROM added a CROSS JOIN LATERAL (SELECT m.* FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = a.parent_node_id LIMIT 1) m
      WHERE COALESCE(m.run_id, m.checkpoint_id) = COALESCE(c.run_id, c.checkpoint_id))
   SELECT jsonb_agg(message_id ORDER BY ordinal) AS ids, (array_agg(message_id ORDER BY ordinal DESC) FILTER (WHERE role = 'ai'))[1] AS answer
     FROM added) m
ON CONFLICT DO NOTHING"
);

/// Of `LLMResponseGenerated`: the message of the user above.
const RESPONSES: &str = concat!(
    "
WITH RECURSIVE w AS MATERIALIZED (
  SELECT c.thread_id, min(COALESCE((SELECT p.event_number FROM checkpoints p
       WHERE p.tree_id = $1 AND p.checkpoint_ns = '' AND p.checkpoint_id = c.parent_checkpoint_id), 0)) AS number
    FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY($2) GROUP BY c.thread_id),
up AS (
  SELECT e.thread_id, e.event_number, n.parent_node_id AS next, NULL::text AS question
    FROM w CROSS JOIN LATERAL (SELECT e.* FROM events e WHERE e.tree_id = $1 AND e.thread_id = w.thread_id AND e.event_number > w.number
       AND e.kind = ",
    event_code!(LLM_RESPONSE_GENERATED),
    " AND CASE WHEN e.checkpoint_id IN (SELECT unnest($2::uuid[])) THEN true END OFFSET 0) e
   CROSS JOIN LATERAL (SELECT n.parent_node_id FROM message_nodes n
     WHERE n.tree_id = $1 AND n.checkpoint_id = e.checkpoint_id AND n.message_id = e.message_id AND CASE WHEN n.kind = 'add' THEN true END OFFSET 0) n
  UNION ALL
  SELECT u.thread_id, u.event_number, n.parent_node_id, CASE WHEN n.role = 'human' THEN n.message_id END
    FROM up u CROSS JOIN LATERAL (SELECT n.parent_node_id, n.role, n.message_id FROM message_nodes n WHERE n.tree_id = $1 AND n.node_id = u.next LIMIT 1) n
   WHERE u.question IS NULL)
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
) -> Result<()> {
    if checkpoints.is_empty() {
        return Ok(());
    }
    client.execute(CHECKPOINTS, &[&tree, &checkpoints]).await?;
    if messages {
        client.execute(RESPONSES, &[&tree, &checkpoints]).await?;
    }
    Ok(())
}

statements!(CHECKPOINTS, RESPONSES);
