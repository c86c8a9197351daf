//! Reads the settings of services with `protocol = "http"`.

use super::plan::{HttpLimitsPlan, HttpPlan, HttpPoolPlan, HttpTimesPlan};
use super::problem::Problems;
use super::reader::Table;
use super::sources::Sources;
use super::{keys, tls};

/// Reads these settings from the tables of the service.
pub(super) fn read(table: &Table<'_>, sources: &Sources, problems: &mut Problems) -> HttpPlan {
    let mut http = HttpPlan::default();
    if let Some(pool) = table.table("pool", &keys::HTTP_POOL, problems) {
        http.pool = read_pool(&pool, problems);
    }
    if let Some(times) = table.table("times", &keys::TIMES, problems) {
        http.times = read_times(&times, problems);
    }
    if let Some(limits) = table.table("http", &keys::HTTP, problems) {
        http.limits = read_limits(&limits, problems);
    }
    let tls = table.table("tls", &keys::HTTP_TLS, problems);
    http.tls = tls.and_then(|tls| tls::read_http(&tls, sources, problems));
    http
}

fn read_pool(table: &Table<'_>, problems: &mut Problems) -> HttpPoolPlan {
    let mut pool = HttpPoolPlan::default();
    let mut small = |key, field: &mut u32| {
        *field = table.small_number(key, problems).unwrap_or(*field);
    };
    small("size", &mut pool.size);
    small("min_idle", &mut pool.min_idle);
    small("queue_length", &mut pool.queue_length);
    let mut number = |key, field: &mut u64| {
        *field = table.number(key, problems).unwrap_or(*field);
    };
    number("idle_ms", &mut pool.idle_ms);
    number("lifetime_ms", &mut pool.lifetime_ms);
    number("wait_ms", &mut pool.wait_ms);
    if pool.size > 0 && pool.min_idle > pool.size {
        let message = format!("`min_idle` is more than `size`, which is {}", pool.size);
        let help = format!("use {} or less, or a larger `size`", pool.size);
        problems.error(&table.value_span("min_idle"), "E_ORDER", message, help);
    }
    pool
}

fn read_times(table: &Table<'_>, problems: &mut Problems) -> HttpTimesPlan {
    let mut times = HttpTimesPlan::default();
    let mut number = |key, field: &mut u64| {
        *field = table.number(key, problems).unwrap_or(*field);
    };
    number("header_ms", &mut times.header_ms);
    number("first_byte_ms", &mut times.first_byte_ms);
    number("keepalive_ms", &mut times.keepalive_ms);
    number("body_idle_ms", &mut times.body_idle_ms);
    number("tunnel_idle_ms", &mut times.tunnel_idle_ms);
    times
}

fn read_limits(table: &Table<'_>, problems: &mut Problems) -> HttpLimitsPlan {
    let mut limits = HttpLimitsPlan::default();
    let mut small = |key, field: &mut u32| {
        *field = table.small_number(key, problems).unwrap_or(*field);
    };
    small("head_bytes_max", &mut limits.head_bytes_max);
    small("fields_max", &mut limits.fields_max);
    if let Some(bytes) = table.number("body_bytes_max", problems) {
        limits.body_bytes_max = bytes;
    }
    limits
}
