//! Assistants with their versions.

mod rows;

use std::sync::Arc;

use const_format::formatcp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use self::rows::{assistant_of, encoded, version_of};
use super::{
    columns::{id, json_map, map_text, one},
    connection::Writing,
    counts,
};
use crate::{
    assistants::{
        Change, Content, Limits,
        request::{Columns, Filter, Search, SortBy},
        store::{
            AssistantRow, ChangedAssistant, CreatedAssistant, NewAssistant, SYSTEM, Subject,
            VersionQuery, VersionRow, next_content,
        },
    },
    checkpoint::{Error, Result},
    id::AssistantId,
    time::Timestamp,
    value::contains_map,
};

/// What a row of either table has, in the order in which it is read.
const COLUMNS: &str =
    "version, graph_id, name, description, metadata, type, config, context, created_at";

const BY_ID: &str = formatcp!(
    "SELECT {COLUMNS}, updated_at, assistant_id, owner FROM assistants WHERE assistant_id = ?1"
);

const OWNER: &str = "SELECT owner, graph_id FROM assistants WHERE assistant_id = ?1";

/// What is not requested is not read.
const SHOWN: &str = "SELECT version, graph_id, name, description, CASE WHEN ?2 THEN metadata ELSE '{}' END, type, \
     CASE WHEN ?3 THEN config END, CASE WHEN ?4 THEN context END, created_at, updated_at, assistant_id, owner \
     FROM assistants WHERE assistant_id = ?1";

const INSERT: &str = formatcp!(
    "INSERT INTO assistants ({COLUMNS}, updated_at, assistant_id, owner) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11)"
);

const INSERT_VERSION: &str = formatcp!(
    "INSERT INTO assistant_versions ({COLUMNS}, assistant_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
);

const ACTIVATE: &str = "UPDATE assistants SET version = ?1, graph_id = ?2, name = ?3, \
     description = ?4, metadata = ?5, type = ?6, config = ?7, context = ?8, updated_at = ?9 \
     WHERE assistant_id = ?10";

const OWN: &str = "UPDATE assistants SET owner = '' WHERE assistant_id = ?1";

const DELETE_CRONS: &str = "DELETE FROM crons WHERE assistant_id = ?1";

const DELETE: &str = "DELETE FROM assistants WHERE assistant_id = ?1";

const DELETE_VERSIONS: &str = "DELETE FROM assistant_versions WHERE assistant_id = ?1";

const LATEST_VERSION: &str =
    "SELECT max(version), count(*) FROM assistant_versions WHERE assistant_id = ?1";

const VERSION: &str =
    formatcp!("SELECT {COLUMNS} FROM assistant_versions WHERE assistant_id = ?1 AND version = ?2");

/// What clients put into a row of either table weighs.
const WEIGHT: &str = concat!(
    weight!("type", "config"),
    " + ",
    weight!("type", "context"),
    " + ",
    json_weight!("metadata"),
    " + octet_length(name) + coalesce(octet_length(description), 0)"
);

/// The same of what is requested of an assistant.
const WEIGHT_SHOWN: &str = concat!(
    "CASE WHEN ?3 THEN ",
    weight!("type", "config"),
    " ELSE 0 END + CASE WHEN ?4 THEN ",
    weight!("type", "context"),
    " ELSE 0 END + CASE WHEN ?2 THEN ",
    json_weight!("metadata"),
    " ELSE 0 END + octet_length(name) + coalesce(octet_length(description), 0)"
);

const VERSIONS: &str = formatcp!(
    "SELECT version, metadata, {WEIGHT} FROM assistant_versions WHERE assistant_id = ?1 ORDER BY version DESC"
);

/// Assistants in one order. What SQL cannot decide (containment, letters) is decided row by row.
macro_rules! page {
    ($owner:literal, $column:literal, $order:literal) => {
        formatcp!(
            "SELECT assistant_id, graph_id, name, metadata, {WEIGHT_SHOWN} \
             FROM assistants WHERE {owner} ORDER BY {column} {order}, assistant_id {order}",
            owner = $owner,
            column = $column,
            order = $order
        )
    };
}

/// Pages in each order, falling and rising, in the order of the words for it.
macro_rules! pages {
    ($owner:literal) => {
        [
            page!($owner, "assistant_id", "DESC"),
            page!($owner, "assistant_id", "ASC"),
            page!($owner, "created_at", "DESC"),
            page!($owner, "created_at", "ASC"),
            page!($owner, "updated_at", "DESC"),
            page!($owner, "updated_at", "ASC"),
            page!($owner, "name", "DESC"),
            page!($owner, "name", "ASC"),
            page!($owner, "graph_id", "DESC"),
            page!($owner, "graph_id", "ASC"),
        ]
    };
}

const ALL: [&str; 10] = pages!("?1 IS NULL");
const OWNED: [&str; 10] = pages!("owner IN (?1, '')");

fn by_id(db: &Connection, id: AssistantId) -> Result<Option<AssistantRow>> {
    one(db, BY_ID, [id], assistant_of)
}

