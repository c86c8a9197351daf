//! Records the pins of sessions and their causes.

use evenkeel_policy::pins::Pins;
use tracing::info;

use super::handle::SessionHandle;
use crate::service::Service;
use evenkeel_sql::session_state::PinSource;

/// Sets the pins of a session whose source is known. `None`: the login, or a text that was not
/// analyzed.
pub(super) fn pin_by(
    service: &Service,
    handle: &SessionHandle,
    pins: Pins,
    source: Option<&PinSource>,
) {
    pin(service, handle, pins, |_| {
        source.cloned().unwrap_or_default()
    });
}

/// Sets the pins of a session. `source` names the cause of new lasting pins, which is logged at its
/// first occurrence.
pub(super) fn pin(
    service: &Service,
    handle: &SessionHandle,
    pins: Pins,
    source: impl FnOnce(Pins) -> PinSource,
) {
    let Some(cause) = handle.set_pins(pins, source) else {
        return;
    };
    let database = service.database();
    if database.is_some_and(|database| database.count_pin(&cause)) {
        info!(
            service = &*service.name,
            user = &*handle.user,
            database = &*handle.database(),
            statement = &*cause.statement,
            "session pinned to its server connection: {}",
            cause.reason(),
        );
    }
}
