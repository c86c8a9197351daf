//! Renders the status as metrics in the OpenMetrics text format.
//!
//! Names are `evenkeel_<object>_<what>_<unit>`, counters end in `_total`; units are base units.

mod families;
mod http;
mod pools;
#[cfg(test)]
mod tests;
mod work;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::status::{Histogram, ServerStatus, ServiceStatus, Status};
use families::{Family, Value};

const BYTES: Option<Unit> = Some(Unit::Bytes);
const SECONDS: Option<Unit> = Some(Unit::Seconds);

/// Content type of the output of [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns all metrics of one status, as text.
pub fn render(status: &Arc<Status>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(StatusCollector(Arc::clone(status))));
    let mut page = String::new();
    // Writing into a String does not fail, and neither do the encoders of this crate.
    let _ = text::encode(&mut page, &registry);
    page
}

/// Collector of metrics from one status, so that one scrape never mixes two moments.
#[derive(Debug)]
struct StatusCollector(Arc<Status>);

impl Collector for StatusCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        encode_process(&self.0, &mut encoder)?;
        for family in families::SERVICE {
            encode_service_family(family, &self.0.services, &mut encoder)?;
        }
        for family in pools::SERVICE
            .iter()
            .chain(&work::USER)
            .chain(&work::DIGEST)
            .chain(http::SERVICE)
        {
            encode_service_family(family, &self.0.services, &mut encoder)?;
        }
        for family in HISTOGRAMS {
            encode_histogram(family, &self.0.services, &mut encoder)?;
        }
        encode_routes(&self.0.services, &mut encoder)?;
        for family in families::SERVER.iter().chain(&work::SERVER) {
            encode_server_family(family, &self.0.services, &mut encoder)?;
        }
        Ok(())
    }
}

fn encode_process(status: &Status, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Program version and I/O driver";
    let mut build = encoder.encode_descriptor("evenkeel_build", help, None, MetricType::Info)?;
    build.encode_info(&[("version", &*status.version), ("io", &*status.engine.io)])?;

    for family in families::PROCESS {
        let mut metric = describe(family, encoder)?;
        (family.samples)(status, &mut |labels, value| {
            encode(&mut metric, labels, &value)
        })?;
    }
    Ok(())
}

fn encode_service_family(
    family: &Family<ServiceStatus>,
    services: &[ServiceStatus],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let mut metric = describe(family, encoder)?;
    for service in distinct_services(services) {
        (family.samples)(service, &mut |extra, value| {
            let labels = [&[("service", &*service.name)][..], extra].concat();
            encode(&mut metric, &labels, &value)
        })?;
    }
    Ok(())
}

fn encode_server_family(
    family: &Family<ServerStatus>,
    services: &[ServiceStatus],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let mut metric = describe(family, encoder)?;
    for service in distinct_services(services) {
        for server in distinct(&service.servers, |server| &server.name) {
            (family.samples)(server, &mut |extra, value| {
                let own = [("service", &*service.name), ("server", &*server.name)];
                encode(&mut metric, &[&own[..], extra].concat(), &value)
            })?;
        }
    }
    Ok(())
}

/// Returns one server or service per name. A removed one may still have sessions while a new one
/// has the same name, and a scraper rejects a page with two series of equal labels.
fn distinct<T>(all: &[T], name: fn(&T) -> &str) -> impl Iterator<Item = &T> {
    let mut seen = HashSet::with_capacity(all.len());
    all.iter().filter(move |one| seen.insert(name(one)))
}

fn distinct_services(services: &[ServiceStatus]) -> impl Iterator<Item = &ServiceStatus> {
    distinct(services, |service| &service.name)
}

fn describe<'e, T>(
    family: &'e Family<T>,
    encoder: &'e mut DescriptorEncoder,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.kind)
}

fn encode(metric: &mut MetricEncoder, labels: &[(&str, &str)], value: &Value) -> fmt::Result {
    // An empty label set would be written as `{}`.
    if labels.is_empty() {
        return encode_value(metric, value);
    }
    encode_value(&mut metric.encode_family(&labels)?, value)
}

