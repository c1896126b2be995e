//! Which events a client subscribes to, as it says in a body or in a command.

use std::sync::Arc;

use crate::{
    http::{parse::fields::Fields, server::Error},
    stream::protocol::{Channels, Filter, Method},
    value::Value,
};

/// Most namespaces of one subscription: each event is compared with all of them.
const NAMESPACES: usize = 1000;
/// Most channels, names of custom events included.
const CHANNELS: usize = 1000;

/// A subscription.
#[derive(Clone, Debug, Default)]
pub struct Subscription {
    pub filter: Filter,
    /// The events after this one; from the first on without.
    pub since: u64,
}

impl Subscription {
    /// Reads `{channels, namespaces?, depth?, since?}`.
    ///
    /// # Errors
    /// 400 with what is wrong.
    pub fn read(body: &Value) -> Result<Self, Error> {
        let fields = Fields::of(body).map_err(bad_request)?;
        let count = |name| fields.integer(name, 0, i64::MAX).map_err(bad_request);
        let depth = count("depth")?;
        let since = count("since")?;
        Ok(Self {
            filter: Filter {
                channels: channels(&fields)?,
                namespaces: namespaces(&fields)?,
                depth: depth.map(|depth| usize::try_from(depth).unwrap_or(usize::MAX)),
            },
            since: since.map_or(0, i64::unsigned_abs),
        })
    }
}

fn channels(fields: &Fields<'_>) -> Result<Channels, Error> {
    let words = fields.texts("channels").map_err(bad_request)?;
    let words = words.unwrap_or_default();
    if words.is_empty() {
        let detail = format!("`channels` must be a list of at least one of {}", known());
        return Err(Error::bad_request(detail));
    }
    if words.len() > CHANNELS {
        let detail = format!("`channels` has more than {CHANNELS} entries");
        return Err(Error::bad_request(detail));
    }
    Channels::parse(words.iter().map(|word| &**word)).map_err(|unknown| {
        let shown: Vec<String> = unknown
            .iter()
            .take(5)
            .map(|word| word.chars().take(80).collect())
            .collect();
        let detail = format!(
            "`channels` has unknown entries: {}. Known are {}",
            shown.join(", "),
            known()
        );
        Error::bad_request(detail)
    })
}

fn known() -> String {
    let words: Vec<_> = Method::CHANNELS.iter().map(|(word, _)| *word).collect();
    format!("{} and `custom:<name>`", words.join(", "))
}

fn namespaces(fields: &Fields<'_>) -> Result<Vec<Vec<Arc<str>>>, Error> {
    let list = fields.list("namespaces").map_err(bad_request)?;
    let list = list.unwrap_or_default();
    if list.len() > NAMESPACES {
        let detail = format!("`namespaces` has more than {NAMESPACES} entries");
        return Err(Error::bad_request(detail));
    }
    let wrong = || Error::bad_request("`namespaces` must be a list of lists of texts");
    let segments = |namespace: &Value| {
        let segments = namespace.as_list().ok_or_else(wrong)?.iter();
        let texts = segments.map(|segment| match segment {
            Value::Str(text) => Ok(text.clone()),
            _ => Err(wrong()),
        });
        texts.collect()
    };
    list.iter().map(segments).collect()
}

/// A subscription of a wrong form is refused with the status that clients know from it.
fn bad_request(error: Error) -> Error {
    Error::bad_request(error.detail)
}
