//! Reads `[service.server_tls]`: which certificates of servers are accepted, and Evenkeel's own.

use evenkeel_tls::Fingerprint;

use crate::plan::{ServerTls, TlsMode};
use crate::problem::Problems;
use crate::reader::{Table, wrong_type};
use crate::setting::Setting;
use crate::sources::Sources;
use crate::tls;

/// Reads the TLS settings and the files that they name.
pub(crate) fn read(table: &Table<'_>, sources: &Sources, problems: &mut Problems) -> ServerTls {
    let mut mode = TlsMode::read(table, "mode", problems);
    let verifies = !matches!(mode, Some(TlsMode::Off | TlsMode::Encrypt));
    let ca = applies("ca", verifies, table, problems)
        .then(|| tls::authorities(table, "ca", sources, problems));
    let fingerprints = match applies("fingerprints", verifies, table, problems) {
        true => read_fingerprints(table, problems),
        false => Vec::new(),
    };
    if !fingerprints.is_empty() {
        // Also on loopback, where TLS is off if nothing is set.
        mode = Some(TlsMode::Verify);
    }
    let has = |key| table.value(key).is_some();
    let own = (has("certificate") || has("key"))
        .then(|| tls::own_certificate(table, sources, problems))
        .flatten();
    if own.is_some() && mode == Some(TlsMode::Off) {
        let message = "`certificate` has no effect: `mode = \"off\"` disables TLS";
        let help = "set `mode = \"verify\"`, or remove `certificate` and `key`";
        problems.warning(&table.key_span("certificate"), "W_NO_EFFECT", message, help);
    }
    ServerTls {
        mode,
        ca: ca.flatten(),
        fingerprints,
        own,
    }
}

/// Returns whether a key of verification is present and has an effect.
fn applies(key: &str, verifies: bool, table: &Table<'_>, problems: &mut Problems) -> bool {
    let is_present = table.value(key).is_some();
    if is_present && !verifies {
        let message = format!(
            "`{key}` has no effect: certificates are verified with `mode = \"verify\"` only"
        );
        let help = format!("set `mode = \"verify\"`, or remove `{key}`");
        problems.warning(&table.key_span(key), "W_NO_EFFECT", message, help);
    }
    is_present && verifies
}

fn read_fingerprints(table: &Table<'_>, problems: &mut Problems) -> Vec<Fingerprint> {
    let elements = table.elements("fingerprints");
    if elements.is_empty() {
        let message = "`fingerprints` is empty, so that it accepts no certificate";
        let help = "add the line of the error message, or remove the key";
        problems.error(&table.value_span("fingerprints"), "E_VALUE", message, help);
    }
    let mut fingerprints = Vec::new();
    for value in elements {
        let help = "write `fingerprints = [\"sha256:…\"]`: `openssl x509 -in server.crt -noout \
                    -fingerprint -sha256` prints it";
        let Some(text) = value.get_ref().as_str() else {
            wrong_type("fingerprints", "strings", value, help, problems);
            continue;
        };
        match text.parse() {
            Ok(fingerprint) => fingerprints.push(fingerprint),
            Err(error) => {
                problems.error(&Some(value.span()), "E_VALUE", format!("{error}"), help);
            }
        }
    }
    fingerprints
}
