//! Revokes the certificate of a name at the authority (RFC 8555 §7.6).

use std::time::Duration;

use instant_acme::{Account, Error, RevocationRequest};
use tokio::sync::oneshot;

use super::schedule::Attempts;
use super::storage::Storage;
use super::{Settings, order};
use crate::status::{Reply, RevocationReason};

/// Limit for the authority. The command line waits a little longer.
const LIMIT: Duration = Duration::from_secs(45);

/// Type of the error for a certificate that was revoked before (RFC 8555 §6.7).
const ALREADY_REVOKED: &str = "urn:ietf:params:acme:error:alreadyRevoked";

/// Request to revoke a certificate.
#[derive(Debug)]
pub(crate) struct Revocation {
    /// Name whose certificate is meant.
    pub(crate) name: String,
    /// Reason that the authority publishes.
    pub(crate) reason: RevocationReason,
    /// True if a new certificate is ordered afterwards.
    pub(crate) orders_again: bool,
    /// Receives the result.
    pub(crate) answer: oneshot::Sender<Reply>,
}

/// Revokes the certificate of the storage, and makes the next order due if another certificate is
/// wanted. Returns what was done, or why nothing has changed.
pub(super) async fn revoke(
    settings: &Settings,
    storage: &Storage,
    revocation: &Revocation,
) -> Result<String, String> {
    let name = &revocation.name;
    if !settings.names.contains(name) {
        let names = settings.names.join(", ");
        return Err(format!(
            "no service has {name:?} in `acme`; the names are: {names}"
        ));
    }
    let identity = storage.certificate(name).map_err(|why| why.to_string())?;
    let identity = identity.ok_or_else(|| format!("{name} has no certificate yet"))?;
    let request = RevocationRequest {
        certificate: identity.certificate(),
        reason: Some(of_protocol(revocation.reason)),
    };
    let asking = async {
        let account = order::account(&settings.plan, storage).await;
        let account = account.map_err(|why| why.to_string())?;
        ask(&account, &request).await
    };
    let limited = tokio::time::timeout(LIMIT, asking).await;
    let asked = limited.unwrap_or_else(|_| Err(format!("no response within {LIMIT:?}")));
    let verb = asked.map_err(|why| {
        format!("the certificate of {name} is not revoked: {why}. Nothing has changed; try again")
    })?;
    let what = format!(
        "the certificate of {name} {verb} (reason {})",
        revocation.reason.name()
    );
    if !revocation.orders_again {
        return Ok(format!("{what}; it stays in use until it is renewed"));
    }
    let attempts = Attempts::revoked();
    let stored = storage.set_attempts(name, &attempts);
    stored.map_err(|why| format!("{what}, but no order can be stored: {why}"))?;
    Ok(format!(
        "{what}; a new one is ordered, and it stays in use until that comes"
    ))
}

/// Asks the authority. Returns what has become of the certificate.
async fn ask(account: &Account, request: &RevocationRequest<'_>) -> Result<&'static str, String> {
    match account.revoke(request).await {
        Ok(()) => Ok("is revoked"),
        Err(Error::Api(problem)) if problem.r#type.as_deref() == Some(ALREADY_REVOKED) => {
            Ok("was revoked before")
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the reason in the numbers of RFC 5280 §5.3.1.
fn of_protocol(reason: RevocationReason) -> instant_acme::RevocationReason {
    use instant_acme::RevocationReason as Number;
    match reason {
        RevocationReason::Unspecified => Number::Unspecified,
        RevocationReason::KeyCompromise => Number::KeyCompromise,
        RevocationReason::AffiliationChanged => Number::AffiliationChanged,
        RevocationReason::Superseded => Number::Superseded,
        RevocationReason::CessationOfOperation => Number::CessationOfOperation,
    }
}
