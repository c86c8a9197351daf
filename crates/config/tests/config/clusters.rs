//! Tests clusters: which services take their servers from one, and the messages for mistakes.

use evenkeel_config::plan::{Health, Probe, SendProxy};
use evenkeel_monitor::probe::AccountSource;

use super::wrong::check;
use super::{load, plan, service};

/// Cluster with all its keys, in lines 1 to 11.
const ORDERS: &str = "[[cluster]]
name = 'orders'
servers = ['db1:3306', { address = 'db2:3306', max_connections = 5 }]
send_proxy = 'v2'
[cluster.health]
probe = 'mysql'
rise = 7
[cluster.monitor]
user = 'm'
[cluster.server_tls]
mode = 'encrypt'
";

/// Returns the cluster `orders` and a service that names it; `lines` begin in line 5.
fn named(cluster: &str, lines: &str) -> String {
    let head = "[[service]]\nname = 's'\nlisten = '*:1'\ncluster = 'orders'\n";
    format!("{head}{lines}\n{cluster}")
}

fn other_service(lines: &str) -> String {
    format!("[[service]]\nname = 'r'\nlisten = '*:2'\n{lines}\n")
}

#[test]
fn a_service_that_names_a_cluster_has_its_servers_and_their_settings() {
    let inline = "[[service]]
name = 's'
listen = '*:1'
balance = 'first'
servers = ['db1:3306', { address = 'db2:3306', max_connections = 5 }]
send_proxy = 'v2'
[service.health]
probe = 'mysql'
rise = 7
[service.monitor]
user = 'm'
[service.server_tls]
mode = 'encrypt'
";
    let mut of_cluster = plan(&named(ORDERS, "balance = 'first'"));
    let name = of_cluster.services[0].cluster.take();
    assert_eq!(name.as_deref(), Some("orders"));
    assert_eq!(of_cluster.services[0].send_proxy, SendProxy::V2);
    // Errors name the table of the account.
    let monitor = of_cluster.services[0].monitor.as_mut();
    let source = &mut monitor.expect("a monitor").source;
    assert_eq!(source.name(), "[cluster.monitor]");
    *source = AccountSource::Service;
    assert_eq!(of_cluster, plan(inline));
}

#[test]
fn all_services_of_a_cluster_share_its_servers_and_its_protocol() {
    let cluster = "[[cluster]]\nname = 'orders'\nprotocol = 'postgres'\n\
                   servers = ['db1:5432', 'db2:5432']\n[cluster.monitor]\nuser = 'm'\n";
    let second = other_service("cluster = 'orders'\n[service.pool]\nsize = 3");
    let plan = plan(&named(
        cluster,
        &format!("[service.split]\nreads = true\n{second}"),
    ));
    let [first, second] = plan.services.as_slice() else {
        panic!("two services");
    };
    assert_eq!(first.servers, second.servers);
    assert_eq!(first.health, second.health);
    assert_eq!(first.monitor, second.monitor);
    let health = Health {
        probe: Probe::named("postgres"),
        ..Health::default()
    };
    assert_eq!(first.health, health, "the probe of the cluster's protocol");
    let account = |plan: &evenkeel_config::plan::ServicePlan| {
        let database = plan.database().expect("a database");
        database
            .auth
            .account
            .as_ref()
            .expect("an account")
            .user
            .clone()
    };
    assert_eq!([first, second].map(account), ["m", "m"]);
    assert_eq!(second.database().expect("a database").pool.size, 3);
}

#[test]
fn a_cluster_has_no_key_of_another_protocol() {
    for protocol in ["http", "postgres", "mysql"] {
        let servers = "servers = ['db1:3306']\nsend_proxy = 'v1'";
        let cluster = format!("[[cluster]]\nname = 'c'\nprotocol = '{protocol}'\n{servers}\n");
        let (_, problems) = load(&format!(
            "{cluster}[[service]]\nname = 's'\nlisten = '*:1'\ncluster = 'c'\n"
        ));
        let found = problems
            .iter()
            .any(|one| one.code == "E_PROTOCOL_KEY" && one.line == Some(5));
        assert!(found, "{protocol}: {problems:?}");
    }
}

#[test]
fn keys_of_the_cluster_are_not_keys_of_its_services() {
    for line in [
        "protocol = 'tcp'",
        "servers = ['db1:3306']",
        "send_proxy = 'v1'",
        "health = { rise = 1 }",
        "monitor = { user = 'x' }",
        "server_tls = { mode = 'off' }",
    ] {
        let cluster = "[[cluster]]\nname = 'orders'\nservers = ['db1:3306']\n";
        let text = named(cluster, line);
        check(
            &text,
            "E_CLUSTER_KEY 5:1",
            "belongs to the cluster `orders`",
        );
        check(&text, "E_CLUSTER_KEY 5:1", "move `");
        check(&text, "E_CLUSTER_KEY 5:1", "(the cluster is in line 7)");
    }
}

#[test]
fn an_unknown_cluster_gets_the_nearest_one_and_causes_no_other_message() {
    let misnamed =
        |lines: &str| named(ORDERS, lines).replace("cluster = 'orders'", "cluster = 'ordres'");
    let used = other_service("cluster = 'orders'");
    for lines in [
        "",
        "role = 'replica'\nlag_ms_max = 5",
        "[service.split]\nreads = true",
    ] {
        let text = format!("{}{used}", misnamed(lines));
        check(&text, "E_UNKNOWN_CLUSTER 4:11", "did you mean `orders`?");
    }
    let far = format!("{}{used}", misnamed("").replace("ordres", "x"));
    check(&far, "E_UNKNOWN_CLUSTER 4:11", "this file has `orders`");
    let none = named("", "");
    check(
        &none,
        "E_UNKNOWN_CLUSTER 4:11",
        "add a [[cluster]] with `name = \"orders\"`",
    );
    check(
        &named("", "").replace("'orders'", "7"),
        "E_TYPE 4:11",
        "must be a string",
    );
}