/// Inserts a version, or makes it the one that counts: the statements bind the same.
fn write_version(
    db: &Writing<'_>,
    statement: &str,
    id: AssistantId,
    version: i32,
    content: &Content,
    now: Timestamp,
) -> Result<()> {
    let (tag, config, context) = encoded(content, db.format);
    db.prepare_cached(statement)?.execute(params![
        version,
        &*content.graph,
        content.name,
        content.description,
        map_text(&content.metadata),
        &*tag,
        config,
        context,
        now.0,
        id
    ])?;
    Ok(())
}

fn insert(db: &Writing<'_>, new: &NewAssistant, now: Timestamp) -> Result<()> {
    let (tag, config, context) = encoded(&new.content, db.format);
    db.prepare_cached(INSERT)?.execute(params![
        1,
        &*new.content.graph,
        new.content.name,
        new.content.description,
        map_text(&new.content.metadata),
        &*tag,
        config,
        context,
        now.0,
        new.id,
        &*new.owner
    ])?;
    write_version(db, INSERT_VERSION, new.id, 1, &new.content, now)
}

pub(super) fn put_system(db: &Writing<'_>, new: &[NewAssistant]) -> Result<()> {
    let now = Timestamp::now();
    for new in new {
        match by_id(db, new.id)? {
            None => insert(db, new, now)?,
            Some(row) if row.owner == new.owner && row.content == new.content => {}
            Some(_) => {
                db.prepare_cached(DELETE_VERSIONS)?.execute([new.id])?;
                db.prepare_cached(OWN)?.execute([new.id])?;
                write_version(db, INSERT_VERSION, new.id, 1, &new.content, now)?;
                write_version(db, ACTIVATE, new.id, 1, &new.content, now)?;
            }
        }
    }
    Ok(())
}

pub(super) fn create_assistant(
    db: &Writing<'_>,
    new: &NewAssistant,
    most: usize,
) -> Result<CreatedAssistant> {
    if let Some(row) = by_id(db, new.id)? {
        return Ok(CreatedAssistant::Exists(row));
    }
    if counts::is_full(db, "assistants", &new.owner, most)? {
        return Ok(CreatedAssistant::Full);
    }
    insert(db, new, Timestamp::now())?;
    let row = by_id(db, new.id)?.ok_or(Error::Fenced)?;
    Ok(CreatedAssistant::New(row))
}

pub(super) fn assistant(db: &Connection, subject: &Subject) -> Result<Option<AssistantRow>> {
    let (viewer, graphs) = (&subject.viewer, &subject.graphs);
    Ok(by_id(db, subject.id)?.filter(|row| is_visible(row, viewer, graphs)))
}

/// Whether there is this assistant for whom the operation acts; nothing of its content is read.
fn exists(db: &Connection, subject: &Subject) -> Result<bool> {
    let (viewer, graphs) = (&subject.viewer, &subject.graphs);
    let found = one(db, OWNER, [subject.id], |row| {
        let (owner, graph) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
        Ok(is_visible_to(owner, graph, viewer, graphs))
    })?;
    Ok(found.unwrap_or(false))
}

fn is_visible(row: &AssistantRow, viewer: &Option<Arc<str>>, graphs: &[Arc<str>]) -> bool {
    is_visible_to(&row.owner, &row.content.graph, viewer, graphs)
}

fn is_visible_to(owner: &str, graph: &str, viewer: &Option<Arc<str>>, graphs: &[Arc<str>]) -> bool {
    let viewer = viewer.as_ref();
    viewer.is_none_or(|viewer| **viewer == *owner || owner == SYSTEM)
        && graphs.iter().any(|known| **known == *graph)
}

