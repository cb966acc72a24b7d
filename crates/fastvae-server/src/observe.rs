//! [`Observer`]: what the service counts, in Prometheus' form, and the access log.
//!
//! The recorder belongs to the service and not to the process, so that two services in one process, as in tests,
//! do not count for each other.

use std::time::{Duration, Instant};

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::app::App;
use crate::served::Served;

/// Upper ends of the buckets of times, in seconds.
const BUCKETS: [f64; 14] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

const METADATA: Metadata<'static> = Metadata::new("fastvae_server", Level::INFO, None);

/// Counts and times of one service.
pub struct Observer {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

impl Default for Observer {
    fn default() -> Self {
        let recorder =
            PrometheusBuilder::new().set_buckets(&BUCKETS).expect("there are buckets").build_recorder();
        let describe = |name: &'static str| KeyName::from_const_str(name);
        recorder.describe_counter(
            describe("fastvae_requests_total"),
            None,
            "Requests, by route and status.".into(),
        );
        recorder.describe_histogram(
            describe("fastvae_request_seconds"),
            Some(Unit::Seconds),
            "Time from a request's head to its answer's, by route.".into(),
        );
        recorder.describe_histogram(
            describe("fastvae_compute_seconds"),
            Some(Unit::Seconds),
            "Time of a request on a thread that computes.".into(),
        );
        recorder.describe_counter(describe("fastvae_reloads_total"), None, "Reloads, by result.".into());
        recorder.describe_counter(
            describe("fastvae_refused_connections_total"),
            None,
            "Connections closed because too many were open.".into(),
        );
        recorder.describe_gauge(describe("fastvae_model_items"), None, "Items of the model.".into());
        recorder.describe_gauge(
            describe("fastvae_model_loaded_timestamp_seconds"),
            None,
            "When the model was loaded.".into(),
        );
        recorder.describe_gauge(describe("fastvae_resident_bytes"), None, "Memory of the process.".into());
        Self { handle: recorder.handle(), recorder }
    }
}

impl Observer {
    /// Everything, as Prometheus reads it.
    pub(crate) fn render(&self) -> String {
        if let Some(bytes) = fastvae::internals::resources::current_memory() {
            self.gauge("fastvae_resident_bytes", bytes as f64);
        }
        self.handle.render()
    }

    /// Sums up the times that have come in; to be called now and then, or they pile up.
    pub(crate) fn tidy(&self) {
        self.handle.run_upkeep();
    }

    fn gauge(&self, name: &'static str, value: f64) {
        self.recorder.register_gauge(&Key::from_static_name(name), &METADATA).set(value);
    }

    pub(crate) fn note_model(&self, served: &Served) {
        self.gauge("fastvae_model_items", served.model.n_items() as f64);
        self.gauge("fastvae_model_loaded_timestamp_seconds", served.loaded_at as f64);
    }

    pub(crate) fn note_reload(&self, done: bool) {
        let result = if done { "done" } else { "failed" };
        let key = Key::from_parts("fastvae_reloads_total", vec![Label::new("result", result)]);
        self.recorder.register_counter(&key, &METADATA).increment(1);
    }

    pub(crate) fn note_compute(&self, time: Duration) {
        let key = Key::from_static_name("fastvae_compute_seconds");
        self.recorder.register_histogram(&key, &METADATA).record(time.as_secs_f64());
    }

    pub(crate) fn note_refused_connection(&self) {
        let key = Key::from_static_name("fastvae_refused_connections_total");
        self.recorder.register_counter(&key, &METADATA).increment(1);
    }

    fn note_request(&self, route: &str, status: u16, time: Duration) {
        // Routes and not addresses: there are as many of these as clients can think of.
        let route = Label::new("route", route.to_string());
        let labels = vec![route.clone(), Label::new("status", status.to_string())];
        let requests = Key::from_parts("fastvae_requests_total", labels);
        self.recorder.register_counter(&requests, &METADATA).increment(1);
        let seconds = Key::from_parts("fastvae_request_seconds", vec![route]);
        self.recorder.register_histogram(&seconds, &METADATA).record(time.as_secs_f64());
    }
}

/// Counts a request and writes it to the access log: neither headers nor queries, which may hold secrets.
pub(crate) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_string();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let time = started.elapsed();
    let status = response.status().as_u16();
    app.observer().note_request(route.as_ref().map_or("none", MatchedPath::as_str), status, time);
    tracing::info!(
        target: "fastvae_server::access",
        %method,
        path,
        status,
        ms = time.as_secs_f64() * 1e3,
        bytes = response.body().size_hint().exact(),
        "request"
    );
    response
}
