//! Checks `[acme]` against the services that use it.

use crate::plan::AcmePlan;
use crate::problem::{Problems, SourceSpan};
use crate::service::Draft;

/// Reports services that need `[acme]` without it, and the table without such services.
pub(crate) fn check(
    acme: Option<&AcmePlan>,
    span: &SourceSpan,
    drafts: &[Draft],
    problems: &mut Problems,
) {
    let mut users = drafts
        .iter()
        .filter(|draft| !draft.plan.acme_names().is_empty());
    match (acme, users.next()) {
        (None, Some(first)) => {
            let message = "`acme` requires a table [acme]";
            let help = "add `[acme]` with `terms_agreed = true` and `email = \"…\"`, before the \
                        first [[service]]";
            problems.error(&first.spans.tls, "E_MISSING_KEY", message, help);
        }
        (Some(_), None) if !problems.has_errors() => {
            let message = "[acme] has no effect: no service has names for it";
            let help = "add `acme = [\"shop.example\"]` to [service.tls] of an HTTP service";
            problems.warning(span, "W_NO_EFFECT", message, help);
        }
        _ => {}
    }
}
