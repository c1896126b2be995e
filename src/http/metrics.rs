//! What a process counts and measures, for those who watch it.

use std::sync::Arc;

use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};

use super::server::{
    Body, Error, body,
    call::{Call, Shared},
};
use crate::{metrics::Gauge, runs::Waiting, value::Value};

/// The text format of Prometheus.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// `GET /metrics`
pub(super) async fn metrics(call: Call) -> Result<Response<Body>, Error> {
    let format = call.query.get("format").filter(|text| !text.is_empty());
    let is_json = match format {
        None | Some("prometheus") => false,
        Some("json") => true,
        Some(other) => {
            let detail = format!("Invalid format {other}: prometheus or json");
            return Err(Error::invalid(detail));
        }
    };
    let waiting = call.runs().waiting().await?;
    let (active, slots) = call.runs().occupied();
    if is_json {
        return Ok(body::json(
            StatusCode::OK,
            &json(&call.shared, &waiting, active, slots),
        ));
    }
    let measured = measured(&call.shared, &waiting, active, slots);
    let metrics = call.runs().metrics();
    let text = metrics.to_text(&measured);
    let text = text.map_err(|error| Error::internal(&error))?;
    let mut response = Response::new(body::full(text));
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    Ok(response)
}

fn json(shared: &Arc<Shared>, waiting: &Waiting, active: usize, slots: usize) -> Value {
    let number = |number: usize| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let seconds = |seconds: Option<f64>| seconds.map_or(Value::Null, Value::from);
    let responses = shared.services.runs().metrics().responses();
    let responses = responses.into_iter().map(|(served, count)| {
        crate::value!({
            "method": served.method,
            "path": served.path,
            "status": i64::from(served.status),
            "count": i64::try_from(count).unwrap_or(i64::MAX)
        })
    });
    crate::value!({
        "queue": {
            "n_pending": number(waiting.pending),
            "pending_runs_wait_time_max_secs": seconds(waiting.longest),
            "pending_runs_wait_time_med_secs": seconds(waiting.median),
            "n_running": number(waiting.running)
        },
        "api": { "http_requests_total": Value::list(responses.collect()) },
        "workers": {
            "max": number(slots),
            "active": number(active),
            "available": number(slots.saturating_sub(active))
        }
    })
}

/// What is read at this moment. Those of one name follow each other.
fn measured(shared: &Arc<Shared>, waiting: &Waiting, active: usize, slots: usize) -> Vec<Gauge> {
    let mut all = vec![];
    let mut put = |name, help, label: Option<(&'static str, &str)>, value: f64| {
        let label = label.map(|(key, text)| (key, text.to_owned()));
        all.push(Gauge {
            name,
            help,
            label,
            value,
        });
    };
    let options = &shared.options;
    let runs = shared.services.runs();
    let free = slots.saturating_sub(active);
    put(
        "lg_api_workers_max",
        "Runs that this process executes at once, at most",
        None,
        slots as f64,
    );
    put(
        "lg_api_workers_active",
        "Runs that this process executes",
        None,
        active as f64,
    );
    put(
        "lg_api_workers_available",
        "Runs that this process could execute besides",
        None,
        free as f64,
    );
    let help = "Runs of all processes that wait";
    put(
        "lg_api_num_pending_runs",
        help,
        None,
        waiting.pending as f64,
    );
    let help = "Runs that all processes execute";
    put(
        "lg_api_num_running_runs",
        help,
        None,
        waiting.running as f64,
    );
    let help = "Seconds that the run waits that has waited longest";
    put(
        "lg_api_pending_runs_wait_time_max",
        help,
        None,
        waiting.longest.unwrap_or(0.0),
    );
    let help = "Seconds that half of the waiting runs have waited";
    put(
        "lg_api_pending_runs_wait_time_med",
        help,
        None,
        waiting.median.unwrap_or(0.0),
    );
    let pools = runs.pools();
    for (name, help, value) in [
        (
            "lg_api_pg_pool_max",
            "Connections to Postgres, at most",
            (|pool| pool.max) as fn(&crate::runs::PoolState) -> usize,
        ),
        (
            "lg_api_pg_pool_size",
            "Open connections to Postgres",
            |pool| pool.open,
        ),
        (
            "lg_api_pg_pool_available",
            "Connections to Postgres that nobody uses",
            |pool| pool.free,
        ),
        (
            "lg_api_pg_pool_waiting",
            "Who waits for a connection to Postgres",
            |pool| pool.waiting,
        ),
    ] {
        for pool in &pools {
            put(name, help, Some(("pool", pool.name)), value(pool) as f64);
        }
    }
    let open = options
        .max_streams
        .saturating_sub(shared.streams.available_permits());
    let help = "Event streams and waiting responses that are open";
    put("backstitch_streams_open", help, None, open as f64);
    let help = "Event streams and waiting responses that may be open";
    put(
        "backstitch_streams_max",
        help,
        None,
        options.max_streams as f64,
    );
    let budgets = [
        ("requests", shared.bodies.reserved(), shared.bodies.total()),
        (
            "responses",
            shared.responses.reserved(),
            shared.responses.total(),
        ),
        (
            "runs",
            runs.run_memory().reserved(),
            runs.run_memory().total(),
        ),
        (
            "events",
            runs.stream_memory().used(),
            runs.stream_memory().limit(),
        ),
    ];
    for (budget, used, _) in budgets {
        let help = "Bytes of a memory budget that are in use";
        put(
            "backstitch_memory_used_bytes",
            help,
            Some(("budget", budget)),
            used as f64,
        );
    }
    for (budget, _, limit) in budgets {
        let help = "Bytes of a memory budget";
        put(
            "backstitch_memory_limit_bytes",
            help,
            Some(("budget", budget)),
            limit as f64,
        );
    }
    all
}
