//! Tests where and how probes of a server begin.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use evenkeel_config::{Sources, parse};
use evenkeel_wire::proxy_header::ProxyVersion;

use super::*;
use crate::control_plane::database::snapshot::connector;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

/// Returns the plan of services that each have these lines, and one server.
fn plan(services: &[&str]) -> Plan {
    let one = |(index, lines): (usize, &&str)| {
        format!(
            "[[service]]\nname = 's{index}'\nlisten = '*:{}'\nservers = ['{SERVER}']\n{lines}\n",
            index + 1
        )
    };
    let text: Vec<String> = services.iter().enumerate().map(one).collect();
    let loaded = parse(&text.concat(), None, &Sources::default());
    loaded
        .plan
        .unwrap_or_else(|| panic!("{:?}", loaded.problems))
}

fn config(plan: &Plan, index: usize) -> (MonitorConfig, Address) {
    let service = &plan.services[index];
    let address = service.servers[0].address.clone();
    let config = MonitorConfig::of(service).with_proxy_header(plan, &address);
    (config, address)
}

#[test]
fn a_probe_goes_to_its_port_and_begins_with_the_header_of_the_traffic() {
    let target = |lines: &str| {
        let plan = plan(&[lines]);
        config(&plan, 0).0.target(&Endpoint::Tcp(SERVER))
    };
    let with_header = Target {
        proxy_header: Some(ProxyVersion::V2),
        ..Target::tcp(SERVER)
    };
    assert_eq!(target(""), Target::tcp(SERVER));
    assert_eq!(target("send_proxy = 'v2'"), with_header);
    let at_port = Target::tcp(([127, 0, 0, 1], 9).into());
    assert_eq!(target("health.port = 9"), at_port);
    assert_eq!(target("send_proxy = 'v2'\nhealth.port = 9"), at_port);
}

#[test]
fn a_server_is_probed_alike_for_all_services_if_only_one_sends_the_header() {
    let plan = plan(&["", "send_proxy = 'v1'", "send_proxy = 'v2'"]);
    let queries = |index| config(&plan, index).0.role_queries().proxy_header;
    assert_eq!([0, 1, 2].map(queries), [Some(ProxyVersion::V1); 3]);
    assert!((1..3).all(|index| config(&plan, index) == config(&plan, 0)));
}

#[test]
fn a_probe_uses_tls_as_its_kind_and_the_settings_require() {
    let tls = |lines: &str| {
        let plan = plan(&[lines]);
        let (config, address) = config(&plan, 0);
        match config.probe_tls(&address).expect("valid settings") {
            Tls::Off => "off",
            Tls::Encrypt(_) => "encrypt",
            Tls::Verify { .. } => "verify",
        }
    };
    let http = |lines: &str| tls(&format!("health.probe = 'http'\n{lines}"));
    let mysql = |lines: &str| {
        tls(&format!(
            "health.probe = 'mysql'\nmonitor.user = 'm'\n{lines}"
        ))
    };
    assert_eq!(tls(""), "off");
    assert_eq!(tls("server_tls.mode = 'encrypt'"), "off");
    assert_eq!(tls("health.tls = 'on'"), "verify");
    assert_eq!(
        tls("health.tls = 'on'\nserver_tls.mode = 'encrypt'"),
        "encrypt"
    );
    assert_eq!(http(""), "off");
    assert_eq!(http("server_tls.mode = 'encrypt'"), "encrypt");
    assert_eq!(
        http("server_tls.mode = 'encrypt'\nhealth.tls = 'off'"),
        "off"
    );
    assert_eq!(http("health.tls = 'on'"), "verify");
    assert_eq!(mysql(""), "off", "the default on loopback");
    assert_eq!(mysql("server_tls.mode = 'verify'"), "verify");
    assert_eq!(
        mysql("server_tls.mode = 'verify'\nhealth.tls = 'off'"),
        "off"
    );
}

#[test]
fn web_servers_are_reached_without_tls_unless_a_key_requires_it() {
    let http = |lines: &str| {
        let text = format!(
            "[[service]]\nname = 'web'\nprotocol = 'http'\nlisten = '*:1'\n\
             servers = ['10.0.0.1:80']\nhealth.probe = 'http'\n{lines}\n"
        );
        let plan = parse(&text, None, &Sources::default()).plan;
        let service = plan.expect("a plan").services.remove(0);
        let address = service.servers[0].address.clone();
        let probe = MonitorConfig::of(&service);
        let found = connector(&service, &address).expect("valid settings");
        let of_probe = probe.probe_tls(&address).expect("valid settings");
        assert_eq!(found.is_some(), !matches!(of_probe, Tls::Off), "{lines}");
        found.is_some()
    };
    assert!(!http(""));
    assert!(!http("server_tls.mode = 'off'"));
    assert!(http("server_tls.mode = 'encrypt'"));
    assert!(http("server_tls.mode = 'verify'"));
    let fingerprint = format!("sha256:{}", "ab".repeat(32));
    assert!(http(&format!(
        "server_tls.fingerprints = ['{fingerprint}']"
    )));
}
