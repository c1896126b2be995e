//! Items of long-term memory: stored, read, deleted, searched, and listed by namespace.

use std::{sync::Arc, time::Duration};

use hyper::{Response, StatusCode};

use super::{
    page::{self, LIST_DEFAULT},
    parse::fields::Fields,
    server::{Body, Call, Error, body},
};
use crate::{
    runs::listing::IN_MEMORY,
    store::{
        self, Index, Item, ItemQuery, Namespace, NamespaceQuery,
        field::Field,
        filter::Filter,
        memory::ItemMemory,
        namespace::{LABELS_MAX, Refused},
    },
    value::{Map, Value},
};

/// Length of a page of namespaces whose request does not name one.
const NAMESPACES_DEFAULT: i64 = 100;

/// `PUT /store/items`
pub(super) async fn put(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let namespace = labels(&fields, "namespace")?.ok_or_else(|| fields.required("namespace"))?;
    let key = key(&fields)?;
    let value = fields
        .map("value")?
        .ok_or_else(|| fields.required("value"))?;
    let index = index(&fields)?;
    let ttl = ttl(&fields)?;
    let value = Value::map(value.clone());
    let owner = call.principal();
    let stored = call
        .items()
        .put(&owner, namespace, key, value, (ttl, &index))
        .await;
    stored?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `GET /store/items`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let namespace = call.query.get("namespace").unwrap_or_default();
    let namespace: Namespace = namespace.split('.').map(str::to_owned).collect();
    refuse_nul(&namespace)?;
    store::namespace::check_labels(&namespace).map_err(store::Error::from)?;
    let key = call.query.get("key").filter(|key| !key.is_empty());
    let Some(key) = key else {
        // The form that LangGraph's server has for this one error.
        let error = Map::from([("error", Value::str("Key is required"))]);
        return Ok(body::json(StatusCode::BAD_REQUEST, &Value::map(error)));
    };
    let refresh = match call.query.get("refresh_ttl") {
        None => true,
        Some(_) => call.query.flag("refresh_ttl")?,
    };
    let owner = call.principal();
    let weight = call
        .items()
        .weight(&owner, namespace.clone(), key.to_owned());
    call.reserve_response(weight.await?.unwrap_or(0))?;
    let found = call.items().get(&owner, namespace, key.to_owned(), refresh);
    let item = found.await?.map(|item| Value::map(shown(item)));
    Ok(body::json(StatusCode::OK, &item.unwrap_or_default()))
}

