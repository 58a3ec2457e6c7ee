//! The library's metrics, for Prometheus.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// There is one recorder in a process, however many sites run in it.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Records the library's metrics from now on.
pub fn record() {
    if RECORDER.get().is_none() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        // Another site of this process may have been the first.
        if metrics::set_global_recorder(recorder).is_ok() {
            diesel_sharded::observability::describe_metrics();
            let _ = RECORDER.set(handle); // only the first one comes here
        }
    }
}

/// All metrics, as Prometheus reads them.
pub async fn page() -> String {
    RECORDER.get().map_or_else(String::new, |recorder| {
        recorder.run_upkeep();
        recorder.render()
    })
}
