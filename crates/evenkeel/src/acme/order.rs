//! Orders one certificate from the authority.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use evenkeel_config::plan::AcmePlan;
use evenkeel_tls::{Authorities, SetupError};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, Error, ExternalAccountKey, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use thiserror::Error;

use super::challenge::{Answer, Way};
use super::client::Client;
use super::storage::Storage;

/// Limit for the authority to verify a name, and to sign the certificate.
const POLL: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

/// Reason why no certificate has come.
#[derive(Debug, Error)]
pub(super) enum OrderError {
    /// The authority refuses, or cannot be reached.
    #[error("{0}")]
    Authority(#[from] Error),
    /// The authority could not verify the name.
    #[error("the name could not be verified by {0}: {1}")]
    Unverified(&'static str, String),
    /// The authority does not offer this way.
    #[error("the authority does not offer the challenge {0}")]
    NotOffered(&'static str),
    /// The state of the order is an unexpected one.
    #[error("the order is {0:?}")]
    Unexpected(OrderStatus),
    /// The file of `eab_key_file` does not have a key.
    #[error("[acme] eab_key_file does not have a key in base64url")]
    ExternalKey,
    /// The storage cannot be written.
    #[error("cannot store: {0}")]
    Storage(#[from] io::Error),
    /// No certificate for the challenge can be made.
    #[error("cannot make the certificate of the challenge: {0}")]
    Challenge(#[from] rcgen::Error),
    /// The certificates in `ca`, or those of the order, cannot be used.
    #[error(transparent)]
    Tls(#[from] SetupError),
}

/// Returns the account of the storage, or a new one, which is stored.
pub(super) async fn account(plan: &AcmePlan, storage: &Storage) -> Result<Account, OrderError> {
    let ca = plan.ca.as_ref();
    let ca = ca.map(|file| Authorities::from_pem(file.text.expose().as_bytes()));
    let client = Client {
        ca: ca.transpose()?,
    };
    let builder = Account::builder_with_http(Box::new(client));
    if let Some(known) = storage.account::<AccountCredentials>()? {
        return Ok(builder.from_credentials(known).await?);
    }
    let contact = plan.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let external = external_key(plan)?;
    let account = NewAccount {
        contact: &contact,
        // The configuration requires it.
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let created = builder.create(&account, plan.directory.clone(), external.as_ref());
    let (account, credentials) = created.await?;
    storage.set_account(&credentials)?;
    Ok(account)
}

fn external_key(plan: &AcmePlan) -> Result<Option<ExternalAccountKey>, OrderError> {
    let Some(external) = &plan.external_account else {
        return Ok(None);
    };
    let key = external.key.expose().trim_end_matches('=');
    let key = URL_SAFE_NO_PAD.decode(key);
    let key = key.map_err(|_| OrderError::ExternalKey)?;
    Ok(Some(ExternalAccountKey::new(external.key_id.clone(), &key)))
}

/// Orders a certificate for a name, and returns it with its chain and key in PEM. `publish` makes
/// the answer to the challenge known before the authority asks for it.
pub(super) async fn certificate<F: Future<Output = Result<(), OrderError>>>(
    account: &Account,
    name: &str,
    way: Way,
    publish: impl Fn(Answer) -> F,
) -> Result<String, OrderError> {
    let identifiers = [Identifier::Dns(name.to_owned())];
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        // The authority may still know the name from another order.
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let challenge = authorization.challenge(way.challenge_type());
        let mut challenge = challenge.ok_or(OrderError::NotOffered(way.name()))?;
        publish(Answer::new(way, name, &challenge)?).await?;
        challenge.set_ready().await?;
    }
    match order.poll_ready(&POLL).await {
        Ok(OrderStatus::Ready) => {}
        other => return Err(refusal(&mut order, way, other).await),
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&POLL).await?;
    Ok(chain + &key)
}

/// Returns why an order is not ready: what the authority says of the challenge, if it says it.
async fn refusal(order: &mut Order, way: Way, outcome: Result<OrderStatus, Error>) -> OrderError {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            break;
        }
        let mut challenges = authorization.challenges.iter();
        if let Some(problem) = challenges.find_map(|challenge| challenge.error.as_ref()) {
            let detail = problem.detail.clone();
            let detail = detail.unwrap_or_else(|| problem.to_string());
            return OrderError::Unverified(way.name(), detail);
        }
    }
    match outcome {
        Ok(status) => OrderError::Unexpected(status),
        Err(error) => OrderError::Authority(error),
    }
}
