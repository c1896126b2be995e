//! Ids in paths and parameters in query strings.

use std::{borrow::Cow, str::FromStr};

use percent_encoding::percent_decode_str;

use super::{fields, ids};
use crate::{
    http::server::Error,
    id::{AssistantId, CronId, RunId, ThreadId},
    runs::request::{Assistant, Mode},
    tree::members,
    value::Value,
};

/// Parameters of the path, still percent-encoded.
#[derive(Clone, Debug, Default)]
pub struct Path(pub Vec<(String, String)>);

impl Path {
    /// A parameter, decoded. An encoded slash or control character is refused: proxies and
    /// servers disagree about what such a path means.
    fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let (_, raw) = self.0.iter().find(|(key, _)| *key == name)?;
        let text = percent_decode_str(raw).decode_utf8().ok()?;
        let harmless = !text.contains(|c: char| c == '/' || c == '\\' || c.is_control());
        harmless.then_some(text)
    }

    fn id<T: FromStr>(&self, name: &str, what: &str) -> Result<T, Error> {
        self.get(name)
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| Error::invalid(format!("Invalid {what} ID: must be a UUID")))
    }

    pub fn has_thread(&self) -> bool {
        self.get("thread_id").is_some()
    }

    pub fn thread(&self) -> Result<ThreadId, Error> {
        self.id("thread_id", "thread")
    }

    pub fn run(&self) -> Result<RunId, Error> {
        self.id("run_id", "run")
    }

    pub fn assistant(&self) -> Result<AssistantId, Error> {
        let id = self.get("assistant_id");
        let id = id.and_then(|text| ids::hyphenated(&text));
        id.ok_or_else(|| Error::invalid("Invalid assistant ID: must be a UUID"))
    }

    pub fn cron(&self) -> Result<CronId, Error> {
        let id = self.get("cron_id");
        let id = id.and_then(|text| ids::hyphenated(&text));
        id.ok_or_else(|| Error::invalid("Invalid cron ID: must be a UUID"))
    }

    /// The checkpoint as written, which need not be an id.
    pub fn checkpoint(&self) -> std::borrow::Cow<'_, str> {
        self.get("checkpoint_id").unwrap_or_default()
    }

    /// A name of a branch or a tag; its slashes are encoded.
    pub fn name(&self) -> Result<std::sync::Arc<str>, Error> {
        let found = self.0.iter().find(|(key, _)| key == "name");
        let raw = found.map_or("", |(_, raw)| raw);
        let text = percent_decode_str(raw).decode_utf8_lossy();
        Ok(crate::tree::address::parse_name(&text)?)
    }

    /// The principal whose level a request is about.
    pub fn principal(&self) -> Result<std::sync::Arc<str>, Error> {
        let text = self.get("principal");
        let good = |text: &str| (1..=members::NAME_MAX).contains(&text.len());
        text.filter(|text| good(text))
            .map(|text| (&*text).into())
            .ok_or_else(|| {
                let most = members::NAME_MAX;
                Error::invalid(format!("Invalid principal: 1 to {most} visible bytes"))
            })
    }

    /// The namespace of a subgraph, if the path has one.
    pub fn namespace(&self) -> Result<Option<String>, Error> {
        if !self.0.iter().any(|(key, _)| key == "namespace") {
            return Ok(None);
        }
        match self.get("namespace") {
            Some(text) => Ok(Some(text.into_owned())),
            None => Err(Error::invalid("Invalid namespace")),
        }
    }

    /// An assistant by id or by the name of its graph.
    pub fn assistant_or_graph(&self) -> Result<Assistant, Error> {
        let text = self.get("assistant_id");
        let text = text.ok_or_else(|| Error::invalid("Invalid assistant ID: must be a UUID"))?;
        Ok(ids::assistant(&text))
    }
}

