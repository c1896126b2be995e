//! Which events a client subscribes to: channels, and graphs by their namespaces.

use std::sync::Arc;

use super::event::{Event, Method};

/// The channels of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    methods: u16,
    /// Names of custom events, of `custom:<name>`.
    names: Vec<Arc<str>>,
}

impl Channels {
    /// Every channel.
    #[cfg(test)]
    pub fn all() -> Self {
        let words = Method::CHANNELS.iter();
        Self {
            methods: words.fold(0, |bits, (_, method)| bits | bit(*method)),
            names: vec![],
        }
    }

    /// The channels of these words.
    ///
    /// # Errors
    /// The words that are none.
    pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, Vec<String>> {
        let (mut channels, mut unknown) = (Self::default(), vec![]);
        for word in words {
            let known = Method::CHANNELS.iter().find(|(name, _)| *name == word);
            let custom = word.strip_prefix("custom:").filter(|name| !name.is_empty());
            match (known, custom) {
                (Some((_, method)), _) => channels.methods |= bit(*method),
                (None, Some(name)) => {
                    if !channels.names.iter().any(|known| **known == *name) {
                        channels.names.push(name.into());
                    }
                }
                (None, None) => unknown.push(word.to_owned()),
            }
        }
        if unknown.is_empty() {
            Ok(channels)
        } else {
            Err(unknown)
        }
    }

    /// Whether events of a method may be among them.
    pub fn want(&self, method: Method) -> bool {
        self.methods & bit(method) != 0 || (method == Method::Custom && !self.names.is_empty())
    }

    /// The channels of both.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.methods |= other.methods;
        both.names.extend(other.names.iter().cloned());
        both
    }

    fn admit(&self, event: &Event) -> bool {
        let named = |name: &Arc<str>| self.names.contains(name);
        self.methods & bit(event.method) != 0 || event.name.as_ref().is_some_and(named)
    }
}

fn bit(method: Method) -> u16 {
    1 << method as u16
}

/// What one subscription admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its channels.
    pub channels: Channels,
    /// Graphs: those whose namespace begins with one of these; empty for all.
    pub namespaces: Vec<Vec<Arc<str>>>,
    /// How far below such a beginning a graph may be; `None` for any depth.
    pub depth: Option<usize>,
}

impl Filter {
    /// Whether an event is one of the subscription.
    pub fn admits(&self, event: &Event) -> bool {
        self.channels.admit(event) && self.reaches(&event.ns)
    }

    fn reaches(&self, ns: &[Arc<str>]) -> bool {
        self.namespaces.is_empty()
            || self.namespaces.iter().any(|beginning| {
                let below = ns.len().checked_sub(beginning.len());
                let near = below.is_some_and(|below| self.depth.is_none_or(|most| below <= most));
                near && ns.iter().zip(beginning).all(|(own, one)| matches(own, one))
            })
    }
}

/// Whether a segment of a namespace, `node:task`, is the one of a filter, which may be a node alone.
fn matches(segment: &str, filter: &str) -> bool {
    let node = || segment.split_once(':').map_or(segment, |(node, _)| node);
    segment == filter || (!filter.contains(':') && node() == filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(text: &str) -> Vec<Arc<str>> {
        let parts = text.split('|').filter(|part| !part.is_empty());
        parts.map(Into::into).collect()
    }

    fn event(method: Method, ns: &str, name: Option<&str>) -> Event {
        Event {
            id: String::new(),
            seq: 1,
            is_passing: false,
            method,
            ns: namespace(ns).into(),
            timestamp: 0,
            node: None,
            name: name.map(Into::into),
            data: vec![],
        }
    }

    #[test]
    fn namespaces_are_matched_by_their_beginnings_and_depth() {
        let reaches = |filters: &[&str], depth, ns: &str| {
            Filter {
                channels: Channels::all(),
                namespaces: filters.iter().map(|text| namespace(text)).collect(),
                depth,
            }
            .admits(&event(Method::Values, ns, None))
        };
        assert!(reaches(&[], Some(0), "child:1"));
        assert!(reaches(&[""], Some(0), "") && !reaches(&[""], Some(0), "child:1"));
        assert!(reaches(&[""], Some(1), "child:1") && !reaches(&[""], Some(1), "child:1|grand:2"));
        assert!(reaches(&["child"], None, "child:1|grand:2"));
        assert!(reaches(&["child:1"], None, "child:1") && !reaches(&["child:2"], None, "child:1"));
        assert!(!reaches(&["child"], None, "") && !reaches(&["chil"], None, "child:1"));
        assert!(reaches(&["other", "child"], Some(0), "child:1"));
    }

    #[test]
    fn channels_are_words_or_names_of_custom_events() {
        let parse = |words: &[&str]| Channels::parse(words.iter().copied());
        assert_eq!(
            parse(&["values", "bogus", "custom:", "input.requested"]),
            Err(vec![
                "bogus".into(),
                "custom:".into(),
                "input.requested".into()
            ])
        );
        let one = parse(&["custom:a", "input"]).unwrap();
        assert!(one.want(Method::Custom) && one.want(Method::Input) && !one.want(Method::Values));
        assert!(one.admit(&event(Method::Custom, "", Some("a"))));
        assert!(!one.admit(&event(Method::Custom, "", Some("b"))));
        assert!(!one.admit(&event(Method::Custom, "", None)));
        let all = one.and(&parse(&["custom"]).unwrap());
        assert!(all.admit(&event(Method::Custom, "", Some("b"))));
        let words = Method::CHANNELS.iter().map(|(word, _)| *word);
        assert_eq!(Channels::parse(words).unwrap(), Channels::all());
    }
}
