//! Reads one `[[cluster]]`, and finds the cluster that a service names.

use crate::nearest::nearest;
use crate::plan::Protocol;
use crate::problem::{Problems, SourceSpan};
use crate::protocol;
use crate::reader::{Table, listed};
use crate::server;
use crate::sources::Sources;
use crate::upstream::{self, Home, Upstream, UpstreamSpans};

/// Keys that describe servers, and therefore belong to the cluster if a service names one.
const CLUSTER_KEYS: [&str; 6] = [
    "protocol",
    "servers",
    "send_proxy",
    "health",
    "monitor",
    "server_tls",
];

/// Cluster as far as it could be read, with the places of its parts.
#[derive(Debug)]
pub(crate) struct ClusterDraft {
    pub(crate) name: String,
    /// Protocol. `None` for an invalid word: then it is unknown which keys are valid.
    protocol: Option<Protocol>,
    upstream: Upstream,
    upstream_spans: UpstreamSpans,
    /// Place of the name, or of the cluster if it has none.
    pub(crate) name_span: SourceSpan,
}

/// Table from which a service takes its servers.
#[derive(Clone, Copy)]
pub(crate) enum ServerSource<'a> {
    /// The service itself.
    Own,
    /// The cluster that it names.
    Cluster(&'a ClusterDraft),
    /// A cluster that the file does not have.
    Unknown,
}

impl ServerSource<'_> {
    /// Returns the name of the cluster.
    pub(crate) fn cluster_name(self) -> Option<String> {
        match self {
            ServerSource::Cluster(cluster) => Some(cluster.name.clone()),
            ServerSource::Own | ServerSource::Unknown => None,
        }
    }

    /// Returns the protocol. `None` if it is unknown, which has been reported.
    pub(crate) fn protocol(self, table: &Table<'_>, problems: &mut Problems) -> Option<Protocol> {
        match self {
            ServerSource::Own => protocol::read(table, problems),
            ServerSource::Cluster(cluster) => cluster.protocol.clone(),
            ServerSource::Unknown => None,
        }
    }

    /// Returns the servers with their settings, and their places.
    pub(crate) fn upstream(
        self,
        protocol: &Protocol,
        table: &Table<'_>,
        sources: &Sources,
        problems: &mut Problems,
    ) -> (Upstream, UpstreamSpans) {
        match self {
            ServerSource::Own => {
                upstream::read((Home::Service, protocol), table, sources, problems)
            }
            ServerSource::Cluster(cluster) => {
                (cluster.upstream.clone(), cluster.upstream_spans.clone())
            }
            // A service without servers and protocol passes all further checks.
            ServerSource::Unknown => (Upstream::default(), UpstreamSpans::default()),
        }
    }
}

/// Reads one `[[cluster]]` table.
pub(crate) fn read(table: &Table<'_>, sources: &Sources, problems: &mut Problems) -> ClusterDraft {
    let name_span = table.value_span("name").or_else(|| table.span.clone());
    let name = server::read_name(table, "cluster", "`cluster = \"…\"` of services", problems);
    let protocol = protocol::read(table, problems);
    if let Some(protocol) = &protocol {
        protocol::check_keys(protocol, table, problems);
    }
    let home = (Home::Cluster, protocol.as_ref().unwrap_or(&Protocol::Tcp));
    let (upstream, upstream_spans) = upstream::read(home, table, sources, problems);
    ClusterDraft {
        name,
        protocol,
        upstream,
        upstream_spans,
        name_span,
    }
}

/// Returns the cluster that a service names, and reports the keys that then belong to the cluster.
pub(crate) fn of_service<'a>(
    table: &Table<'_>,
    clusters: &'a [ClusterDraft],
    problems: &mut Problems,
) -> ServerSource<'a> {
    if table.value("cluster").is_none() {
        return ServerSource::Own;
    }
    let Some(name) = table.text("cluster", problems) else {
        return ServerSource::Unknown;
    };
    let Some(cluster) = clusters.iter().find(|cluster| cluster.name == name) else {
        unknown_cluster(name, clusters, table, problems);
        return ServerSource::Unknown;
    };
    for key in CLUSTER_KEYS {
        let span = table.key_span(key);
        if span.is_some() {
            let message =
                format!("`{key}` belongs to the cluster `{name}`, which this service names");
            let help = format!(
                "move `{key}` to the [[cluster]], or remove `cluster` and list `servers` here"
            );
            problems
                .error(&span, "E_CLUSTER_KEY", message, help)
                .with_other(&cluster.name_span, "the cluster is");
        }
    }
    ServerSource::Cluster(cluster)
}

fn unknown_cluster(
    name: &str,
    clusters: &[ClusterDraft],
    table: &Table<'_>,
    problems: &mut Problems,
) {
    let names: Vec<&str> = clusters
        .iter()
        .map(|cluster| cluster.name.as_str())
        .collect();
    let near = nearest(name, names.iter().copied());
    let help = match (near, names.as_slice()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => format!("add a [[cluster]] with `name = \"{name}\"` and `servers`"),
        (None, names) => format!("this file has {}", listed(names).replace(" or ", " and ")),
    };
    let message = format!("there is no [[cluster]] `{name}`");
    problems.error(
        &table.value_span("cluster"),
        "E_UNKNOWN_CLUSTER",
        message,
        help,
    );
}
