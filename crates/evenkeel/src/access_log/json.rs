//! Formats a request as a JSON object.

use std::borrow::Cow;

use evenkeel_proxy::access_log::{ClientVersion, RequestEnd, RequestFacts, RequestTexts};
use serde::Serialize;

/// Fields of a line, in the order in which people read them.
#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    event: &'static str,
    service: Cow<'a, str>,
    route: Option<Cow<'a, str>>,
    client: Cow<'a, str>,
    user: Option<Cow<'a, str>>,
    method: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
    target: Option<Cow<'a, str>>,
    version: Option<&'static str>,
    status: Option<u16>,
    end: &'static str,
    phase: Option<&'static str>,
    reason: Option<Cow<'a, str>>,
    server: Option<Cow<'a, str>>,
    retries: u32,
    wait_us: Option<u64>,
    first_byte_us: Option<u64>,
    total_us: u64,
    from_client_bytes: u64,
    to_client_bytes: u64,
    referer: Option<Cow<'a, str>>,
    user_agent: Option<Cow<'a, str>>,
    request_id: Option<Cow<'a, str>>,
}

/// Appends the line of a request that ended at `time`.
pub(super) fn write(out: &mut Vec<u8>, time: &str, facts: &RequestFacts, texts: &RequestTexts<'_>) {
    let line = Line {
        time,
        event: "request",
        service: String::from_utf8_lossy(texts.service),
        route: text(texts.route),
        client: match texts.client {
            b"" => Cow::Borrowed("unix"),
            client => String::from_utf8_lossy(client),
        },
        user: text(texts.user),
        method: text(texts.method),
        host: text(texts.host),
        target: text(texts.target),
        version: (!texts.method.is_empty()).then(|| version(facts.version)),
        status: (facts.status != 0).then_some(facts.status),
        end: facts.end.word(),
        phase: (facts.end != RequestEnd::Complete).then(|| facts.phase.word()),
        reason: text(texts.reason),
        server: text(texts.server),
        retries: facts.retries,
        wait_us: facts.waited_us,
        first_byte_us: facts.first_byte_us,
        total_us: facts.total_us,
        from_client_bytes: facts.from_client,
        to_client_bytes: facts.to_client,
        referer: text(texts.referer),
        user_agent: text(texts.user_agent),
        request_id: text(texts.request_id),
    };
    // Writing such a structure into memory does not fail.
    let _ = serde_json::to_writer(&mut *out, &line);
    out.push(b'\n');
}

fn version(version: ClientVersion) -> &'static str {
    match version {
        ClientVersion::Http10 => "1.0",
        ClientVersion::Http11 => "1.1",
        ClientVersion::Http2 => "2",
    }
}

/// Returns a text of the client. Bytes that are not UTF-8 become U+FFFD.
fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::sample::{facts, texts};
    use super::*;

    fn line(facts: &RequestFacts, texts: &RequestTexts<'_>) -> (String, Value) {
        let mut out = Vec::new();
        write(&mut out, "2026-11-28T01:02:03.004Z", facts, texts);
        let line = String::from_utf8(out).unwrap();
        let line = line.strip_suffix('\n').unwrap().to_owned();
        assert!(!line.contains('\n'), "{line}");
        let value = serde_json::from_str(&line).unwrap();
        (line, value)
    }

    #[test]
    fn a_request_is_one_json_object() {
        let (line, value) = line(&facts(), &texts());
        let expect = json!({
            "time": "2026-11-28T01:02:03.004Z", "event": "request", "service": "web",
            "route": "/a", "client": "192.0.2.1", "user": "ann", "method": "GET",
            "host": "shop.example",
            "target": "/a?b=1", "version": "1.1", "status": 200, "end": "complete",
            "phase": null, "reason": null, "server": "10.0.0.1:8080", "retries": 1,
            "wait_us": 20, "first_byte_us": 900, "total_us": 1_000, "from_client_bytes": 120,
            "to_client_bytes": 1_200, "referer": "https://x/", "user_agent": "curl/8",
            "request_id": "r-1",
        });
        assert_eq!(value, expect);
        assert!(line.starts_with(r#"{"time":"#), "{line}");
    }

    #[test]
    fn what_is_unknown_is_null_and_another_end_has_phase_and_reason() {
        let facts = RequestFacts {
            status: 0,
            end: RequestEnd::Terminated,
            waited_us: None,
            first_byte_us: None,
            ..facts()
        };
        let reason = RequestTexts {
            reason: b"shutdown",
            ..RequestTexts::default()
        };
        let (_, value) = line(&facts, &reason);
        for key in [
            "route", "user", "method", "host", "target", "version", "status", "server", "wait_us",
        ] {
            assert_eq!(value[key], Value::Null, "{key}");
        }
        assert_eq!(value["client"], "unix");
        assert_eq!(value["end"], "terminated");
        assert_eq!(value["phase"], "body");
        assert_eq!(value["reason"], "shutdown");
    }

    #[test]
    fn a_field_of_the_client_cannot_forge_a_line() {
        let forged = RequestTexts {
            user_agent: b"a\"}\n{\"x\":\xff\x01",
            ..texts()
        };
        let (_, value) = line(&facts(), &forged);
        assert_eq!(value["user_agent"], "a\"}\n{\"x\":\u{fffd}\u{1}");
    }
}
