//! Stateless runs by their id alone: where the `Location` of their streams leads.

use hyper::Response;

use super::{
    join::{join_run, joining, watch},
    location::path,
};
use crate::{
    http::server::{Body, Call, Error},
    runs::{self, request::Join},
};

/// `GET /runs/{run_id}/stream`
pub(in crate::http) async fn stream(call: Call) -> Result<Response<Body>, Error> {
    let join = Join {
        modes: call.query.modes()?,
        last_event_id: call.last_event_id().map(Into::into),
        cancel_on_disconnect: call.query.flag("cancel_on_disconnect")?,
    };
    let access = joining(&call, join.cancel_on_disconnect);
    let run = call.runs().locate(&access, call.path.run()?).await?;
    watch(&call, &access, run, join, &path(None, run)).await
}

/// `GET /runs/{run_id}/join`
pub(in crate::http) async fn join(call: Call) -> Result<Response<Body>, Error> {
    let cancel = call.query.flag("cancel_on_disconnect")?;
    let access = joining(&call, cancel);
    let run = call.runs().locate(&access, call.path.run()?).await?;
    // A stream that cannot be resumed may outlive its run for a moment; nothing tells the end then.
    let runs = call.runs();
    if runs.handle(run).is_none()
        && runs.find_row(run.thread, run.run).await?.is_none()
        && runs.ended(&access, run).await?.is_none()
    {
        return Err(runs::Error::NoRun(run.run).into());
    }
    join_run(&call, &access, run, cancel).await
}