/// `DELETE /store/items`
pub(super) async fn delete(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let namespace = labels(&fields, "namespace")?.unwrap_or_default();
    let key = key(&fields)?;
    // Nothing is stored without a namespace.
    if !namespace.is_empty() {
        let owner = call.principal();
        call.items().delete(&owner, namespace, key).await?;
    }
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /store/items/search`
pub(super) async fn search(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let filter = fields.map("filter")?.map(Filter::read).transpose();
    let (limit, offset) = page::range(&fields, LIST_DEFAULT)?;
    let query = ItemQuery {
        prefix: labels(&fields, "namespace_prefix")?.unwrap_or_default(),
        filter: filter
            .map_err(|reason| fields.refuse("filter", reason))?
            .unwrap_or_default(),
        text: fields.text("query")?.cloned(),
        limit,
        offset,
        refresh: fields.flag("refresh_ttl")?.unwrap_or(true),
        memory: Some(Arc::new(call.read_memory())),
    };
    let found = call.items().search(&call.principal(), query).await?;
    // Besides the bytes of all values there is one value at a time, and the text so far. All of it rarely takes more than
    // all values would, whose memory the search has taken.
    let weights = found.iter().map(|item| item.value.weight());
    let mut reserved = weights.sum::<u64>().saturating_mul(IN_MEMORY);
    let bytes: usize = found.iter().map(|item| item.value.bytes.len()).sum();
    let mut text = Vec::from(br#"{"items":["#);
    for (at, item) in found.into_iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        // Other requests have their turns between items.
        tokio::task::yield_now().await;
        let item = item.decode().map_err(store::Error::from)?;
        let value = item.value.memory();
        let score = item.score.map(|score| Value::from(f64::from(score)));
        let mut map = shown(item);
        map.insert("score", score.unwrap_or(Value::Null));
        Value::map(map).write_json(&mut text);
        let taken = (bytes + value + text.len()) as u64;
        if taken > reserved {
            // Control characters take six times their bytes.
            reserved = taken;
            if !call.read_memory().resize(reserved / IN_MEMORY) {
                return Err(store::Error::NoMemory.into());
            }
        }
    }
    text.extend_from_slice(b"]}");
    // It holds more than its text while it grows.
    text.shrink_to_fit();
    if (text.len() as u64) < reserved {
        call.read_memory().resize(text.len() as u64 / IN_MEMORY);
    }
    Ok(body::json_text(StatusCode::OK, text))
}

/// `POST /store/namespaces`
pub(super) async fn namespaces(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let (limit, offset) = page::range(&fields, NAMESPACES_DEFAULT)?;
    let max_depth = fields.integer("max_depth", 1, i64::MAX)?;
    let query = NamespaceQuery {
        prefix: labels(&fields, "prefix")?.unwrap_or_default(),
        suffix: labels(&fields, "suffix")?.unwrap_or_default(),
        max_depth: max_depth.map(|depth| usize::try_from(depth).unwrap_or(LABELS_MAX)),
        limit,
        offset,
    };
    let found = call.items().namespaces(&call.principal(), query).await?;
    let found = found.into_iter().map(Value::from_iter);
    let found = Map::from([("namespaces", Value::list(found.collect()))]);
    Ok(body::json(StatusCode::OK, &Value::map(found)))
}

fn labels(fields: &Fields<'_>, name: &str) -> Result<Option<Namespace>, Error> {
    let labels = fields.texts(name)?;
    let labels: Option<Namespace> =
        labels.map(|labels| labels.iter().map(|label| label.to_string()).collect());
    refuse_nul(labels.as_deref().unwrap_or_default())?;
    Ok(labels)
}

/// Labels of nodes may have it; clients know it as an error of LangGraph's server.
fn refuse_nul(labels: &[String]) -> Result<(), Error> {
    if labels.iter().any(|label| label.contains('\0')) {
        return Err(Error::bad_request("Namespace labels cannot contain NUL"));
    }
    Ok(())
}

fn key(fields: &Fields<'_>) -> Result<String, Error> {
    let key = fields.text("key")?;
    Ok(key.ok_or_else(|| fields.required("key"))?.to_string())
}

/// Minutes, and fractions of them.
fn ttl(fields: &Fields<'_>) -> Result<Option<Duration>, Error> {
    let Some(minutes) = fields.number("ttl")? else {
        return Ok(None);
    };
    if !minutes.is_finite() || minutes <= 0.0 {
        let reason = "A time to live is a number of minutes above 0";
        return Err(fields.refuse("ttl", reason));
    }
    // Longer ones are cut, where they are stored, to what databases know.
    Ok(Some(
        Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(Duration::MAX),
    ))
}

/// Which texts are embedded: false for none, or a list of paths.
fn index(fields: &Fields<'_>) -> Result<Index, Error> {
    match fields.any("index") {
        None => Ok(Index::Default),
        Some(Value::Bool(false)) => Ok(Index::Off),
        Some(Value::List(_)) => {
            let paths = fields.texts("index")?.unwrap_or_default();
            let paths = paths.iter().map(|path| Field::parse(path));
            let paths = paths.collect::<Result<_, _>>();
            Ok(Index::Fields(
                paths.map_err(|reason| fields.refuse("index", reason))?,
            ))
        }
        Some(_) => Err(fields.refuse("index", "It must be false or a list of paths")),
    }
}

fn shown(item: Item) -> Map {
    Map::from([
        ("namespace", Value::from_iter(item.namespace)),
        ("key", item.key.into()),
        ("value", item.value),
        ("created_at", item.created_at.to_string().into()),
        ("updated_at", item.updated_at.to_string().into()),
    ])
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        use store::Error as E;
        match &error {
            E::Namespace(Refused::Empty) => Self::bad_request("Namespace cannot be empty."),
            E::Namespace(Refused::Reserved(namespace)) => reserved(namespace),
            E::Namespace(Refused::EmptyLabel) => bad_label(""),
            E::Namespace(Refused::Period(label)) => bad_label(label),
            E::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
            E::Full(_) => Self::conflict(error.to_string()),
            E::TooMuchToReturn { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
            }
            E::NoMemory => Self::unavailable(error.to_string()),
            E::Embedding(_) => {
                tracing::warn!(%error, "an item could not be embedded");
                Self::unavailable("The embedding model failed. Try again later.")
            }
            E::Namespace(_) | E::TooDeep | E::TooMuchToRead { .. } | E::TooManyTexts { .. } => {
                Self::invalid(error.to_string())
            }
            E::Storage(_) => match error {
                E::Storage(error) => error.into(),
                other => Self::internal(&other),
            },
        }
    }
}

/// In the words of LangGraph's server, which shows the labels as Python does.
fn reserved(namespace: &[String]) -> Error {
    let labels: Vec<_> = namespace.iter().map(|label| format!("'{label}'")).collect();
    let comma = if labels.len() == 1 { "," } else { "" };
    let shown = format!("({}{comma})", labels.join(", "));
    Error::bad_request(format!(
        "Root label for namespace cannot be \"langgraph\". Got: {shown}"
    ))
}

fn bad_label(label: &str) -> Error {
    let label: String = label.chars().take(80).collect();
    Error::invalid(format!(
        "Namespace label '{label}' must be a non-empty string without periods"
    ))
}
