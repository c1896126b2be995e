//! What a process counts as text for Prometheus.

use std::{collections::BTreeMap, fmt, sync::atomic::AtomicU64, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::text,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

use super::{Gauge, Metrics, Served};

type Labels = Vec<(&'static str, String)>;
/// Those of a route, which are the program's own texts, so that to count a request allocates nothing.
type OfRoute = [(&'static str, &'static str); 2];
type Gauges = Family<Labels, gauge::Gauge<f64, AtomicU64>>;

/// Upper ends of the ranges in which the time of requests is counted, in milliseconds: those of
/// LangGraph's server.
const LATENCIES: [f64; 11] = [
    10.0, 100.0, 500.0, 1_000.0, 5_000.0, 15_000.0, 30_000.0, 60_000.0, 120_000.0, 300_000.0,
    600_000.0,
];

/// Makes the histogram of a route.
#[derive(Clone, Debug)]
struct NewHistogram;

impl MetricConstructor<Histogram> for NewHistogram {
    fn new_metric(&self) -> Histogram {
        Histogram::new(LATENCIES)
    }
}

/// How long requests took, by route.
pub(super) struct Latencies {
    registry: Registry,
    of_routes: Family<OfRoute, Histogram, NewHistogram>,
}

impl Default for Latencies {
    fn default() -> Self {
        let of_routes = Family::new_with_constructor(NewHistogram);
        let mut registry = Registry::default();
        let help = "Milliseconds from the head of a request to the head of its response";
        registry.register("lg_api_http_requests_latency", help, of_routes.clone());
        Self {
            registry,
            of_routes,
        }
    }
}

impl Latencies {
    /// Counts a response of a route.
    pub(super) fn observe(&self, served: Served, took: Duration) {
        let labels = [("method", served.method), ("path", served.path)];
        let of_route = self.of_routes.get_or_create(&labels);
        of_route.observe(took.as_secs_f64() * 1e3);
    }
}

impl Metrics {
    /// Everything in the text format of Prometheus, with what was measured just now.
    ///
    /// # Errors
    /// None that happens: writing to a text does not fail.
    pub fn to_text(&self, measured: &[Gauge]) -> Result<String, fmt::Error> {
        let mut counters = Registry::default();
        let responses = Family::<Labels, Counter>::default();
        for (served, count) in self.responses() {
            let labels = vec![
                ("method", served.method.to_owned()),
                ("path", served.path.to_owned()),
                ("status", served.status.to_string()),
            ];
            responses.get_or_create(&labels).inc_by(count);
        }
        let help = "Responses by route and status";
        counters.register("lg_api_http_requests", help, responses);
        let ended = by("status", &self.ended);
        let help = "Runs that this process has ended, by status";
        counters.register("backstitch_runs_ended", help, ended);
        let help = "Tries of this process to deliver a webhook, by result";
        counters.register("backstitch_webhook_tries", help, by("result", &self.tries));
        let help = "Due times of crons that this process has served, by result";
        let firings = by("result", &self.firings);
        counters.register("backstitch_cron_firings", help, firings);
        for of_name in measured.chunk_by(|one, next| one.name == next.name) {
            let gauges = Gauges::default();
            for measured in of_name {
                let labels = measured.label.iter().cloned().collect();
                gauges.get_or_create(&labels).set(measured.value);
            }
            if let Some(first) = of_name.first() {
                counters.register(first.name, first.help, gauges);
            }
        }
        let mut text = String::new();
        text::encode_registry(&mut text, &counters)?;
        text::encode_registry(&mut text, &self.latencies.registry)?;
        Ok(named_as_samples(&text))
    }
}

/// Counts under one label.
fn by(label: &'static str, counts: &Mutex<BTreeMap<&'static str, u64>>) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for (name, count) in &*counts.lock() {
        let labels = vec![(label, (*name).to_owned())];
        family.get_or_create(&labels).inc_by(*count);
    }
    family
}

/// In Prometheus' own format a counter is described by the name of its samples, which in OpenMetrics is
/// that name without `_total`.
fn named_as_samples(text: &str) -> String {
    let mut counters = vec![];
    for line in text.lines() {
        let described = line.strip_prefix("# TYPE ");
        counters.extend(described.and_then(|rest| rest.strip_suffix(" counter")));
    }
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(kind), Some(name), Some(rest)) if counters.contains(&name) => {
                out.push_str(&format!("# {kind} {name}_total {rest}\n"));
            }
            // A sample without labels needs no braces.
            _ => {
                let (name, value) = line.split_once("{} ").unwrap_or((line, ""));
                out.push_str(name);
                if !value.is_empty() {
                    out.push(' ');
                    out.push_str(value);
                }
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_in_the_text_under_its_labels() {
        let metrics = Metrics::default();
        let served = |status| Served {
            path: "/threads/{thread_id}",
            method: "GET",
            status,
        };
        for status in [200, 200, 404] {
            metrics.count_response(served(status), Duration::from_millis(50));
        }
        metrics.count_end("success");
        metrics.count_try("failed");
        metrics.count_firing("created");
        let measured = Gauge {
            name: "lg_api_workers_max",
            help: "Slots",
            label: None,
            value: 512.0,
        };
        let text = metrics.to_text(&[measured]).unwrap();
        for line in [
            "# TYPE lg_api_http_requests_total counter",
            r#"lg_api_http_requests_total{method="GET",path="/threads/{thread_id}",status="200"} 2"#,
            r#"lg_api_http_requests_total{method="GET",path="/threads/{thread_id}",status="404"} 1"#,
            r#"backstitch_runs_ended_total{status="success"} 1"#,
            r#"backstitch_webhook_tries_total{result="failed"} 1"#,
            r#"backstitch_cron_firings_total{result="created"} 1"#,
            "# TYPE lg_api_workers_max gauge",
            "lg_api_workers_max 512.0",
            "# TYPE lg_api_http_requests_latency histogram",
            r#"lg_api_http_requests_latency_bucket{le="10.0",method="GET",path="/threads/{thread_id}"} 0"#,
            r#"lg_api_http_requests_latency_bucket{le="100.0",method="GET",path="/threads/{thread_id}"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert_eq!(metrics.responses(), [(served(200), 2), (served(404), 1)]);
    }
}
