//! Codes of errors that A2A has beyond those of JSON-RPC.

/// There is no such task.
pub const NO_TASK: i64 = -32001;
/// The task has ended.
pub const NOT_CANCELABLE: i64 = -32002;
/// The server does not send notifications by itself.
pub const NO_NOTIFICATIONS: i64 = -32003;
/// The operation does not go with the task.
pub const UNSUPPORTED: i64 = -32004;
/// The kind of a part is none that is known.
pub const CONTENT_TYPE: i64 = -32005;
