//! Branches that come into being with the first durable write of a run.

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    checkpoint::{Error, NewBranch},
    id::{CheckpointId, ThreadId, TreeId},
    time::Timestamp,
};

/// Creates a branch, unless it is there already: a call sent again after a lost answer.
pub(super) fn open(db: &Connection, new: &NewBranch, now: Timestamp) -> Result<(), Error> {
    let source = &new.source;
    let tree = source.tree.0.as_bytes();
    let there = db
        .prepare_cached("SELECT 1 FROM branches WHERE tree_id = ?1 AND branch_id = ?2")?
        .exists(params![tree, new.id.0.as_bytes()])?;
    if there {
        return Ok(());
    }
    let base_name: String = db
        .prepare_cached(
            "SELECT name FROM branches WHERE tree_id = ?1 AND branch_id = ?2 \
             AND writer_epoch = ?3",
        )?
        .query_row(
            params![tree, source.branch.0.as_bytes(), source.epoch],
            |row| row.get(0),
        )
        .optional()?
        .ok_or(Error::Fenced)?;
    let name = free_name(db, source.tree, source.thread, &base_name)?;
    let copied = match new.base {
        Some(base) if new.copy_writes => Some(creation_id(db, source.tree, base)?),
        _ => None,
    };
    db.prepare_cached(
        "INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, \
         head_depth, writer_epoch, origin, source_branch_id, creation_id, run_id, created_at, \
         updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8, ?9, ?10, ?11, ?11)",
    )?
    .execute(params![
        tree,
        new.id.0.as_bytes(),
        source.thread.0.as_bytes(),
        name,
        new.base.as_ref().map(|id| id.0.as_bytes()),
        new.base_depth,
        new.origin,
        source.branch.0.as_bytes(),
        copied.as_ref().map(|id| id.0.as_bytes()),
        new.run.as_ref().map(|id| id.0.as_bytes()),
        now.0,
    ])?;
    if let Some(base) = new.base
        && new.copy_writes
    {
        copy_writes(db, new, base)?;
    }
    if new.activate {
        db.prepare_cached(
            "UPDATE threads SET active_branch_id = ?1, updated_at = ?2 WHERE thread_id = ?3",
        )?
        .execute(params![
            new.id.0.as_bytes(),
            now.0,
            source.thread.0.as_bytes()
        ])?;
    }
    if let Some(run) = new.run {
        db.prepare_cached(
            "UPDATE runs SET branch_id = ?1, epoch = 1, base_checkpoint_id = ?2, updated_at = ?3 \
             WHERE run_id = ?4 AND tree_id = ?5",
        )?
        .execute(params![
            new.id.0.as_bytes(),
            new.base.as_ref().map(|id| id.0.as_bytes()),
            now.0,
            run.0.as_bytes(),
            tree
        ])?;
    }
    Ok(())
}

/// `main` gives `main-v2`, then `main-v3`, whatever names users took.
fn free_name(db: &Connection, tree: TreeId, thread: ThreadId, base: &str) -> Result<String, Error> {
    let names: Vec<String> = db
        .prepare_cached("SELECT name FROM branches WHERE tree_id = ?1 AND thread_id = ?2")?
        .query_map(params![tree.0.as_bytes(), thread.0.as_bytes()], |row| {
            row.get(0)
        })?
        .collect::<Result<_, _>>()?;
    Ok(auto_name(base, &names))
}

/// The number is one more than the names of the same family, then the next free one.
fn auto_name(base: &str, taken: &[String]) -> String {
    let same_family = |name: &String| {
        name.strip_prefix(base).is_some_and(|rest| {
            rest.is_empty()
                || rest.strip_prefix("-v").is_some_and(|digits| {
                    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
                })
        })
    };
    let mut number = 1 + taken.iter().filter(|name| same_family(name)).count();
    loop {
        let name = format!("{base}-v{number}");
        if !taken.contains(&name) {
            return name;
        }
        number += 1;
    }
}

