//! Which web pages may call, by which names of the server, and with how large a head: decided by the head of
//! a request.

use std::{collections::HashSet, time::Duration};

use hyper::{
    Request, StatusCode,
    header::{HOST, HeaderValue, ORIGIN},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    cors::{Cors, ORIGINS_SETTING},
    error::Error,
    hosts::{self, HOSTS_SETTING, Origin},
    listener::HEAD_LIMIT,
    options::Options,
};
use crate::http::parse::params::Query;

/// As many refused names of hosts are remembered, and as many of pages, so that each is logged once.
const REMEMBERED: usize = 100;
/// For so long: who makes names up fills the log no further, and hides for no longer what others are refused.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// Refuses requests of pages and by names that are not allowed.
#[derive(Debug, Default)]
pub struct Callers {
    hosts: Mutex<Refused>,
    origins: Mutex<Refused>,
}

/// Refused names that were logged.
#[derive(Debug, Default)]
struct Refused {
    since: Option<Instant>,
    names: HashSet<String>,
}

impl Refused {
    /// Whether a refused name is to be logged.
    fn is_new(&mut self, name: &str) -> bool {
        if self.since.is_none_or(|since| since.elapsed() >= FORGOTTEN) {
            self.since = Some(Instant::now());
            self.names.clear();
        }
        self.names.len() < REMEMBERED && self.names.insert(name.to_owned())
    }
}

impl Callers {
    /// Checks the head of a request, whatever its method and whether or not it asks for another
    /// protocol.
    ///
    /// # Errors
    /// 400 when the request names several hosts, 403 when it is refused, 431 when its head is too large.
    pub fn check<B>(&self, options: &Options, request: &Request<B>) -> Result<(), Error> {
        let headers = request.headers();
        if head_bytes(request) > HEAD_LIMIT {
            let detail = format!("The head of a request has at most {HEAD_LIMIT} bytes");
            return Err(Error::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                detail,
            ));
        }
        let host = hosts::of_request(request.uri(), headers)?;
        let path = request.uri().path();
        if options.is_open() && !options.hosts.allow(host.as_ref(), path) {
            let named = match request.uri().authority() {
                Some(authority) => authority.as_str().to_owned(),
                None => headers.get(HOST).map(text).unwrap_or_default(),
            };
            log(&self.hosts, HOSTS_SETTING, &named);
            let detail = "Without keys this server is called as localhost only, or by a name that \
                          its setting BACKSTITCH_HOSTS lists";
            return Err(Error::new(StatusCode::FORBIDDEN, detail));
        }
        for origin in headers.get_all(ORIGIN) {
            let is_own = |page: Origin| host.as_ref().is_some_and(|host| page.is_of(host));
            if !options.cors.allows(origin) && !Origin::of(origin).is_some_and(is_own) {
                log(&self.origins, ORIGINS_SETTING, &text(origin));
                let detail = "Pages of this origin may not call this server: its setting \
                              BACKSTITCH_CORS_ORIGINS does not allow them";
                return Err(Error::new(StatusCode::FORBIDDEN, detail));
            }
        }
        if options.cors != Cors::Any && is_embedded_elsewhere(request) {
            let detail = "A page of another site may link to this server, but neither embed it nor \
                          cancel a run by leaving: its setting BACKSTITCH_CORS_ORIGINS does not allow it";
            return Err(Error::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(())
    }
}

fn log(known: &Mutex<Refused>, setting: &'static str, refused: &str) {
    if known.lock().is_new(refused) {
        tracing::warn!(%refused, "a request was refused; {setting} lists what is allowed");
    }
}

/// The bytes of a head in HTTP/1, without the method.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let headers = request.headers().iter();
    let lines = headers.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    target + lines.sum::<usize>()
}

/// Whether a browser sends the request for a page of another site without the page's origin, as it
/// does for images and scripts. Links are not meant, unless following and leaving one cancels a run.
fn is_embedded_elsewhere<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
    let query = Query::of(request.uri().query());
    is("sec-fetch-site", "cross-site")
        && !headers.contains_key(ORIGIN)
        && (!is("sec-fetch-mode", "navigate") || query.get("cancel_on_disconnect").is_some())
}

fn text(header: &HeaderValue) -> String {
    String::from_utf8_lossy(header.as_bytes())
        .chars()
        .take(100)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refused_name_is_logged_once_an_hour_and_so_are_so_many_of_them() {
        let mut refused = Refused::default();
        assert!(refused.is_new("a.example"));
        assert!(!refused.is_new("a.example"));
        let more = (0..1000).filter(|number| refused.is_new(&number.to_string()));
        assert_eq!(more.count(), REMEMBERED - 1);
        tokio::time::advance(FORGOTTEN).await;
        assert!(refused.is_new("a.example") && refused.is_new("b.example"));
    }
}
