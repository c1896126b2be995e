//! What happens on a connection, so that it is closed in time.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use hyper::Request;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    arrivals::Arrivals, bodies::RequestBody, error::Error, options::Options, progress::Progress,
    slots::ConnectionSlots, unread::UnreadBodies,
};

/// What the requests of one connection share.
#[derive(Clone, Debug)]
pub struct Connection {
    pub activity: Arc<Activity>,
    /// The address at its other end, without the port.
    pub peer: Arc<str>,
    /// Slots for its running handlers.
    pub slots: ConnectionSlots,
    /// What its client may send of bodies that nobody has read.
    pub unread: Option<Arc<UnreadBodies>>,
}

impl Connection {
    /// A request that came on it, whose body takes memory as long as nobody reads it.
    ///
    /// # Errors
    /// 503: there is not enough left.
    pub fn expect(&self, request: Request<RequestBody>) -> Result<Request<RequestBody>, Error> {
        match &self.unread {
            Some(unread) => unread.expect(request),
            None => Ok(request),
        }
    }
}

/// What happens on a connection. hyper's own head timeout starts before the first byte of a
/// head and so would also end idle connections; hence this.
#[derive(Debug)]
pub struct Activity {
    state: Mutex<State>,
    arrivals: Arc<Arrivals>,
    /// That of the response in HTTP/1, where one follows the other.
    progress: Arc<Progress>,
}

#[derive(Debug)]
struct State {
    requests: usize,
    served: bool,
    /// In HTTP/2, bytes between requests need not be the head of one.
    multiplexed: bool,
    quiet_since: Instant,
    head_since: Option<Instant>,
}

/// What is to be done with a connection at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing until then.
    Wait(Instant),
    /// It was idle for long: let it end after the requests in progress.
    Shutdown,
    /// A head did not come in time: hang up.
    HangUp,
}

impl Activity {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                requests: 0,
                served: false,
                multiplexed: false,
                quiet_since: Instant::now(),
                head_since: None,
            }),
            arrivals: Arc::default(),
            progress: Arc::default(),
        })
    }

    /// The progress of the response in HTTP/1.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// A request begins; it ends when the guard is dropped.
    pub fn enter(self: &Arc<Self>, multiplexed: bool) -> Busy {
        let mut state = self.state.lock();
        state.requests += 1;
        state.served = true;
        state.multiplexed |= multiplexed;
        state.head_since = None;
        Busy(self.clone())
    }

    /// The bodies that come on it.
    pub fn arrivals(&self) -> &Arc<Arrivals> {
        &self.arrivals
    }

    /// Whether a request in HTTP/1 came whole and is worked on: were its client gone, nobody would wait for the
    /// response. HTTP/2 notices that by itself.
    pub fn waits_for_response(&self) -> bool {
        let state = self.state.lock();
        state.requests > 0 && !state.multiplexed && self.arrivals.are_over()
    }

    /// Something came.
    pub fn bytes_came(&self) {
        let mut state = self.state.lock();
        if state.requests == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
    }

    /// What is to be done with the connection now. While the server `is_full`, an idle connection has the time of a head,
    /// so that nobody keeps others away by connections without requests.
    pub fn due(&self, options: &Options, is_full: bool) -> Due {
        let state = self.state.lock();
        let now = Instant::now();
        let deadline = self.progress.deadline();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Due::HangUp;
        }
        let (time, due) = if state.requests > 0 {
            (now + options.header_timeout, Due::Shutdown)
        } else if !state.served {
            (state.quiet_since + options.header_timeout, Due::HangUp)
        } else if let (Some(since), false) = (state.head_since, state.multiplexed) {
            (since + options.header_timeout, Due::HangUp)
        } else {
            let limit = if is_full {
                options.header_timeout.min(options.idle_timeout)
            } else {
                options.idle_timeout
            };
            (state.quiet_since + limit, Due::Shutdown)
        };
        if time > now {
            // A head may begin at any time, and its limit must not be missed by much.
            Due::Wait(time.min(now + options.header_timeout))
        } else {
            due
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        state.quiet_since = Instant::now();
    }
}

/// Whom a connection from an address counts for while nobody authenticates. Of IPv6 what one customer of a
/// provider gets is one client, a network of 64 bits: else each of its addresses would have a share of its own.
pub fn client_at(address: IpAddr) -> Arc<str> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string().into(),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            format!("{}/64", Ipv6Addr::from_bits(network)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_slow_heads_and_idleness_each_have_their_limit() {
        let options = Options::default();
        let activity = Activity::new();
        advance(Duration::from_secs(9)).await;
        assert!(matches!(activity.due(&options, false), Due::Wait(_)));
        advance(Duration::from_secs(1)).await;
        assert_eq!(activity.due(&options, false), Due::HangUp, "nothing came");

        let busy = activity.enter(false);
        advance(Duration::from_secs(1000)).await;
        assert!(
            matches!(activity.due(&options, false), Due::Wait(_)),
            "a long request"
        );
        drop(busy);
        advance(Duration::from_secs(59)).await;
        assert!(matches!(activity.due(&options, false), Due::Wait(_)));
        activity.bytes_came();
        advance(Duration::from_secs(10)).await;
        assert_eq!(
            activity.due(&options, false),
            Due::HangUp,
            "a head that does not end"
        );

        drop(activity.enter(false));
        advance(Duration::from_secs(9)).await;
        assert!(matches!(activity.due(&options, true), Due::Wait(_)));
        advance(Duration::from_secs(1)).await;
        assert_eq!(activity.due(&options, true), Due::Shutdown, "others wait");
        assert!(matches!(activity.due(&options, false), Due::Wait(_)));
        advance(Duration::from_secs(50)).await;
        assert_eq!(activity.due(&options, false), Due::Shutdown, "idle");
    }

    #[test]
    fn a_response_is_waited_for_once_the_body_of_its_request_was_read() {
        let activity = Activity::new();
        assert!(!activity.waits_for_response(), "no request came");
        let busy = activity.enter(false);
        assert!(activity.waits_for_response(), "a request without a body");
        let arrival = activity.arrivals().begin();
        assert!(!activity.waits_for_response(), "a body comes");
        arrival.end();
        assert!(activity.waits_for_response());
        drop(activity.arrivals().begin());
        assert!(!activity.waits_for_response(), "a body that was refused");
        drop(busy);
        assert!(!activity.waits_for_response(), "it was answered");
        let _busy = activity.enter(true);
        assert!(!activity.waits_for_response(), "HTTP/2");
    }

    #[test]
    fn an_ipv6_network_of_one_customer_is_one_client_and_each_ipv4_address_is_another() {
        let of = |text: &str| client_at(text.parse().unwrap());
        assert_eq!(
            of("2001:db8:1:2::1"),
            of("2001:db8:1:2:ffff:ffff:ffff:ffff")
        );
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        // An IPv4 address of a listener of both kinds.
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("::ffff:192.0.2.1"), of("::ffff:192.0.2.2"));
    }
}
