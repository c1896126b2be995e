//! Commands, each as a request of its own.

use hyper::{Response, StatusCode};

use super::{
    message::{self, Code, Command, Fault, NoCommand},
    start::Starter,
};
use crate::{
    http::server::{Body, Call, Error, body},
    value::{Map, Value},
};

/// Commands that the protocol has and this server does not.
const RESERVED: [&str; 4] = [
    "input.inject",
    "state.get",
    "state.listCheckpoints",
    "state.fork",
];
/// Commands that are about a connection.
const OF_CONNECTIONS: [&str; 3] = [
    "subscription.subscribe",
    "subscription.unsubscribe",
    "subscription.reconnect",
];

/// `POST /threads/{thread_id}/commands`
pub(in crate::http) async fn send(mut call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let body = match call.json().await {
        Ok(body) => body,
        Err(error) if error.status == StatusCode::UNPROCESSABLE_ENTITY => {
            let reply = NoCommand::not_json().reply();
            return Ok(body::json(StatusCode::BAD_REQUEST, &reply));
        }
        Err(error) => return Err(error),
    };
    let command = match Command::read(&body) {
        Ok(command) => command,
        Err(none) => return Ok(body::json(StatusCode::BAD_REQUEST, &none.reply())),
    };
    let starter = Starter::new(&call, thread);
    let carried_out = match &*command.method {
        "agent.getTree" => {
            let message = "No run is bound to a request of its own: ask over a WebSocket.";
            Err(Fault::new(Code::NoSuchRun, message))
        }
        method if OF_CONNECTIONS.contains(&method) => {
            let message = format!(
                "{method} needs a WebSocket. Without one, open POST /threads/{thread}/stream/events."
            );
            Err(Fault::new(Code::NotSupported, message))
        }
        _ => carry_out(&starter, &command).await,
    };
    Ok(body::json(StatusCode::OK, &reply(&command, carried_out)))
}

fn reply(command: &Command, carried_out: Result<Map, Fault>) -> Value {
    match carried_out {
        // Nothing is delivered here, so that a client which comes back gets everything.
        Ok(result) => message::success(&command.id, result, 0),
        Err(fault) => message::failure(&command.id, &fault, None),
    }
}

/// Carries out a command that is not about a connection.
pub(super) async fn carry_out(starter: &Starter, command: &Command) -> Result<Map, Fault> {
    match &*command.method {
        "run.start" => starter.start(&command.params).await,
        "input.respond" => starter.respond(&command.params).await,
        method if RESERVED.contains(&method) => {
            let message = format!("This server does not have the command {method}.");
            Err(Fault::new(Code::NotSupported, message))
        }
        method => {
            let shown: String = method.chars().take(80).collect();
            let message = format!("Unknown protocol command: {shown}");
            Err(Fault::new(Code::UnknownCommand, message))
        }
    }
}
