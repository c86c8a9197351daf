//! Checks clusters, and settings of servers that several services use.

use std::collections::HashMap;

use super::spans_of;
use crate::cluster::ClusterDraft;
use crate::plan::Address;
use crate::problem::{Problems, SourceSpan};
use crate::service::Draft;

/// Reports clusters with the same name, and those that no service names.
pub(crate) fn clusters(clusters: &[ClusterDraft], drafts: &[Draft], problems: &mut Problems) {
    let mut seen: HashMap<&str, &SourceSpan> = HashMap::new();
    for cluster in clusters.iter().filter(|cluster| !cluster.name.is_empty()) {
        let name = cluster.name.as_str();
        if let Some(first) = seen.insert(name, &cluster.name_span) {
            let message = format!("two clusters are called `{name}`");
            let help = "give one of them another name";
            problems
                .error(&cluster.name_span, "E_DUPLICATE_CLUSTER", message, help)
                .with_other(first, "the other one is");
            continue;
        }
        let is_named = |draft: &Draft| draft.plan.cluster.as_deref() == Some(name);
        if !drafts.iter().any(is_named) {
            let message = format!("no service names the cluster `{name}`");
            let help = format!("add `cluster = \"{name}\"` to a service, or remove the cluster");
            problems.warning(&cluster.name_span, "W_NO_EFFECT", message, help);
        }
    }
}

/// Reports contradictions between services or clusters with the same address, which share its
/// probes, its state and its limit.
pub(super) fn servers(drafts: &[Draft], problems: &mut Problems) {
    let mut seen: HashMap<&Address, (usize, usize)> = HashMap::new();
    for (draft_index, draft) in drafts.iter().enumerate() {
        let mut is_reported = false;
        for (index, server) in draft.plan.servers.iter().enumerate() {
            let Some((first, server_index)) = seen.get(&server.address).copied() else {
                seen.insert(&server.address, (draft_index, index));
                continue;
            };
            if is_same_table(&drafts[first], draft) {
                continue;
            }
            limit((&drafts[first], server_index), (draft, index), problems);
            // One report per service is enough, even if it shares several servers.
            is_reported = is_reported || settings(&drafts[first], draft, &server.address, problems);
        }
    }
}

/// Returns whether two services take their servers from the same table of the file.
fn is_same_table(a: &Draft, b: &Draft) -> bool {
    std::ptr::eq(a, b) || (a.plan.cluster.is_some() && a.plan.cluster == b.plan.cluster)
}

/// Returns the table that lists the servers, for messages: service `a`, cluster `b`.
fn lister(draft: &Draft) -> String {
    match &draft.plan.cluster {
        Some(cluster) => format!("cluster `{cluster}`"),
        None => format!("service `{}`", draft.plan.name),
    }
}

fn limit(first: (&Draft, usize), second: (&Draft, usize), problems: &mut Problems) {
    let (a, b) = (
        &first.0.plan.servers[first.1],
        &second.0.plan.servers[second.1],
    );
    if a.max_connections == b.max_connections {
        return;
    }
    let words = |limit: Option<u32>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let message = format!(
        "{} has `max_connections` {} here, but {} in {}",
        b.address,
        words(b.max_connections),
        words(a.max_connections),
        lister(first.0)
    );
    let help = "a server has one limit for all services: make it a [[cluster]] that both services \
                name, or set the same value in both";
    let span = |(draft, index): (&Draft, usize)| {
        spans_of(draft.spans.upstream.servers.get(index)).max_connections
    };
    problems
        .error(&span(second), "E_SHARED_SERVER", message, help)
        .with_other(&span(first), "the other one is");
}

/// Reports different settings for a shared server. Returns whether there was one.
fn settings(first: &Draft, second: &Draft, address: &Address, problems: &mut Problems) -> bool {
    let (a, b) = (&first.plan, &second.plan);
    let (first_spans, second_spans) = (&first.spans.upstream, &second.spans.upstream);
    let differing = [
        (
            "health",
            a.health != b.health,
            [&first_spans.health, &second_spans.health],
        ),
        (
            "monitor",
            a.monitor != b.monitor,
            [&first_spans.monitor, &second_spans.monitor],
        ),
        (
            "server_tls",
            a.server_tls != b.server_tls,
            [&first_spans.server_tls, &second_spans.server_tls],
        ),
    ];
    let mut is_reported = false;
    for (key, _, [first_span, second_span]) in differing.into_iter().filter(|one| one.1) {
        let message = format!(
            "{} shares {address} with {}, but its {} differs",
            lister(second),
            lister(first),
            second_spans.home.title(key)
        );
        let help = format!(
            "a server has one set of probes for all services: make it a [[cluster]] with one \
             [cluster.{key}], which both services name"
        );
        let second_place = second_span.clone().or(second_spans.table.clone());
        let first_place = first_span.clone().or(first_spans.table.clone());
        problems
            .error(&second_place, "E_SHARED_SERVER", message, help)
            .with_other(&first_place, "the other one is");
        is_reported = true;
    }
    is_reported
}
