//! Tests the port and the TLS settings of health checks.

use evenkeel_config::plan::{Health, ProbeTls};

use super::wrong::check;
use super::{plan, service};

/// Returns the health settings of a service without any problem.
fn health(lines: &str) -> Health {
    let plan = plan(&service(&format!("[service.health]\n{lines}")));
    plan.services[0].health.clone()
}

/// Checks a service with health settings; `lines` begin in line 6.
fn check_health(lines: &str, expected: &str, words: &str) {
    check(
        &service(&format!("[service.health]\n{lines}")),
        expected,
        words,
    );
}

#[test]
fn a_probe_may_have_a_port_and_tls_of_its_own() {
    assert_eq!((health("").port, health("").tls), (None, ProbeTls::Auto));
    let own = health("probe = 'http'\nport = 8008\ntls = 'on'");
    assert_eq!((own.port, own.tls), (Some(8008), ProbeTls::On));
    assert_eq!(health("tls = 'off'").tls, ProbeTls::Off);
    check_health("port = 0", "E_RANGE 6:8", "must be 1 to 65535");
    check_health(
        "tls = true",
        "E_TYPE 6:7",
        "one of `auto`, `on` or `off`, in quotes",
    );
    check_health("tls = 'no'", "E_UNKNOWN_WORD 6:7", "`on`");
}

#[test]
fn a_probe_that_is_off_has_neither_a_port_nor_tls() {
    check_health(
        "probe = 'off'\nport = 1",
        "E_PROBE_KEY 7:1",
        "`port` is not used",
    );
    check_health(
        "probe = 'off'\ntls = 'on'",
        "E_PROBE_KEY 7:1",
        "`tls` is not used",
    );
}

#[test]
fn tls_of_probes_and_the_mode_off_contradict_each_other() {
    let lines = "probe = 'http'\ntls = 'on'\n[service.server_tls]\nmode = 'off'";
    check_health(
        lines,
        "E_BOTH 7:1",
        "`mode = \"off\"` in [service.server_tls]",
    );
}

#[test]
fn tls_settings_that_no_probe_uses_are_reported() {
    let tls = "\n[service.server_tls]\nmode = 'encrypt'";
    health(&format!("probe = 'http'{tls}"));
    health(&format!("probe = 'tcp'\ntls = 'on'{tls}"));
    let unused = "`probe = \"http\"` does not use TLS";
    check_health(
        &format!("probe = 'http'\ntls = 'off'{tls}"),
        "W_NO_EFFECT 8:10",
        unused,
    );
    let help = "set `tls = \"on\"` in [service.health]";
    check_health(&format!("probe = 'tcp'{tls}"), "W_NO_EFFECT 7:10", help);
}

#[test]
fn a_unix_socket_has_no_port_and_no_tls() {
    let socket = |lines: &str| {
        format!(
            "[[service]]\nname='a'\nlisten='*:1'\nservers=['db1:1', 'unix:/s']\n\
             [service.health]\n{lines}"
        )
    };
    plan(&socket("tls = 'off'"));
    check(
        &socket("port = 7"),
        "W_NO_EFFECT 6:1",
        "`port` has no effect on unix:/s",
    );
    check(
        &socket("tls = 'on'"),
        "W_NO_EFFECT 6:1",
        "`tls` has no effect on unix:/s",
    );
}
