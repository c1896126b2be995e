//! Spans to an OpenTelemetry collector: OTLP over HTTP with protobuf, by the standard variables.

use std::{env, sync::OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

use super::Error;
use crate::trace::TARGET;

/// What collects and sends the spans of this process.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// The layer that collects spans, if the environment names a collector: any of
/// `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and
/// `OTEL_TRACES_EXPORTER=otlp`. `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` turn it off.
/// The endpoints, headers, time limits, sampler, batches and resource are read by OpenTelemetry's own
/// library from the variables that its specification names.
///
/// # Errors
/// The variables ask for another exporter or protocol than OTLP over http/protobuf, or the exporter
/// refuses them.
pub(super) fn layer<S>() -> Result<Option<impl Layer<S>>, Error>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    if !is_wanted()? {
        return Ok(None);
    }
    crate::tls::set_provider();
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| Error::Traces(format!("the HTTP client: {error}")))?;
    let runtime = Handle::current();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Client { client, runtime })
        .build()
        .map_err(|error| Error::Traces(error.to_string()))?;
    let mut resource = Resource::builder();
    if variable("OTEL_SERVICE_NAME").is_none() && !names_service() {
        resource = resource.with_service_name("backstitch");
    }
    let provider = SdkTracerProvider::builder()
        .with_resource(resource.build())
        .with_batch_exporter(exporter)
        .build();
    let tracer = provider.tracer("backstitch");
    PROVIDER
        .set(provider)
        .map_err(|_| Error::Taken("spans are collected already".into()))?;
    let spans = Targets::new().with_target(TARGET, tracing::Level::INFO);
    Ok(Some(
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            // Where in the source a span begins tells operators nothing.
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(spans),
    ))
}

/// Sends what is collected and has not been sent, for at most five seconds.
pub(super) async fn flush() {
    let Some(provider) = PROVIDER.get() else {
        return;
    };
    // It blocks, and the client below needs this runtime meanwhile.
    let ended = tokio::task::spawn_blocking(|| provider.shutdown()).await;
    if let Ok(Err(error)) = ended {
        tracing::warn!(%error, "the last spans could not be sent");
    }
}

fn is_wanted() -> Result<bool, Error> {
    let is_disabled = variable("OTEL_SDK_DISABLED");
    if is_disabled.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Ok(false);
    }
    let exporter = variable("OTEL_TRACES_EXPORTER");
    let endpoints = [
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ];
    if exporter.as_deref() == Some("none") {
        return Ok(false);
    }
    check_protocol()?;
    match exporter.as_deref() {
        Some("otlp") => Ok(true),
        None => Ok(endpoints.iter().any(|name| variable(name).is_some())),
        Some(other) => Err(Error::Traces(format!(
            "OTEL_TRACES_EXPORTER `{other}`: write otlp or none"
        ))),
    }
}

/// The variable for traces goes before the one for everything.
fn check_protocol() -> Result<(), Error> {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ];
    for name in names {
        match variable(name).as_deref() {
            None => {}
            Some("http/protobuf") => return Ok(()),
            Some(other) => {
                return Err(Error::Traces(format!(
                    "{name} `{other}`: this server sends traces as http/protobuf only"
                )));
            }
        }
    }
    Ok(())
}

/// Whether the attributes of the environment name the service.
fn names_service() -> bool {
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let mut attributes = attributes.split(',');
    attributes.any(|one| one.trim_start().starts_with("service.name="))
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// Sends on the runtime of the server: spans are exported by a thread outside it.
#[derive(Debug)]
struct Client {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let client = self.client.clone();
        let task = self.runtime.spawn(async move {
            let response = client.execute(request).await?;
            let status = response.status();
            // What a collector writes beside its status is not used.
            Ok::<_, reqwest::Error>(status)
        });
        let status = task.await??;
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        Ok(response)
    }
}
