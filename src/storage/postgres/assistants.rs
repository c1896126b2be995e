//! Assistants with their versions.

mod rows;

use std::sync::Arc;

use const_format::formatcp;
use tokio_postgres::Row;
use uuid::Uuid;

use self::rows::{Bound, WEIGHT_SHOWN, assistant_of, content_of, version_of};
use super::{
    columns::{Json, Params, all, column, name, one},
    connection::{Object, Result, prepare},
    counts,
};
use crate::{
    assistants::{
        Change, Limits,
        request::{Columns, Filter, Search, SortBy},
        store::{
            AssistantRow, ChangedAssistant, CreatedAssistant, NewAssistant, SYSTEM, Subject,
            VersionQuery, VersionRow, next_content,
        },
    },
    checkpoint::Error,
    id::AssistantId,
};

const COLUMNS: &str = "assistant_id, owner, graph_id, version, name, description, metadata, type, config, context, created_at, updated_at";

const PUT_SYSTEM: &str = "
INSERT INTO assistants AS a (assistant_id, owner, graph_id, version, name, description, metadata, type, config, context)
VALUES ($1, '', $2, 1, $3, $4, $5, $6, $7, $8)
ON CONFLICT (assistant_id) DO UPDATE
   SET owner = '', graph_id = EXCLUDED.graph_id, version = 1, name = EXCLUDED.name, description = EXCLUDED.description,
       metadata = EXCLUDED.metadata, type = EXCLUDED.type, config = EXCLUDED.config, context = EXCLUDED.context, updated_at = now()
 WHERE a.owner <> '' OR a.config <> EXCLUDED.config OR a.context <> EXCLUDED.context OR a.type <> EXCLUDED.type
RETURNING assistant_id";

const DELETE_VERSIONS: &str = "DELETE FROM assistant_versions WHERE assistant_id = $1";

const CREATE: &str = formatcp!(
    "
INSERT INTO assistants (assistant_id, owner, graph_id, version, name, description, metadata, type, config, context)
VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9)
ON CONFLICT (assistant_id) DO NOTHING
RETURNING {COLUMNS}"
);

const INSERT_VERSION: &str = "
INSERT INTO assistant_versions (assistant_id, version, graph_id, name, description, metadata, type, config, context)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const BY_ID: &str = formatcp!("SELECT {COLUMNS} FROM assistants WHERE assistant_id = $1");

/// An assistant that its viewer sees.
macro_rules! visible {
    ($lock:literal) => {
        formatcp!(
            "SELECT {COLUMNS} FROM assistants
 WHERE assistant_id = $1 AND ($2::text IS NULL OR owner = $2 OR owner = '') AND graph_id = ANY($3){lock}",
            lock = $lock
        )
    };
}

const VISIBLE: &str = visible!("");
const LOCK: &str = visible!(" FOR UPDATE");

const LATEST_VERSION: &str = "
SELECT max(version) AS latest, count(*) AS versions FROM assistant_versions WHERE assistant_id = $1";

const VERSION: &str = "
SELECT version, graph_id, name, description, metadata, type, config, context, created_at FROM assistant_versions
 WHERE assistant_id = $1 AND version = $2";

const ACTIVATE: &str = formatcp!(
    "
UPDATE assistants SET version = $2, graph_id = $3, name = $4, description = $5, metadata = $6, type = $7, config = $8,
       context = $9, updated_at = now()
 WHERE assistant_id = $1
RETURNING {COLUMNS}"
);

const DELETE_CRONS: &str = "DELETE FROM crons WHERE assistant_id = $1";

const DELETE: &str = "DELETE FROM assistants WHERE assistant_id = $1";

/// What clients put into a row of either table weighs.
const WEIGHT: &str = concat!(
    "(",
    weight!("type", "config"),
    " + ",
    weight!("type", "context"),
    " + ",
    json_weight!("metadata::text"),
    " + octet_length(name) + COALESCE(octet_length(description), 0))::bigint AS weight"
);

const VERSIONS: &str = formatcp!(
    "
SELECT version, {WEIGHT} FROM assistant_versions
 WHERE assistant_id = $1 AND ($2::jsonb IS NULL OR metadata @> $2)
 ORDER BY version DESC LIMIT $3 OFFSET $4"
);

const THESE_VERSIONS: &str = "
SELECT version, graph_id, name, description, metadata, type, config, context, created_at FROM assistant_versions
 WHERE assistant_id = $1 AND version = ANY($2)
 ORDER BY version DESC";

