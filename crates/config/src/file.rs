//! Reads a config file and builds the plan from its tables.

use std::fs;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::check;
use crate::cluster::{self, ClusterDraft};
use crate::keys;
use crate::plan::{Engine, Log, Plan};
use crate::problem::Problems;
use crate::reader::Table;
use crate::service::{self, Draft};
use crate::setting::Settings;
use crate::socket::default_socket;
use crate::sources::{Sources, file_help, is_world_readable, plain};
use crate::syntax::syntax_errors;
use crate::{acme, peers, secrets, top};

/// Maximum size of a config file. A larger file was named by mistake.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Result of reading a file: the plan, if there are no errors, and all problems.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Plan. `None` if there are errors.
    pub plan: Option<Plan>,
    /// Errors and warnings.
    pub problems: Problems,
}

/// Reads a config file.
pub fn load(path: &Path) -> Loaded {
    match read_text(path) {
        Ok((text, sources)) => parse(&text, Some(path), &sources),
        Err(problems) => Loaded {
            plan: None,
            problems,
        },
    }
}

/// Reads the text of a config file. Messages contain `path` as its name.
pub fn parse(text: &str, path: Option<&Path>, sources: &Sources) -> Loaded {
    let mut problems = Problems::new(path, &secrets::masked(text));
    let plan = read_plan(text, path, sources, &mut problems);
    problems.sort();
    let plan = plan.filter(|_| !problems.has_errors());
    Loaded { plan, problems }
}

/// Returns the control socket that a file names. The file may have other errors: a process that
/// started with an earlier version still responds.
pub fn socket_of(path: &Path) -> Result<PathBuf, Problems> {
    let (text, sources) = read_text(path)?;
    let (root, _) = DeTable::parse_recoverable(&text);
    let admin = root
        .get_ref()
        .get("admin")
        .and_then(|admin| admin.get_ref().get("socket"));
    let named = admin.and_then(|socket| socket.get_ref().as_str());
    Ok(match named {
        Some(text) => sources.path(text.strip_prefix("unix:").unwrap_or(text)),
        None => default_socket(),
    })
}

fn read_text(path: &Path) -> Result<(String, Sources), Problems> {
    let fail = |code, message: String, help: &str| {
        let mut problems = Problems::new(Some(path), "");
        problems.error(&None, code, message, help);
        problems
    };
    let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if size > FILE_BYTES_MAX {
        let message = format!("the file has {size} bytes, too large for a config file");
        return Err(fail("E_FILE", message, "is it the right file?"));
    }
    let bytes = fs::read(path).map_err(|error| {
        let message = format!("cannot read the config file: {}", plain(&error));
        fail("E_FILE", message, file_help(&error))
    })?;
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let sources = Sources {
        directory,
        world_readable: is_world_readable(path),
    };
    String::from_utf8(bytes)
        .map(|text| (text, sources))
        .map_err(|error| not_utf8(path, &error))
}

fn not_utf8(path: &Path, error: &std::string::FromUtf8Error) -> Problems {
    let good = error.utf8_error().valid_up_to();
    let text = String::from_utf8_lossy(error.as_bytes());
    let mut problems = Problems::new(Some(path), &secrets::masked(&text));
    let help = "save the file as UTF-8";
    problems.error(
        &Some(good..good + 1),
        "E_NOT_UTF8",
        "this is not UTF-8 text",
        help,
    );
    problems
}

fn read_plan(
    text: &str,
    path: Option<&Path>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<Plan> {
    let (root, errors) = DeTable::parse_recoverable(text);
    syntax_errors(&errors, problems);
    if !errors.is_empty() {
        // Values recovered after a syntax error would cause wrong advice.
        return None;
    }
    let root = Table::open(&keys::ROOT, root.get_ref(), 0..0, problems);
    let engine = root.table("engine", &keys::ENGINE, problems);
    let admin = root.table("admin", &keys::ADMIN, problems);
    let log = root.table("log", &keys::LOG, problems);
    let admin_span = admin
        .as_ref()
        .and_then(|t| t.value_span("listen").or(t.span.clone()));
    let peers = root.table("peers", &keys::PEERS, problems);
    let peers_span = peers.as_ref().and_then(|table| table.span.clone());
    let acme = root.table("acme", &keys::ACME, problems);
    let acme_span = acme.as_ref().and_then(|table| table.span.clone());
    let clusters = read_clusters(&root, sources, problems);
    let drafts = read_services(&root, &clusters, sources, problems);
    let plan = Plan {
        path: path.map(Path::to_owned),
        engine: engine.map(|t| Engine::of(&t, problems)).unwrap_or_default(),
        admin: admin
            .map(|t| top::read_admin(&t, sources, problems))
            .unwrap_or_default(),
        log: log.map(|t| Log::of(&t, problems)).unwrap_or_default(),
        peers: peers.map(|t| peers::read(&t, problems)).unwrap_or_default(),
        acme: acme.map(|t| acme::read(&t, sources, problems)),
        services: Vec::new(),
    };
    check::whole(&plan.admin, &admin_span, &drafts, problems);
    check::clusters(&clusters, &drafts, problems);
    check::acme(plan.acme.as_ref(), &acme_span, &drafts, problems);
    check::peers(&plan.peers, &peers_span, &drafts, problems);
    Some(Plan {
        services: drafts.into_iter().map(|draft| draft.plan).collect(),
        ..plan
    })
}

fn read_clusters(
    root: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Vec<ClusterDraft> {
    let tables = root.tables("cluster", &keys::CLUSTER, problems);
    let mut clusters = Vec::new();
    for table in tables {
        clusters.push(cluster::read(&table, sources, problems));
    }
    clusters
}

fn read_services(
    root: &Table<'_>,
    clusters: &[ClusterDraft],
    sources: &Sources,
    problems: &mut Problems,
) -> Vec<Draft> {
    let tables = root.tables("service", &keys::SERVICE, problems);
    let mut drafts = Vec::new();
    for table in tables {
        drafts.push(service::read(&table, clusters, sources, problems));
    }
    if root.elements("service").is_empty() {
        let help = "add one: `[[service]]` with `name`, `listen` and `servers`";
        problems.error(&None, "E_NO_SERVICES", "this file defines no service", help);
    }
    drafts
}
