//! Health and what this server is.

use hyper::{Response, StatusCode};

use super::server::{Body, Call, Error, body};
use crate::value;

/// The version of LangGraph whose behaviour graphs have here.
const LEVEL: &str = "1.2.22";

/// `GET /ok`
pub(super) async fn ok(call: Call) -> Result<Response<Body>, Error> {
    if call.query.flag("check_db")? {
        call.threads().ping().await?;
    }
    let response = value!({"ok": true, "services": {}});
    Ok(body::json(StatusCode::OK, &response))
}

/// `GET /live`
pub(super) async fn live(_call: Call) -> Result<Response<Body>, Error> {
    Ok(body::json(StatusCode::OK, &value!({"ok": true})))
}

/// `GET /ready`
pub(super) async fn ready(call: Call) -> Result<Response<Body>, Error> {
    if call.shared.drain.is_cancelled() {
        return Err(Error::unavailable("The server is shutting down."));
    }
    call.threads().probe().await?;
    Ok(body::json(StatusCode::OK, &value!({"ok": true})))
}

/// `GET /info`
pub(super) async fn info(call: Call) -> Result<Response<Body>, Error> {
    let response = value!({
        "version": env!("CARGO_PKG_VERSION"),
        "langgraph_py_version": LEVEL,
        "flags": {
            "assistants": true,
            "crons": (call.crons().fires()),
            "langsmith": false,
            "langsmith_tracing_replicas": false,
            "langsmith_tracing_session_on_runs": false
        },
        "host": {
            "kind": "self-hosted",
            "project_id": null,
            "host_revision_id": null,
            "revision_id": null,
            "tenant_id": null
        }
    });
    Ok(body::json(StatusCode::OK, &response))
}
