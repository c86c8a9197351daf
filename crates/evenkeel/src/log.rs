//! Writes log lines to stderr, as text or JSON, and one line per finished connection.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};

use evenkeel_proxy::calendar::civil_date;
use serde_json::Value;
use tracing_subscriber::EnvFilter;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Words and `key=value`, for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Reason why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The level is invalid.
    #[error("log level {level:?}: {error}; use error, warn, info, debug or trace")]
    Level {
        /// Configured level.
        level: String,
        /// Cause of the failure.
        error: tracing_subscriber::filter::ParseError,
    },
    /// Logging has already been set up in this process.
    #[error("logging is already set up in this process")]
    Twice,
}

/// Sets up logging for the whole process. Must be called once, before the first log line.
///
/// `level` is a level such as `info`, or a filter of tracing (`evenkeel=debug,hyper=off`).
pub fn init(format: Format, level: &str) -> Result<(), InitError> {
    let filter = EnvFilter::try_new(level).map_err(|error| InitError::Level {
        level: level.to_owned(),
        error,
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let outcome = match format {
        Format::Text => lines
            .with_ansi(colours_wanted())
            .with_target(false)
            .try_init(),
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init(),
    };
    outcome.map_err(|_| InitError::Twice)
}

fn colours_wanted() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Record of one finished connection. Times are in microseconds; log lines show milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Time at which it ended, in milliseconds since the Unix epoch.
    pub ended_at_unix_ms: u64,
    /// Name of the service.
    pub service: String,
    /// Address of the client; with a PROXY header, the address in the header.
    pub client: String,
    /// Server of the connection. `None` if it never reached one.
    pub server: Option<String>,
    /// Servers on which a connect failed before, one per retry.
    pub tried: Vec<String>,
    /// Time in the queue.
    pub wait_us: u64,
    /// Duration of the successful connect. `None` if there was none.
    pub connect_us: Option<u64>,
    /// Time from the accept to the server's first byte. `None` if there was none.
    pub first_byte_us: Option<u64>,
    /// Time from the accept to the end.
    pub total_us: u64,
    /// Bytes from the client to the server.
    pub from_client_bytes: u64,
    /// Bytes from the server to the client.
    pub to_client_bytes: u64,
    /// Reason of the end: `client closed`, `reset by server`, `idle timeout`, `cut: server down`,
    /// `connect failed: …`, `queue full`, …
    pub ended: Cow<'static, str>,
}

impl ConnectionRecord {
    /// Returns the record as one line, without the newline.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => self.json(),
        }
    }

    /// Writes the line to stderr, in one call.
    pub fn write(&self, format: Format) {
        let mut line = self.render(format);
        line.push('\n');
        // An error is ignored: without stderr it cannot be logged.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }

    fn text(&self) -> String {
        let mut line = String::with_capacity(256);
        for (key, value) in self.fields() {
            let separator = if line.is_empty() { "" } else { " " };
            // Writing into a String does not fail.
            let _ = write!(line, "{separator}{key}={}", Logfmt(&value));
        }
        line
    }

    fn json(&self) -> String {
        let mut line = String::with_capacity(384);
        for (key, value) in self.fields() {
            let separator = if line.is_empty() { "{" } else { "," };
            let _ = write!(line, "{separator}\"{key}\":{value}");
        }
        line.push('}');
        line
    }

    /// Returns the fields in the order in which people read them.
    fn fields(&self) -> [(&'static str, Value); 14] {
        [
            ("time", rfc3339(self.ended_at_unix_ms).into()),
            ("event", "connection".into()),
            ("service", self.service.as_str().into()),
            ("client", self.client.as_str().into()),
            ("server", self.server.as_deref().into()),
            ("tried", self.tried.as_slice().into()),
            ("retries", self.tried.len().into()),
            ("wait_ms", ms(self.wait_us)),
            ("connect_ms", self.connect_us.map_or(Value::Null, ms)),
            ("first_byte_ms", self.first_byte_us.map_or(Value::Null, ms)),
            ("total_ms", ms(self.total_us)),
            ("from_client_bytes", self.from_client_bytes.into()),
            ("to_client_bytes", self.to_client_bytes.into()),
            ("ended", self.ended.as_ref().into()),
        ]
    }
}

fn ms(us: u64) -> Value {
    Value::from(us as f64 / 1e3)
}

/// Value in logfmt: `-` for none, quoted if a parser would misread the bare value.
struct Logfmt<'a>(&'a Value);

impl fmt::Display for Logfmt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("-"),
            Value::Array(items) if items.is_empty() => f.write_str("-"),
            Value::Array(items) => {
                let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                write_text(f, &items.join(","))
            }
            Value::String(text) => write_text(f, text),
            other => write!(f, "{other}"),
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let bare = |c: char| !(c.is_whitespace() || c.is_control() || c == '"' || c == '=');
    if !text.is_empty() && text != "-" && text.chars().all(bare) {
        return f.write_str(text);
    }
    // Debug escapes newlines and control characters too, so a name cannot forge a line.
    write!(f, "{text:?}")
}

/// Formats a Unix time as `2026-01-31T23:59:59.999Z`.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ConnectionRecord {
        ConnectionRecord {
            ended_at_unix_ms: 1_772_323_199_042,
            service: "orders".into(),
            client: "10.0.0.9:51234".into(),
            server: Some("db2".into()),
            tried: vec!["db1".into()],
            wait_us: 0,
            connect_us: Some(420),
            first_byte_us: None,
            total_us: 1_500_000,
            from_client_bytes: 12,
            to_client_bytes: 34,
            ended: "terminated: server down".into(),
        }
    }

    #[test]
    fn a_connection_is_one_line_of_text() {
        assert_eq!(
            record().render(Format::Text),
            "time=2026-02-28T23:59:59.042Z event=connection service=orders client=10.0.0.9:51234 \
             server=db2 tried=db1 retries=1 wait_ms=0.0 connect_ms=0.42 first_byte_ms=- \
             total_ms=1500.0 from_client_bytes=12 to_client_bytes=34 \
             ended=\"terminated: server down\""
        );
    }

    #[test]
    fn a_connection_is_one_json_object() {
        let line = record().render(Format::Json);
        let json: serde_json::Map<String, Value> = serde_json::from_str(&line).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(json.len(), 14);
        assert_eq!(json["tried"], serde_json::json!(["db1"]));
        assert_eq!(json["connect_ms"], 0.42);
        assert_eq!(json["first_byte_ms"], Value::Null);
        assert_eq!(json["ended"], "terminated: server down");
    }

    #[test]
    fn a_name_cannot_forge_a_line_or_a_field() {
        let mut record = record();
        record.service = "a\nserver=evil \"x\"".into();
        let line = record.render(Format::Text);
        assert!(
            line.contains(r#"service="a\nserver=evil \"x\"" client="#),
            "{line}"
        );
        assert!(!line.contains('\n'));
        record.service = "a\u{2028}b".into();
        assert!(
            record
                .render(Format::Text)
                .contains(r#"service="a\u{2028}b" "#)
        );
    }

    #[test]
    fn dates_follow_the_calendar() {
        let check = |unix_s: u64, expect: &str| assert_eq!(rfc3339(unix_s * 1000), expect);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400, "2000-02-29T00:00:00.000Z");
        check(1_709_251_199, "2024-02-29T23:59:59.000Z");
        check(1_709_251_200, "2024-03-01T00:00:00.000Z");
        check(4_107_542_400, "2100-03-01T00:00:00.000Z");
        check(1_798_761_599, "2026-12-31T23:59:59.000Z");
    }
}
