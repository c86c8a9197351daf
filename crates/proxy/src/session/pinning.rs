//! Records the pins of sessions and their causes.

use evenkeel_policy::pins::{Pin, Pins};
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

/// Replaces the causes of a session's pins by what the server has reported: a name for each kind of
/// state. Returns whether any of it was not shown before.
pub(super) fn report(handle: &SessionHandle, pins: Pins, named: &[(Pin, String)]) -> bool {
    let causes = handle.login_info().map(|login| login.causes);
    let causes = causes.unwrap_or_default();
    let source = |of: Pins, object: &str| {
        let cause = causes
            .iter()
            .find(|cause| !cause.pins.within(of).is_empty());
        let cause = cause.or_else(|| causes.first());
        PinSource {
            statement: cause
                .map(|cause| cause.statement.clone())
                .unwrap_or_default(),
            object: object.into(),
        }
    };
    let is_shown = |(pin, name): &(Pin, String)| {
        let mut causes = causes.iter();
        causes.any(|cause| cause.pins.has(*pin) && *cause.object == **name)
    };
    let is_new = !named.iter().all(is_shown);
    handle.set_pins(Pins::NONE, |_| PinSource::default());
    let mut reported = Pins::NONE;
    for (pin, name) in named {
        reported.add(*pin);
        handle.set_pins(reported, |new| source(new, name));
    }
    handle.set_pins(pins, |new| source(new, ""));
    is_new
}