/// An id above every subgraph row below `base`: those belong to the copy too.
fn creation_id(db: &Connection, tree: TreeId, base: CheckpointId) -> Result<CheckpointId, Error> {
    let newest: Option<[u8; 16]> = db
        .prepare_cached(
            "SELECT max(checkpoint_id) FROM checkpoints WHERE tree_id = ?1 \
             AND root_checkpoint_id = ?2 AND checkpoint_ns <> ''",
        )?
        .query_row(params![tree.0.as_bytes(), base.0.as_bytes()], |row| {
            row.get(0)
        })?;
    let newest = newest.map(|bytes| CheckpointId(uuid::Uuid::from_bytes(bytes)));
    Ok(CheckpointId::mint(0, [base].into_iter().chain(newest)))
}

/// Copies what the source holds at an interrupted checkpoint and in subgraphs stopped below it:
/// questions, answers, memoised steps and finished tasks.
///
/// When the source went on from there, a task that asked loses its result, so that the question
/// is open again on the copy.
fn copy_writes(db: &Connection, new: &NewBranch, base: CheckpointId) -> Result<(), Error> {
    db.prepare_cached(
        "INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, \
         task_id, idx, task_path, channel, type, writes) \
         SELECT w.tree_id, w.checkpoint_ns, w.checkpoint_id, ?4, w.task_id, w.idx, w.task_path, \
                w.channel, w.type, w.writes \
           FROM (SELECT '' AS ns, ?3 AS id UNION ALL \
                 SELECT checkpoint_ns, checkpoint_id FROM checkpoints \
                  WHERE tree_id = ?1 AND root_checkpoint_id = ?3 AND checkpoint_ns <> '') s \
           JOIN checkpoint_writes w ON w.tree_id = ?1 AND w.checkpoint_ns = s.ns \
            AND w.checkpoint_id = s.id AND w.branch_id = ?2 \
          WHERE w.channel IN ('__interrupt__', '__resume__', '__step__') \
             OR (EXISTS (SELECT 1 FROM checkpoint_writes o \
                  WHERE o.tree_id = w.tree_id AND o.checkpoint_ns = w.checkpoint_ns \
                    AND o.checkpoint_id = w.checkpoint_id AND o.branch_id = w.branch_id \
                    AND o.task_id = w.task_id AND o.idx = 0) \
             AND (EXISTS (SELECT 1 FROM branches b WHERE b.tree_id = ?1 AND b.branch_id = ?2 \
                           AND b.head_checkpoint_id = ?3) \
               OR NOT EXISTS (SELECT 1 FROM checkpoint_writes q \
                  WHERE q.tree_id = w.tree_id AND q.checkpoint_ns = w.checkpoint_ns \
                    AND q.checkpoint_id = w.checkpoint_id AND q.branch_id = w.branch_id \
                    AND q.task_id = w.task_id AND q.channel = '__interrupt__')))",
    )?
    .execute(params![
        new.source.tree.0.as_bytes(),
        new.source.branch.0.as_bytes(),
        base.0.as_bytes(),
        new.id.0.as_bytes(),
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::auto_name;

    #[test]
    fn automatic_names_count_their_family_and_skip_taken_ones() {
        let cases: [(&str, &[&str], &str); 6] = [
            ("main", &["main"], "main-v2"),
            ("main", &["main", "main-v2"], "main-v3"),
            ("main", &["main", "main-v3"], "main-v4"),
            ("main", &["main", "main-v2-v2", "main-vx"], "main-v2"),
            ("main-v2", &["main", "main-v2"], "main-v2-v2"),
            (
                "main",
                &["main", "main-v2", "main-v4", "main-v5"],
                "main-v6",
            ),
        ];
        for (base, taken, expected) in cases {
            let taken: Vec<String> = taken.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(auto_name(base, &taken), expected, "{base} {taken:?}");
        }
    }
}
