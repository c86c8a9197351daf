//! Formats the requests and connections of an HTTP service for a terminal.

use super::pools::table;
use crate::status::{HttpPoolStatus, HttpStatus, Rates};

/// Returns the output of `evenkeel pools`.
pub(in crate::cli) fn rendered(status: &HttpStatus, rates: &Rates) -> String {
    let mut lines = summary(status, rates);
    let head = [
        "SERVER",
        "REQUESTS",
        "CONNECTIONS",
        "IDLE",
        "OPENING",
        "WAITING",
        "LONGEST",
    ];
    lines.extend(table(head, status.pools.iter().map(row)));
    lines.join("\n")
}

/// Returns the lines for an HTTP service in the output of `evenkeel status`.
pub(super) fn summary(status: &HttpStatus, rates: &Rates) -> Vec<String> {
    let all = &status.all_pools;
    let classes = status.responses.iter().filter(|class| class.count > 0);
    let classes: Vec<_> = classes
        .map(|class| format!("{} {}", class.count, class.what))
        .collect();
    let classes = match classes.is_empty() {
        true => String::new(),
        false => format!(" ({})", classes.join(", ")),
    };
    vec![
        format!(
            "  requests: {} in the last second, {} in progress, {} waiting, {} total{classes}",
            rates.requests, all.requests, all.waiting, status.requests_total
        ),
        format!(
            "  {} answered by Evenkeel, {} retried, {} refused, {} aborted, {} tunnels; {} server \
             connections, {} idle",
            status.own_responses_total,
            status.retried_total,
            status.refused_total,
            status.aborted_total,
            status.tunnels_total,
            all.connections,
            all.idle
        ),
    ]
}

fn row(pool: &HttpPoolStatus) -> [String; 7] {
    [
        pool.server.clone(),
        pool.requests.to_string(),
        pool.connections.to_string(),
        pool.idle.to_string(),
        pool.opening.to_string(),
        pool.waiting.to_string(),
        format!("{} ms", pool.longest_wait_ms),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::sample;

    #[test]
    fn a_service_shows_its_requests_and_its_connections() {
        let status = sample::status();
        let web = status
            .services
            .iter()
            .find(|one| one.http.is_some())
            .unwrap();
        let text = rendered(web.http.as_ref().unwrap(), &web.rates);
        let expect = "  requests: 1500 in the last second, 7 in progress, 2 waiting, 115 total (1 \
             1xx, 100 2xx, 10 4xx, 4 5xx)";
        assert_eq!(text.lines().next(), Some(expect));
        let expect = "  6 answered by Evenkeel, 3 retried, 5 refused, 2 aborted, 1 tunnels; 9 \
             server connections, 2 idle";
        assert_eq!(text.lines().nth(1), Some(expect));
        let row: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["web1", "7", "9", "2", "1", "2", "40", "ms"]);
    }
}
