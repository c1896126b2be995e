//! Commands as clients send them, and what they are answered with.

use std::sync::Arc;

use crate::{
    http::server::Error as HttpError,
    runs, threads,
    value::{Map, Value},
    words::words,
};

/// The first number that no signed integer has.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

words! {
    /// Words for what is wrong with a command. Clients know these.
    pub enum Code, "code of a failure" {
        InvalidArgument = "invalid_argument",
        UnknownCommand = "unknown_command",
        UnknownError = "unknown_error",
        NoSuchRun = "no_such_run",
        NoSuchSubscription = "no_such_subscription",
        NoSuchInterrupt = "no_such_interrupt",
        NoSuchCheckpoint = "no_such_checkpoint",
        PermissionDenied = "permission_denied",
        NotSupported = "not_supported",
    }
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: Code,
    pub message: String,
}

impl Fault {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// A field of the parameters is wrong.
    pub fn argument(error: HttpError) -> Self {
        Self::new(Code::InvalidArgument, error.detail)
    }

    /// The same as an error of HTTP.
    pub fn of_http(error: &HttpError) -> Self {
        let code = match (error.status.as_u16(), error.code) {
            (403, _) => Code::PermissionDenied,
            (_, Some("checkpoint_not_found")) => Code::NoSuchCheckpoint,
            _ => Code::UnknownError,
        };
        let message = match code {
            Code::UnknownError => format!("{}: {}", error.status.as_u16(), error.detail),
            _ => error.detail.clone().into_owned(),
        };
        Self::new(code, message)
    }
}

impl From<runs::Error> for Fault {
    fn from(error: runs::Error) -> Self {
        match error {
            runs::Error::NoInterrupt(id) => Self::no_interrupt(&id),
            runs::Error::NoCheckpoint(id) => {
                Self::new(Code::NoSuchCheckpoint, format!("Checkpoint {id} not found"))
            }
            error => Self::of_http(&error.into()),
        }
    }
}

impl From<threads::Error> for Fault {
    fn from(error: threads::Error) -> Self {
        match error {
            threads::Error::Run(error) => (*error).into(),
            threads::Error::NoCheckpoint(id) => runs::Error::NoCheckpoint(id).into(),
            error => Self::of_http(&error.into()),
        }
    }
}

impl Fault {
    /// An interrupt that is not open.
    pub fn no_interrupt(id: &str) -> Self {
        let message = format!("Unknown or already-consumed interrupt: {id}");
        Self::new(Code::NoSuchInterrupt, message)
    }
}

/// A command.
#[derive(Clone, Debug)]
pub struct Command {
    /// Chosen by the client, and repeated in the reply.
    pub id: Value,
    pub method: Arc<str>,
    pub params: Value,
}

/// Why a message is no command.
#[derive(Clone, Debug)]
pub struct NoCommand {
    /// Its id as sent; null without one.
    pub id: Value,
    pub fault: Fault,
}

impl NoCommand {
    /// The message is not JSON.
    pub fn not_json() -> Self {
        let message = "Protocol commands must be valid JSON.";
        Self {
            id: Value::Null,
            fault: Fault::new(Code::InvalidArgument, message),
        }
    }

    /// The reply that reports it.
    pub fn reply(&self) -> Value {
        failure(&self.id, &self.fault, None)
    }
}

impl Command {
    /// Reads a command.
    pub fn read(message: &Value) -> Result<Self, NoCommand> {
        let id = integral(message.get("id").cloned().unwrap_or_default());
        let method = match message.get("method") {
            Some(Value::Str(method)) => Some(method.clone()),
            _ => None,
        };
        let has_id = matches!(id, Value::Int(_) | Value::Uint(_));
        match (method, has_id) {
            (Some(method), true) => Ok(Self {
                id,
                method,
                params: match message.get("params") {
                    None | Some(Value::Null) => Value::map(Map::new()),
                    Some(params) => params.clone(),
                },
            }),
            _ => {
                let message = "Protocol commands must include an integer id and string method.";
                // What is large or nested would only come back as it is.
                let id = match id {
                    Value::List(_) | Value::Map(_) => Value::Null,
                    id => id,
                };
                Err(NoCommand {
                    id,
                    fault: Fault::new(Code::InvalidArgument, message),
                })
            }
        }
    }
}

/// A whole number that was written as a float, such as `1.0`, as the integer that JSON takes it for.
fn integral(id: Value) -> Value {
    match id {
        Value::Float(float) if float.fract() == 0.0 => match float {
            float if (-TWO_63..TWO_63).contains(&float) => Value::Int(float as i64),
            float if (TWO_63..2.0 * TWO_63).contains(&float) => Value::Uint(float as u64),
            float => Value::Float(float),
        },
        id => id,
    }
}

/// The reply to a command that was carried out; `seq` is the last event that was delivered before.
pub fn success(id: &Value, result: Map, seq: u64) -> Value {
    Value::map(Map::from([
        ("type", "success".into()),
        ("id", id.clone()),
        ("result", Value::map(result)),
        ("meta", meta(seq)),
    ]))
}

/// The reply to a command that was not carried out.
pub fn failure(id: &Value, fault: &Fault, seq: Option<u64>) -> Value {
    let mut reply = Map::from([
        ("type", "error".into()),
        ("id", id.clone()),
        ("error", fault.code.as_str().into()),
        ("message", (&*fault.message).into()),
    ]);
    if let Some(seq) = seq {
        reply.insert("meta", meta(seq));
    }
    Value::map(reply)
}

fn meta(seq: u64) -> Value {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    Value::map(Map::from([("applied_through_seq", seq.into())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn an_id_is_any_integer_however_it_is_written() {
        for (json, id) in [
            ("7", "7"),
            ("-23539.0", "-23539"),
            ("1e3", "1000"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            let message = format!(r#"{{"id": {json}, "method": "m"}}"#);
            let message = Value::from_json_slice(message.as_bytes()).unwrap();
            assert_eq!(Command::read(&message).unwrap().id.to_json(), id);
        }
        for id in [value!(1.5), value!(1e300), value!("7"), value!(true)] {
            let message = value!({"id": id, "method": "m"});
            assert!(Command::read(&message).is_err(), "{message:?}");
        }
    }
}
