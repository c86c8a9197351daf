//! Reads the target of a route: a service, a redirect, or a fixed answer.

use std::path::Path;

use crate::config::keys;
use crate::config::plan::{ContentPlan, RespondPlan, RouteTarget};
use crate::config::problem::{Problems, SourceSpan};
use crate::config::reader::{Table, listed};
use crate::config::sources::Sources;

const TARGET_KEYS: [&str; 3] = ["to", "redirect", "respond"];

/// Maximum size of the content of a fixed answer, which is kept in memory.
const CONTENT_BYTES_MAX: usize = 1 << 20;

/// Extensions of files, and the media types of their contents.
const MEDIA_TYPES: [(&str, &str); 6] = [
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("svg", "image/svg+xml"),
];

/// Reads the target. A route without one leads to the servers of its own service.
pub(super) fn read(table: &Table<'_>, sources: &Sources, problems: &mut Problems) -> RouteTarget {
    check_single(table, problems);
    let service = table.text("to", problems);
    let redirect = read_redirect(table, problems);
    let respond = read_respond(table, sources, problems);
    match (service, redirect, respond) {
        (Some(service), ..) => RouteTarget::Service(service.to_owned()),
        (None, Some(location), _) => RouteTarget::Redirect(location),
        (None, None, Some(respond)) => RouteTarget::Respond(respond),
        (None, None, None) => RouteTarget::Own,
    }
}

fn check_single(table: &Table<'_>, problems: &mut Problems) {
    let given = |key: &&str| table.value(key).is_some();
    let mut given = TARGET_KEYS.into_iter().filter(given);
    if let Some((first, second)) = given.next().zip(given.next()) {
        let message = format!("`{first}` and `{second}` exclude each other");
        let help = format!("keep one of {}", listed(&TARGET_KEYS));
        problems.error(&table.key_span(second), "E_BOTH", message, help);
    }
}

fn read_redirect(table: &Table<'_>, problems: &mut Problems) -> Option<String> {
    let text = table.text("redirect", problems)?;
    let begins = ["https://", "http://", "/"]
        .iter()
        .any(|start| text.starts_with(start));
    // A path that begins with two slashes is an address of another host.
    let is_path_of_host = text.starts_with("//");
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !begins || is_path_of_host || !is_plain {
        let message = format!("`{text}` is not a location");
        let help = "write a URL or a path, with other characters as escapes: \
                    `\"https://shop.example/new\"`, `\"/new\"`";
        problems.error(&table.value_span("redirect"), "E_VALUE", message, help);
    }
    Some(text.to_owned())
}

fn read_respond(
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<RespondPlan> {
    let respond = table.table("respond", &keys::RESPOND, problems)?;
    if respond.value("status").is_none() && !respond.has_unknown {
        let help = "write `respond = { status = 503 }`";
        let message = "`respond` has no `status`";
        problems.error(&respond.span, "E_MISSING_KEY", message, help);
    }
    let status = respond.number("status", problems);
    let content = read_content(&respond, sources, problems);
    let status = u16::try_from(status?).ok()?;
    if matches!(status, 204 | 304) && content.is_some() {
        let message = format!("`file` has no effect: answers with status {status} have no content");
        problems.warning(
            &respond.key_span("file"),
            "W_NO_EFFECT",
            message,
            "remove it",
        );
    }
    Some(RespondPlan { status, content })
}

fn read_content(
    respond: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<ContentPlan> {
    let name = respond.text("file", problems)?;
    read_file(name, &respond.value_span("file"), sources, problems)
}

/// Reads a file of content for clients.
pub(in crate::config) fn read_file(
    name: &str,
    span: &SourceSpan,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<ContentPlan> {
    let extension = Path::new(name).extension().and_then(|end| end.to_str());
    let known = MEDIA_TYPES
        .iter()
        .find(|(known, _)| Some(*known) == extension);
    let Some((_, media_type)) = known else {
        let message = format!("the type of `{name}` is unknown");
        let known = MEDIA_TYPES.map(|(extension, _)| extension);
        let help = format!("name the file with one of the endings {}", listed(&known));
        problems.error(span, "E_VALUE", message, help);
        return None;
    };
    let path = sources.path(name);
    let text = sources.text(&path, span, problems)?;
    let text = text.expose().to_owned();
    if text.len() > CONTENT_BYTES_MAX {
        let message = format!("{} has {} bytes", path.display(), text.len());
        let help = format!("it is kept in memory: at most {CONTENT_BYTES_MAX} bytes");
        problems.error(span, "E_FILE", message, help);
    }
    Some(ContentPlan {
        path,
        text,
        media_type,
    })
}
