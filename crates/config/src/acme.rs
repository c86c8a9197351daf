//! Reads `[acme]`, and the names whose certificates come by ACME.

use crate::plan::{AcmePlan, ExternalAccount};
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, wrong_type};
use crate::setting::Settings;
use crate::sources::Sources;
use crate::tls;

/// Longest name in bytes (RFC 1035 §2.3.4, without the root).
const NAME_BYTES_MAX: usize = 253;

/// Longest label of a name in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Reads the table.
pub(crate) fn read(table: &Table<'_>, sources: &Sources, problems: &mut Problems) -> AcmePlan {
    let mut plan = AcmePlan::of(table, problems);
    if !plan.directory.starts_with("https://") {
        let message = format!("`{}` is not a URL with https", plan.directory);
        let help = "write `directory = \"https://…\"`, as the documentation of the authority says";
        problems.error(&table.value_span("directory"), "E_VALUE", message, help);
    }
    if table.flag("terms_agreed", problems) != Some(true) {
        let message = "the terms of the certificate authority are not agreed to";
        let help = "read them, and add `terms_agreed = true`";
        let span = table
            .value_span("terms_agreed")
            .or_else(|| table.span.clone());
        problems.error(&span, "E_MISSING_KEY", message, help);
    }
    check_email(&plan, &table.value_span("email"), problems);
    if let Some(storage) = table.text("storage", problems) {
        plan.storage = sources.path(storage);
    }
    plan.ca = tls::authorities(table, "ca", sources, problems);
    plan.external_account = external_account(table, sources, problems);
    plan
}

fn check_email(plan: &AcmePlan, span: &SourceSpan, problems: &mut Problems) {
    let Some(email) = &plan.email else { return };
    let is_address = email
        .split_once('@')
        .is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    if !is_address || email.contains([' ', ':', ',', '?']) {
        let message = format!("`{email}` is not an e-mail address");
        let help = "write one address, such as `email = \"ops@shop.example\"`";
        problems.error(span, "E_VALUE", message, help);
    }
}

fn external_account(
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<ExternalAccount> {
    let key_id = table.text("eab_key_id", problems);
    let file = table.text("eab_key_file", problems);
    for (key, other) in [
        ("eab_key_id", "eab_key_file"),
        ("eab_key_file", "eab_key_id"),
    ] {
        if table.value(key).is_some() && table.value(other).is_none() {
            let message = format!("`{key}` requires `{other}`");
            let help = "the authority shows both for an account";
            problems.error(&table.key_span(key), "E_MISSING_KEY", message, help);
        }
    }
    let key = sources.secret_file(file?, &table.value_span("eab_key_file"), problems)?;
    Some(ExternalAccount {
        key_id: key_id?.to_owned(),
        key,
    })
}

/// Reads the names of `acme` in `[service.tls]`: in lower case, each once.
pub(crate) fn names(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for value in table.elements("acme") {
        let Some(text) = value.get_ref().as_str() else {
            let help = "write `acme = [\"shop.example\", \"www.shop.example\"]`";
            wrong_type("acme", "names", value, help, problems);
            continue;
        };
        let name = text.to_ascii_lowercase();
        if let Some((message, help)) = mistake(&name) {
            problems.error(&Some(value.span()), "E_NAME", message, help);
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns why no certificate for a name can come by ACME, and what to do.
fn mistake(name: &str) -> Option<(String, &'static str)> {
    if name.starts_with("*.") {
        let message = format!(
            "`{name}`: a certificate for a wildcard requires the challenge dns-01, which Evenkeel \
             does not have"
        );
        let help = "list the names, or let another ACME client write the files of `certificate` \
                    and `key`";
        return Some((message, help));
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if name.starts_with('[') || name.contains(':') || last.bytes().all(|b| b.is_ascii_digit()) {
        let message = format!("`{name}` is not a name: certificates for addresses are not ordered");
        return Some((message, "write the name by which clients connect"));
    }
    let fits = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(fits) {
        let message = format!("`{name}` is not a name that a certificate can contain");
        return Some((
            message,
            "letters, digits and `-` between dots, such as `shop.example`",
        ));
    }
    None
}