/// What is not requested is not read.
const THESE: &str = "SELECT assistant_id, owner, graph_id, version, name, description, CASE WHEN $4::boolean THEN metadata ELSE '{}' END AS metadata, type,
       CASE WHEN $5::boolean THEN config END AS config, CASE WHEN $6::boolean THEN context END AS context, created_at, updated_at
  FROM assistants
 WHERE assistant_id = ANY($1) AND ($2::text IS NULL OR owner = $2 OR owner = '') AND graph_id = ANY($3)";

/// What of the filter every list has: graphs, metadata, a part of the name. Upper and lower case are one in ASCII, whatever
/// the locale of the database: both sides must be folded alike.
macro_rules! filtered {
    ($owner:literal, $rest:expr) => {
        formatcp!(
            " FROM assistants
 WHERE {owner} AND graph_id = ANY($2) AND ($3::jsonb IS NULL OR metadata @> $3)
   AND ($4::text IS NULL OR position(lower($4::text COLLATE \"C\") IN lower(name)) > 0){rest}",
            owner = $owner,
            rest = $rest
        )
    };
}

macro_rules! page {
    ($owner:literal, $column:literal, $order:literal) => {
        formatcp!(
            "SELECT assistant_id, {WEIGHT_SHOWN} {filtered}",
            filtered = filtered!(
                $owner,
                concat!(
                    "
 ORDER BY ",
                    $column,
                    " ",
                    $order,
                    ", assistant_id ",
                    $order,
                    " LIMIT $5 OFFSET $6"
                )
            )
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

const ALL: [&str; 10] = pages!("$1::text IS NULL");
const OWNED: [&str; 10] = pages!("owner IN ($1, '')");
const COUNT_ALL: &str = formatcp!(
    "SELECT count(*){filtered}",
    filtered = filtered!("$1::text IS NULL", "")
);
const COUNT_OWNED: &str = formatcp!(
    "SELECT count(*){filtered}",
    filtered = filtered!("owner IN ($1, '')", "")
);

/// What a subject is bound as: its id, its viewer and the graphs that are seen.
fn names(graphs: &[Arc<str>]) -> Vec<&str> {
    graphs.iter().map(|graph| &**graph).collect()
}

/// What a statement binds of an assistant: what comes first, and its content.
macro_rules! params {
    ($bound:ident, $($first:expr),+) => {
        [
            $($first,)+
            &$bound.graph,
            &$bound.name,
            &$bound.description,
            &$bound.metadata,
            &&*$bound.tag,
            &$bound.config,
            &$bound.context,
        ]
    };
}

async fn insert_version(
    db: &tokio_postgres::Transaction<'_>,
    statement: &tokio_postgres::Statement,
    id: AssistantId,
    version: i32,
    bound: &Bound<'_>,
) -> Result<()> {
    let params: Params<'_, 9> = params!(bound, &id.0, &version);
    db.execute(statement, &params).await?;
    Ok(())
}

pub(super) async fn put_system(db: &mut Object, all: &[NewAssistant]) -> Result<()> {
    let put = prepare(db, PUT_SYSTEM).await?;
    let delete = prepare(db, DELETE_VERSIONS).await?;
    let insert = prepare(db, INSERT_VERSION).await?;
    let format = db.format;
    // In one order, since replicas may start at once.
    let mut all: Vec<_> = all.iter().collect();
    all.sort_by_key(|new| new.id.0);
    let transaction = db.transaction().await?;
    for new in all {
        let bound = Bound::of(&new.content, format);
        let params: Params<'_, 8> = params!(bound, &new.id.0);
        if transaction.query_opt(&put, &params).await?.is_some() {
            transaction.execute(&delete, &[&new.id.0]).await?;
            insert_version(&transaction, &insert, new.id, 1, &bound).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn create_assistant(
    db: &mut Object,
    new: &NewAssistant,
    most: usize,
) -> Result<CreatedAssistant> {
    let create = prepare(db, CREATE).await?;
    let insert = prepare(db, INSERT_VERSION).await?;
    let find = prepare(db, BY_ID).await?;
    let count = prepare(db, counts::COUNT).await?;
    let bound = Bound::of(&new.content, db.format);
    let owner = name(&new.owner);
    let transaction = db.transaction().await?;
    let params: Params<'_, 9> = params!(bound, &new.id.0, &owner);
    let created = match transaction.query_opt(&create, &params).await? {
        Some(row) => {
            let kind = ("assistants", &*owner);
            if counts::is_over(&transaction, &count, kind, most).await? {
                return Ok(CreatedAssistant::Full);
            }
            insert_version(&transaction, &insert, new.id, 1, &bound).await?;
            CreatedAssistant::New(assistant_of(&row)?)
        }
        None => {
            let row = transaction.query_opt(&find, &[&new.id.0]).await?;
            // Deleted in between: the caller may try again.
            let row = row.ok_or(Error::Fenced)?;
            CreatedAssistant::Exists(assistant_of(&row)?)
        }
    };
    transaction.commit().await?;
    Ok(created)
}

pub(super) async fn assistant(db: &Object, subject: &Subject) -> Result<Option<AssistantRow>> {
    let viewer = subject.viewer.as_deref().map(name);
    let params: Params<'_, 3> = [&subject.id.0, &viewer, &names(&subject.graphs)];
    one(db, VISIBLE, &params, assistant_of).await
}

/// The assistant of a subject, locked.
async fn locked(
    db: &tokio_postgres::Transaction<'_>,
    statement: &tokio_postgres::Statement,
    subject: &Subject,
) -> Result<Option<AssistantRow>> {
    let viewer = subject.viewer.as_deref().map(name);
    let params: Params<'_, 3> = [&subject.id.0, &viewer, &names(&subject.graphs)];
    let row = db.query_opt(statement, &params).await?;
    Ok(row.as_ref().map(assistant_of).transpose()?)
}

async fn activate(
    db: &tokio_postgres::Transaction<'_>,
    statement: &tokio_postgres::Statement,
    id: AssistantId,
    version: i32,
    bound: &Bound<'_>,
) -> Result<AssistantRow> {
    let params: Params<'_, 9> = params!(bound, &id.0, &version);
    Ok(assistant_of(&db.query_one(statement, &params).await?)?)
}

pub(super) async fn change_assistant(
    db: &mut Object,
    subject: &Subject,
    change: &Change,
    limits: Limits,
) -> Result<ChangedAssistant> {
    let lock = prepare(db, LOCK).await?;
    let latest = prepare(db, LATEST_VERSION).await?;
    let insert = prepare(db, INSERT_VERSION).await?;
    let update = prepare(db, ACTIVATE).await?;
    let format = db.format;
    let transaction = db.transaction().await?;
    let Some(row) = locked(&transaction, &lock, subject).await? else {
        return Ok(ChangedAssistant::Missing);
    };
    let numbers = transaction.query_one(&latest, &[&row.id.0]).await?;
    let versions: i64 = column(&numbers, "versions")?;
    let content = match next_content(&row, change, versions, limits) {
        Ok(content) => content,
        Err(refused) => return Ok(refused),
    };
    let version = column::<Option<i32>>(&numbers, "latest")?.unwrap_or(0) + 1;
    let bound = Bound::of(&content, format);
    insert_version(&transaction, &insert, row.id, version, &bound).await?;
    let changed = activate(&transaction, &update, row.id, version, &bound).await?;
    transaction.commit().await?;
    Ok(ChangedAssistant::Done(Box::new(changed)))
}

pub(super) async fn activate_version(
    db: &mut Object,
    subject: &Subject,
    version: i64,
) -> Result<ChangedAssistant> {
    let lock = prepare(db, LOCK).await?;
    let find = prepare(db, VERSION).await?;
    let update = prepare(db, ACTIVATE).await?;
    let format = db.format;
    let transaction = db.transaction().await?;
    let Some(row) = locked(&transaction, &lock, subject).await? else {
        return Ok(ChangedAssistant::Missing);
    };
    if &*row.owner == SYSTEM {
        return Ok(ChangedAssistant::System);
    }
    let Ok(version) = i32::try_from(version) else {
        return Ok(ChangedAssistant::NoVersion);
    };
    let Some(found) = transaction.query_opt(&find, &[&row.id.0, &version]).await? else {
        return Ok(ChangedAssistant::NoVersion);
    };
    let content = content_of(&found)?;
    let bound = Bound::of(&content, format);
    let changed = activate(&transaction, &update, row.id, version, &bound).await?;
    transaction.commit().await?;
    Ok(ChangedAssistant::Done(Box::new(changed)))
}

pub(super) async fn delete_assistant(
    db: &mut Object,
    subject: &Subject,
) -> Result<ChangedAssistant> {
    let lock = prepare(db, LOCK).await?;
    let delete = prepare(db, DELETE).await?;
    let delete_crons = prepare(db, DELETE_CRONS).await?;
    let transaction = db.transaction().await?;
    let Some(row) = locked(&transaction, &lock, subject).await? else {
        return Ok(ChangedAssistant::Missing);
    };
    if &*row.owner == SYSTEM {
        return Ok(ChangedAssistant::System);
    }
    transaction.execute(&delete_crons, &[&row.id.0]).await?;
    transaction.execute(&delete, &[&row.id.0]).await?;
    transaction.commit().await?;
    Ok(ChangedAssistant::Done(Box::new(row)))
}

pub(super) async fn assistant_versions(
    db: &Object,
    subject: &Subject,
    query: &VersionQuery,
) -> Result<Option<Vec<(i32, u64)>>> {
    if assistant(db, subject).await?.is_none() {
        return Ok(None);
    }
    let metadata = (!query.metadata.is_empty()).then(|| Json::of_map(&query.metadata));
    let (limit, offset) = (whole(query.limit), whole(query.offset));
    let params: Params<'_, 4> = [&subject.id.0, &metadata, &limit, &offset];
    let found = all(db, VERSIONS, &params, |row| {
        Ok((column(row, "version")?, size(row)?))
    });
    Ok(Some(found.await?))
}

pub(super) async fn versions(
    db: &Object,
    subject: &Subject,
    versions: &[i32],
) -> Result<Vec<VersionRow>> {
    if assistant(db, subject).await?.is_none() {
        return Ok(vec![]);
    }
    let params: Params<'_, 2> = [&subject.id.0, &versions];
    all(db, THESE_VERSIONS, &params, version_of).await
}

fn size(row: &Row) -> Result<u64, Error> {
    let weight: i64 = column(row, "weight")?;
    Ok(u64::try_from(weight).unwrap_or(0))
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) async fn search_assistants(
    db: &Object,
    search: &Search,
    columns: Columns,
) -> Result<Vec<(AssistantId, u64)>> {
    let filter = &search.filter;
    let texts = if filter.viewer.is_some() { OWNED } else { ALL };
    let metadata = (!filter.metadata.is_empty()).then(|| Json::of_map(&filter.metadata));
    let params: Params<'_, 9> = [
        &filter.viewer.as_deref().map(name),
        &names(&filter.graphs),
        &metadata,
        &filter.name.as_deref().map(name),
        &whole(search.limit),
        &whole(search.offset),
        &columns.metadata,
        &columns.config,
        &columns.context,
    ];
    all(db, texts[search.order(SortBy::ALL)], &params, |row| {
        Ok((AssistantId(column(row, "assistant_id")?), size(row)?))
    })
    .await
}

pub(super) async fn assistants(
    db: &Object,
    ids: &[AssistantId],
    viewer: &Option<Arc<str>>,
    graphs: &Arc<[Arc<str>]>,
    columns: Columns,
) -> Result<Vec<AssistantRow>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let params: Params<'_, 6> = [
        &ids,
        &viewer.as_deref().map(name),
        &names(graphs),
        &columns.metadata,
        &columns.config,
        &columns.context,
    ];
    all(db, THESE, &params, assistant_of).await
}

pub(super) async fn count_assistants(db: &Object, filter: &Filter) -> Result<u64> {
    let text = if filter.viewer.is_some() {
        COUNT_OWNED
    } else {
        COUNT_ALL
    };
    let metadata = (!filter.metadata.is_empty()).then(|| Json::of_map(&filter.metadata));
    let params: Params<'_, 4> = [
        &filter.viewer.as_deref().map(name),
        &names(&filter.graphs),
        &metadata,
        &filter.name.as_deref().map(name),
    ];
    let count = one(db, text, &params, |row| column::<i64>(row, "count")).await?;
    Ok(u64::try_from(count.unwrap_or(0)).unwrap_or(0))
}

statements!(
    PUT_SYSTEM,
    DELETE_VERSIONS,
    CREATE,
    INSERT_VERSION,
    BY_ID,
    VISIBLE,
    LOCK,
    LATEST_VERSION,
    VERSION,
    ACTIVATE,
    DELETE_CRONS,
    DELETE,
    VERSIONS,
    THESE_VERSIONS,
    THESE,
    ALL,
    OWNED,
    COUNT_ALL,
    COUNT_OWNED
);