pub(super) fn change_assistant(
    db: &Writing<'_>,
    subject: &Subject,
    change: &Change,
    limits: Limits,
) -> Result<ChangedAssistant> {
    let Some(row) = assistant(db, subject)? else {
        return Ok(ChangedAssistant::Missing);
    };
    let (latest, versions): (Option<i32>, i64) = db
        .prepare_cached(LATEST_VERSION)?
        .query_row([row.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let content = match next_content(&row, change, versions, limits) {
        Ok(content) => content,
        Err(refused) => return Ok(refused),
    };
    let (version, now) = (latest.unwrap_or(0) + 1, Timestamp::now());
    write_version(db, INSERT_VERSION, row.id, version, &content, now)?;
    write_version(db, ACTIVATE, row.id, version, &content, now)?;
    let changed = by_id(db, row.id)?.ok_or(Error::Fenced)?;
    Ok(ChangedAssistant::Done(Box::new(changed)))
}

pub(super) fn activate_version(
    db: &Writing<'_>,
    subject: &Subject,
    version: i64,
) -> Result<ChangedAssistant> {
    let Some(row) = assistant(db, subject)? else {
        return Ok(ChangedAssistant::Missing);
    };
    if &*row.owner == SYSTEM {
        return Ok(ChangedAssistant::System);
    }
    let found = db
        .prepare_cached(VERSION)?
        .query_row(params![row.id, version], version_of)
        .optional()?;
    let Some(found) = found else {
        return Ok(ChangedAssistant::NoVersion);
    };
    write_version(
        db,
        ACTIVATE,
        row.id,
        found.version,
        &found.content,
        Timestamp::now(),
    )?;
    let changed = by_id(db, row.id)?.ok_or(Error::Fenced)?;
    Ok(ChangedAssistant::Done(Box::new(changed)))
}

pub(super) fn delete_assistant(db: &Connection, subject: &Subject) -> Result<ChangedAssistant> {
    let Some(row) = assistant(db, subject)? else {
        return Ok(ChangedAssistant::Missing);
    };
    if &*row.owner == SYSTEM {
        return Ok(ChangedAssistant::System);
    }
    for sql in [DELETE_CRONS, DELETE_VERSIONS] {
        db.prepare_cached(sql)?.execute([row.id])?;
    }
    db.prepare_cached(DELETE)?.execute([row.id])?;
    Ok(ChangedAssistant::Done(Box::new(row)))
}

pub(super) fn assistant_versions(
    db: &Connection,
    subject: &Subject,
    query: &VersionQuery,
) -> Result<Option<Vec<(i32, u64)>>> {
    if !exists(db, subject)? {
        return Ok(None);
    }
    let mut statement = db.prepare_cached(VERSIONS)?;
    let mut rows = statement.query([subject.id])?;
    let (mut found, mut skip) = (Vec::new(), query.offset);
    while found.len() < query.limit
        && let Some(row) = rows.next()?
    {
        if !query.metadata.is_empty() && !contains_map(&json_map(row, 1)?, &query.metadata) {
            continue;
        }
        if skip > 0 {
            skip -= 1;
        } else {
            found.push((row.get(0)?, size(row, 2)?));
        }
    }
    Ok(Some(found))
}

pub(super) fn versions(
    db: &Connection,
    subject: &Subject,
    versions: &[i32],
) -> Result<Vec<VersionRow>> {
    if !exists(db, subject)? {
        return Ok(vec![]);
    }
    let id = subject.id.0;
    let rows = versions
        .iter()
        .map(|version| one(db, VERSION, params![id.as_bytes(), version], version_of));
    rows.filter_map(Result::transpose).collect()
}

fn size(row: &Row<'_>, column: usize) -> Result<u64> {
    let bytes: i64 = row.get(column)?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Calls `visit` with every assistant that passes the filter, until `visit` returns false.
fn each(
    db: &Connection,
    filter: &Filter,
    (order, columns): (usize, Columns),
    mut visit: impl FnMut(&Row<'_>) -> Result<bool>,
) -> Result<()> {
    let texts = if filter.viewer.is_some() { OWNED } else { ALL };
    let part = filter.name.as_ref().map(|name| name.to_lowercase());
    let mut statement = db.prepare_cached(texts[order])?;
    let Columns {
        metadata,
        config,
        context,
    } = columns;
    let viewer = filter.viewer.as_deref();
    let mut rows = statement.query(params![viewer, metadata, config, context])?;
    while let Some(row) = rows.next()? {
        let corrupt = |error: rusqlite::types::FromSqlError| Error::Corrupt(error.to_string());
        let graph = row.get_ref(1)?.as_str().map_err(corrupt)?;
        if !filter.graphs.iter().any(|known| **known == *graph) {
            continue;
        }
        if let Some(part) = &part {
            let name = row.get_ref(2)?.as_str().map_err(corrupt)?;
            if !name.to_lowercase().contains(part) {
                continue;
            }
        }
        if !filter.metadata.is_empty() && !contains_map(&json_map(row, 3)?, &filter.metadata) {
            continue;
        }
        if !visit(row)? {
            break;
        }
    }
    Ok(())
}

pub(super) fn search_assistants(
    db: &Connection,
    search: &Search,
    columns: Columns,
) -> Result<Vec<(AssistantId, u64)>> {
    let mut found = Vec::new();
    let mut skip = search.offset;
    let order = search.order(SortBy::ALL);
    each(db, &search.filter, (order, columns), |row| {
        if skip > 0 {
            skip -= 1;
        } else if found.len() < search.limit {
            found.push((id(row, 0)?, size(row, 4)?));
        }
        Ok(found.len() < search.limit)
    })?;
    Ok(found)
}

pub(super) fn assistants(
    db: &Connection,
    ids: &[AssistantId],
    viewer: &Option<Arc<str>>,
    graphs: &Arc<[Arc<str>]>,
    columns: Columns,
) -> Result<Vec<AssistantRow>> {
    let Columns {
        metadata,
        config,
        context,
    } = columns;
    let rows = ids.iter().map(|id| {
        let key = params![id, metadata, config, context];
        let found = one(db, SHOWN, key, assistant_of)?;
        Ok(found.filter(|row| is_visible(row, viewer, graphs)))
    });
    rows.filter_map(Result::transpose).collect()
}

pub(super) fn count_assistants(db: &Connection, filter: &Filter) -> Result<u64> {
    let mut count = 0;
    each(db, filter, (0, Columns::NONE), |_| {
        count += 1;
        Ok(true)
    })?;
    Ok(count)
}