fn encode_value(sample: &mut MetricEncoder, value: &Value) -> fmt::Result {
    match value {
        Value::Count(count) => sample.encode_counter::<NoLabelSet, _, u64>(count, None),
        Value::Sum(sum) => sample.encode_counter::<NoLabelSet, _, u64>(sum, None),
        Value::Now(number) => sample.encode_gauge(number),
    }
}

/// Histogram of a service, with the number of its units per second.
struct HistogramFamily {
    name: &'static str,
    help: &'static str,
    per_second: f64,
    of: fn(&ServiceStatus) -> Option<&Histogram>,
}

const HISTOGRAMS: &[HistogramFamily] = &[
    HistogramFamily {
        name: "evenkeel_service_connect",
        help: "Time to connect to a server",
        per_second: 1e6,
        of: |service| Some(&service.connect_us),
    },
    HistogramFamily {
        name: "evenkeel_service_session",
        help: "Duration of finished sessions",
        per_second: 1e3,
        of: |service| Some(&service.session_ms),
    },
    HistogramFamily {
        name: "evenkeel_service_pool_wait",
        help: "Time clients waited for a server connection; without clients served immediately",
        per_second: 1e6,
        of: |service| Some(&service.database.as_ref()?.wait_us),
    },
    HistogramFamily {
        name: "evenkeel_service_query",
        help: "Query duration, from its first byte to the end of the result",
        per_second: 1e6,
        of: |service| Some(&service.database.as_ref()?.query_us),
    },
    HistogramFamily {
        name: "evenkeel_service_transaction",
        help: "Transaction duration",
        per_second: 1e6,
        of: |service| Some(&service.database.as_ref()?.transaction_us),
    },
    HistogramFamily {
        name: "evenkeel_http_request_duration",
        help: "Time from the head of a request to the end of its response",
        per_second: 1e6,
        of: |service| Some(&service.http.as_ref()?.request_us),
    },
    HistogramFamily {
        name: "evenkeel_http_first_byte",
        help: "Time from the send of a request to the head of its response",
        per_second: 1e6,
        of: |service| Some(&service.http.as_ref()?.first_byte_us),
    },
];

fn encode_histogram(
    family: &HistogramFamily,
    services: &[ServiceStatus],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let unit = Some(&Unit::Seconds);
    let mut metric =
        encoder.encode_descriptor(family.name, family.help, unit, MetricType::Histogram)?;
    for service in distinct_services(services) {
        let Some(histogram) = (family.of)(service) else {
            continue;
        };
        let labels = [("service", &*service.name)];
        encode_sample(&mut metric, &labels, histogram, family.per_second)?;
    }
    Ok(())
}

/// Encodes the histograms of the routes of all HTTP services.
fn encode_routes(services: &[ServiceStatus], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let (name, unit) = ("evenkeel_http_route_duration", Some(&Unit::Seconds));
    let help = "Time from the head of a request of a route to the end of its response";
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    for service in distinct_services(services) {
        for route in service.http.iter().flat_map(|http| &http.routes) {
            let labels = [("service", &*service.name), ("route", &*route.route)];
            encode_sample(&mut metric, &labels, &route.request_us, 1e6)?;
        }
    }
    Ok(())
}

fn encode_sample(
    metric: &mut MetricEncoder,
    labels: &[(&str, &str)],
    histogram: &Histogram,
    per_second: f64,
) -> fmt::Result {
    let mut sample = metric.encode_family(&labels)?;
    let buckets = buckets_in_seconds(histogram, per_second);
    let sum = histogram.sum as f64 / per_second;
    sample.encode_histogram::<NoLabelSet>(sum, histogram.count, &buckets, None)
}

/// Returns the buckets, not cumulative, because the encoder adds them up. The last bucket holds the
/// remainder, so that the buckets always add up to the count.
fn buckets_in_seconds(histogram: &Histogram, per_second: f64) -> Vec<(f64, u64)> {
    let mut left = histogram.count;
    let mut buckets = Vec::with_capacity(histogram.bounds.len() + 1);
    for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
        let count = (*count).min(left);
        left -= count;
        buckets.push((*bound as f64 / per_second, count));
    }
    buckets.push((f64::INFINITY, left));
    buckets
}