/// The query string.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn of(text: Option<&str>) -> Self {
        let decode = |part: &str| {
            let spaced = part.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        let pairs = text
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    /// The last value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        let last = self.0.iter().rev().find(|(key, _)| key == name);
        last.map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| value.as_str())
    }

    /// A flag: `1`, `0`, `true` and `false` are what clients send.
    pub fn flag(&self, name: &str) -> Result<bool, Error> {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "0" | "false" | "no" | "off") => Ok(false),
            Some("1" | "true" | "yes" | "on") => Ok(true),
            Some(other) => Err(Error::invalid(format!("Invalid {name} {other}"))),
        }
    }

    /// A whole number.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Error> {
        self.get(name)
            .map(|text| text.parse())
            .transpose()
            .map_err(|_| {
                let text = self.get(name).unwrap_or_default();
                Error::invalid(format!("Invalid {name} {text}"))
            })
    }

    /// How long a page may be: from one to `most`.
    pub fn limit(&self, default: i64, most: i64) -> Result<usize, Error> {
        let limit = self.integer("limit")?.unwrap_or(default);
        let fits = usize::try_from(limit).ok();
        fits.filter(|_| (1..=most).contains(&limit))
            .ok_or_else(|| Error::invalid(format!("Invalid limit {limit}: 1 to {most}")))
    }

    /// How many entries come before the page.
    pub fn offset(&self) -> Result<usize, Error> {
        let offset = usize::try_from(self.integer("offset")?.unwrap_or(0));
        offset.map_err(|_| Error::invalid("Invalid offset: 0 or more"))
    }

    /// One of a list of words.
    pub fn word<T: Copy>(
        &self,
        name: &str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let value = Value::str(text);
        let reason = || {
            Error::invalid(format!(
                "{}, in `{name}`",
                fields::not_one_of(&value, words)
            ))
        };
        fields::pick(&value, words).map(Some).ok_or_else(reason)
    }

    /// Stream modes, under both names that clients use.
    pub fn modes(&self) -> Result<Vec<Mode>, Error> {
        self.pick_all(&["stream_mode", "stream_modes"], Mode::ALL)
    }

    /// Words of a list, under any of some names, each once.
    pub fn pick_all<T: Copy + PartialEq>(
        &self,
        names: &[&'static str],
        words: &[(&'static str, T)],
    ) -> Result<Vec<T>, Error> {
        let mut picked = Vec::new();
        for name in names {
            for word in self.list(name)? {
                let word = fields::pick(&word, words).ok_or_else(|| {
                    let reason = fields::not_one_of(&word, words);
                    Error::invalid(format!("{reason}, in `{name}`"))
                })?;
                if !picked.contains(&word) {
                    picked.push(word);
                }
            }
        }
        Ok(picked)
    }

    /// The items of a list in every spelling clients use: repeated, separated by commas, or one
    /// JSON array.
    pub fn list(&self, name: &str) -> Result<Vec<Value>, Error> {
        let mut items = Vec::new();
        for text in self.all(name) {
            if text.starts_with('[') {
                let list = Value::from_json_slice(text.as_bytes()).ok();
                let list = list.as_ref().and_then(Value::as_list).map(<[_]>::to_vec);
                let wrong = || Error::invalid(format!("Invalid {name} {text}"));
                items.extend(list.ok_or_else(wrong)?);
            } else {
                let words = text.split(',').map(str::trim);
                items.extend(words.filter(|word| !word.is_empty()).map(Value::str));
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_slashes_in_ids_are_refused_as_bad_ids() {
        let id = "01a1faf4-ed9b-77dc-8ed1-cc6eef11d822";
        let path = |raw: &str| Path(vec![("thread_id".to_owned(), raw.to_owned())]).thread();
        assert!(path(id).is_ok());
        assert!(path(&id.replace("01a", "%301a")).is_ok());
        for bad in [
            &format!("{id}%2Fstate"),
            "%2e%2e%2f",
            "%FF",
            "nope",
            "%00",
            "",
        ] {
            let error = path(bad).unwrap_err();
            assert_eq!(error.status, 422);
            assert_eq!(error.detail, "Invalid thread ID: must be a UUID");
        }
    }

    #[test]
    fn stream_modes_are_read_in_every_spelling() {
        let both = vec![Mode::Values, Mode::Custom];
        for text in [
            "stream_mode=%5B%22values%22%2C%22custom%22%5D",
            "stream_mode=values&stream_mode=custom",
            "stream_mode=values%2Ccustom",
            "stream_modes=values,custom&stream_mode=",
        ] {
            assert_eq!(Query::of(Some(text)).modes().unwrap(), both, "{text}");
        }
        assert_eq!(
            Query::of(Some("stream_mode=[1"))
                .modes()
                .unwrap_err()
                .status,
            422
        );
        assert_eq!(
            Query::of(Some("stream_mode=x")).modes().unwrap_err().status,
            422
        );
        assert!(Query::of(None).modes().unwrap().is_empty());
        let query = Query::of(Some("n=[%22a%22,1]&n=b,+c&other=d"));
        let items = query.list("n").unwrap();
        let items: Vec<_> = items.iter().map(ToString::to_string).collect();
        assert_eq!(items, ["\"a\"", "1", "\"b\"", "\"c\""]);
    }

    #[test]
    fn flags_and_numbers_are_read_or_refused() {
        let query = Query::of(Some("a=true&b=0&c=maybe&limit=abc&n=-1"));
        assert!(query.flag("a").unwrap());
        assert!(!query.flag("b").unwrap());
        assert!(query.flag("c").is_err());
        assert_eq!(
            query.integer("limit").unwrap_err().detail,
            "Invalid limit abc"
        );
        assert_eq!(query.integer("n").unwrap(), Some(-1));
        assert_eq!(query.integer("none").unwrap(), None);
    }
}
