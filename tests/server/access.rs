//! Who may what, checked where the act happens: every route of the server's own table. Bodies that are held back while
//! rights change, and ids of somebody else, are attacks (`tests/attacks`).

mod apart;
mod confirmed;
mod later;
mod matrix;
pub(crate) mod streams;

use serde_json::{Value, json};
use test_support::access::{SECRET, furnished, grant, people, revoke, seen, send, serve};
use test_support::client::Client;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{self, get, ok};
