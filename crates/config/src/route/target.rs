//! Reads the target of a route: a service, a redirect, or a fixed answer.

use std::path::Path;

use evenkeel_policy::http::redirect::{Redirect, STATUSES};

use crate::keys;
use crate::plan::{ContentPlan, RespondPlan, RouteTarget, SplitPart};
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, Value, listed, wrong_type};
use crate::setting::Settings;
use crate::sources::Sources;

const TARGET_KEYS: [&str; 3] = ["to", "redirect", "respond"];

const TO_HELP: &str = "write `to = \"api\"`, or \
    `to = [{ service = \"api\", weight = 9 }, { service = \"next\", weight = 1 }]`";

/// Status of a redirect whose status the file does not name.
const DEFAULT_STATUS: u16 = 307;

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
    let service = read_to(table, problems);
    let redirect = read_redirect(table, problems);
    let respond = read_respond(table, sources, problems);
    match (service, redirect, respond) {
        (Some(target), ..) => target,
        (None, Some(redirect), _) => RouteTarget::Redirect(redirect),
        (None, None, Some(respond)) => RouteTarget::Respond(respond),
        (None, None, None) => RouteTarget::Own,
    }
}

/// Reads the services of a route.
fn read_to(table: &Table<'_>, problems: &mut Problems) -> Option<RouteTarget> {
    let value = table.value("to")?;
    if value.get_ref().as_str().is_some() {
        let name = table.text("to", problems)?;
        return Some(RouteTarget::Service(name.to_owned()));
    }
    let elements = table.elements("to").into_iter();
    let parts: Vec<_> = elements.map(|value| read_part(value, problems)).collect();
    let Some(parts) = parts.into_iter().collect::<Option<Vec<SplitPart>>>() else {
        return Some(RouteTarget::Split(Vec::new()));
    };
    if parts.iter().all(|part| part.weight == 0) {
        let message = "no service of `to` has a weight";
        problems.error(&Some(value.span()), "E_VALUE", message, TO_HELP);
    }
    Some(RouteTarget::Split(parts))
}

fn read_part(value: &Value<'_>, problems: &mut Problems) -> Option<SplitPart> {
    if let Some(name) = value.get_ref().as_str() {
        return Some(SplitPart {
            service: name.to_owned(),
            ..SplitPart::default()
        });
    }
    let Some(values) = value.get_ref().as_table() else {
        wrong_type("to", "a name or tables", value, TO_HELP, problems);
        return None;
    };
    let entry = Table::open(&keys::SPLIT_PART, values, value.span(), problems);
    if entry.value("service").is_none() {
        let message = "`service` is missing";
        problems.error(&entry.span, "E_MISSING_KEY", message, TO_HELP);
    }
    let mut part = SplitPart::of(&entry, problems);
    entry
        .text("service", problems)?
        .clone_into(&mut part.service);
    Some(part)
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

fn read_redirect(table: &Table<'_>, problems: &mut Problems) -> Option<Redirect> {
    let status = read_status(table, problems);
    let keeps_path = table.flag("keep_path", problems).unwrap_or(false);
    let Some(text) = table.text("redirect", problems) else {
        for key in ["redirect_status", "keep_path"] {
            if table.value(key).is_some() {
                let message = format!("`{key}` has no effect without `redirect`");
                let span = table.key_span(key);
                problems.warning(
                    &span,
                    "W_NO_EFFECT",
                    message,
                    "remove it, or set `redirect`",
                );
            }
        }
        return None;
    };
    if !is_location(text) {
        let message = format!("`{text}` is not a location");
        let help = "write a URL or a path, with other characters as escapes: \
                    `\"https://shop.example/new\"`, `\"/new\"`";
        problems.error(&table.value_span("redirect"), "E_VALUE", message, help);
    } else if keeps_path && text.contains(['?', '#']) {
        let message = format!("no path can follow `{text}`");
        let help = "remove the query and the fragment from `redirect`, or remove `keep_path`";
        problems.error(&table.value_span("redirect"), "E_VALUE", message, help);
    }
    Some(Redirect {
        status,
        location: text.to_owned(),
        keeps_path,
    })
}

fn read_status(table: &Table<'_>, problems: &mut Problems) -> u16 {
    let status = table.number("redirect_status", problems);
    let status = status.and_then(|status| u16::try_from(status).ok());
    if let Some(status) = status.filter(|status| !STATUSES.contains(status)) {
        let message = format!("`redirect_status` is {status}, which is no redirect");
        let help = "one of 301, 302, 307 and 308; 307 and 308 keep the method and the body";
        let span = table.value_span("redirect_status");
        problems.error(&span, "E_VALUE", message, help);
    }
    status.unwrap_or(DEFAULT_STATUS)
}

/// Returns whether a text is a URL with a host, or a path of the same host: one that begins with
/// two slashes, or with `\`, names another host.
fn is_location(text: &str) -> bool {
    let url = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let begins_well = match url {
        Some(rest) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            authority.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')
                && !authority.contains('@')
        }
        None => text.starts_with('/') && !text.starts_with("//"),
    };
    begins_well && text.bytes().all(is_plain)
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
pub(crate) fn read_file(
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