#[test]
fn clusters_have_distinct_names_and_servers_and_a_service() {
    let cluster = "[[cluster]]\nname = 'orders'\nservers = ['db1:3306']\n";
    let twice = named(&format!("{cluster}{cluster}"), "");
    check(
        &twice,
        "E_DUPLICATE_CLUSTER 10:8",
        "(the other one is in line 7)",
    );
    let idle = service("[[cluster]]\nname = 'idle'\nservers = ['db9:3306']");
    check(
        &idle,
        "W_NO_EFFECT 6:8",
        "no service names the cluster `idle`",
    );
    check(
        &named("[[cluster]]\nname = 'orders'", ""),
        "E_NO_SERVERS 6:1",
        "this cluster has no servers",
    );
    let nameless = format!("{}[[cluster]]\nservers = ['x:1']\n", service(""));
    check(&nameless, "E_MISSING_KEY 5:1", "this cluster has no `name`");
    let bad = "[[cluster]]\nname = 'or ders'\nservers = ['x:1']\n";
    let text = named(bad, "").replace("cluster = 'orders'", "cluster = 'or ders'");
    check(&text, "E_NAME 7:8", "not a valid cluster name");
    let table = service("[cluster]\nname = 'orders'");
    check(&table, "E_TYPE 5:2", "two brackets");
}

#[test]
fn a_problem_of_a_cluster_is_reported_once_at_its_place_and_names_its_table() {
    let both = |cluster: &str| {
        format!(
            "{}{}",
            named(cluster, ""),
            other_service("cluster = 'orders'")
        )
    };
    let head = "[[cluster]]\nname = 'orders'\nservers = ['db1:3306', 'db2:3306']\n";
    let probe = both(&format!("{head}[cluster.health]\nprobe = 'mysql'\n"));
    check(&probe, "E_NO_MONITOR 10:9", "add [cluster.monitor]");
    let monitor = both(&format!("{head}[cluster.monitor]\nuser = 'm'\n"));
    check(
        &monitor,
        "W_NO_EFFECT 9:10",
        "[cluster.monitor] has no effect",
    );
    check(&monitor, "W_NO_EFFECT 9:10", "in [cluster.health]");
    let twice = both(&head.replace("db2", "db1"));
    check(
        &twice,
        "E_DUPLICATE_SERVER 8:24",
        "is listed twice in this cluster",
    );
    let query = both(&format!("{head}[cluster.health]\nquery = 'x'\n"));
    check(&query, "E_PROBE_KEY 10:1", "`query`");
    let postgres = both(&head.replace("servers", "protocol = 'postgres'\nservers"));
    check(&postgres, "E_NO_MONITOR 9:1", "add [cluster.monitor]");
    let header = both(&format!(
        "{head}protocol = 'mysql'\nsend_proxy = 'v1'\n[cluster.monitor]\nuser='m'\n"
    ));
    check(&header, "E_PROTOCOL_KEY 10:1", "`allow_from`");
}

#[test]
fn unknown_keys_point_to_tables_of_the_same_kind() {
    let cluster = "[[cluster]]\nname = 'orders'\nservers = ['x:1']\n";
    let with = |line: &str| named(&format!("{cluster}{line}\n"), "");
    check(
        &with("balance = 'first'"),
        "E_UNKNOWN_KEY 9:1",
        "it belongs to [[service]]",
    );
    check(
        &with("interval_ms = 100"),
        "E_UNKNOWN_KEY 9:1",
        "it belongs to [cluster.health]",
    );
    check(
        &with("sevrers = ['y:1']"),
        "E_UNKNOWN_KEY 9:1",
        "did you mean `servers`?",
    );
    let help = "it belongs to [service.health]";
    check(&service("rise = 1"), "E_UNKNOWN_KEY 5:1", help);
}

#[test]
fn a_cluster_and_a_service_that_share_a_server_agree_about_it() {
    let inline = |lines: &str| other_service(&format!("servers = ['db1:3306']\n{lines}"));
    let cluster = "[[cluster]]\nname = 'orders'\nservers = ['db1:3306', 'db2:3306']\n";
    let with = |lines: &str| format!("{}{}", named(cluster, ""), inline(lines));
    plan(&with(""));
    let text = with("[service.health]\nrise = 9");
    check(
        &text,
        "E_SHARED_SERVER 13:10",
        "make it a [[cluster]] with one [cluster.health]",
    );
    check(
        &text,
        "E_SHARED_SERVER 13:10",
        "service `r` shares db1:3306 with cluster `orders`",
    );
    let second =
        "[[cluster]]\nname = 'more'\nservers = [{ address = 'db1:3306', max_connections = 2 }]\n";
    let text = format!(
        "{}{second}{}",
        named(cluster, ""),
        other_service("cluster = 'more'")
    );
    check(
        &text,
        "E_SHARED_SERVER 11:54",
        "but no limit in cluster `orders`",
    );
    let two = "[[service]]\nname = 'b'\nlisten = '*:1'\nservers = ['db1:3306']\n\
               [service.health]\ninterval_ms = 50";
    check(
        &service(two),
        "E_SHARED_SERVER 9:10",
        "make it a [[cluster]]",
    );
}

#[test]
fn a_service_without_servers_learns_both_ways_to_have_some() {
    let text = "[[service]]\nname = 'a'\nlisten = '*:1'";
    check(text, "E_NO_SERVERS 1:1", "or name a [[cluster]]");
    let (plan, _) = load("[[cluster]]\nname = 'a'\nservers = ['x:1']");
    assert!(plan.is_none(), "a file without a service");
}
