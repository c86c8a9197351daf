//! Records the pins of sessions and their causes.

use evenkeel_policy::pins::Pins;
use tracing::info;

use super::handle::SessionHandle;
use evenkeel_sql::session_state::PinSource;

/// Sets the pins of a session whose source is known. `None`: the login, or a text that was not
/// analyzed.
pub(super) fn pin_by(handle: &SessionHandle, pins: Pins, source: Option<&PinSource>) {
    pin(handle, pins, |_| source.cloned().unwrap_or_default());
}

/// Sets the pins of a session. `source` names the cause of new lasting pins, which is logged at its
/// first occurrence.
pub(super) fn pin(handle: &SessionHandle, pins: Pins, source: impl FnOnce(Pins) -> PinSource) {
    let Some(cause) = handle.set_pins(pins, source) else {
        return;
    };
    let service = &handle.service;
    let database = service.database();
    if !database.is_some_and(|database| database.count_pin(&cause)) {
        return;
    }
    if let Some(login) = handle.login_info() {
        info!(
            service = &*service.name,
            user = &*login.user,
            database = &*login.database,
            statement = &*cause.statement,
            "session pinned to its server connection: {}",
            cause.reason(),
        );
    }
}
