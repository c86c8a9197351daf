//! Tests invalid files: each has its code, its place, and advice.

use super::{code_and_place, load, plan, service};

/// Checks that there is exactly one problem, with this code, this place and these words.
pub(crate) fn check(text: &str, expected: &str, words: &str) {
    let (_, problems) = load(text);
    let [problem] = problems.as_slice() else {
        panic!("{text}\nexpected {expected} alone, found {problems:#?}");
    };
    assert_eq!(code_and_place(problem), expected, "{text}\n{problem:#?}");
    let described = format!(
        "{} / {}",
        problem.message,
        problem.help.as_deref().unwrap_or_default()
    );
    assert!(
        described.contains(words),
        "{text}\n{described}\ndoes not say: {words}"
    );
}

/// Checks a service; `lines` begin in line 5.
fn check_service(lines: &str, expected: &str, words: &str) {
    check(&service(lines), expected, words);
}

#[test]
fn unknown_keys_get_the_nearest_one() {
    check_service(
        "conect_timeout_ms = 1",
        "E_UNKNOWN_KEY 5:1",
        "did you mean `connect_timeout_ms`?",
    );
    check_service(
        "ballance = \"first\"",
        "E_UNKNOWN_KEY 5:1",
        "did you mean `balance`?",
    );
    check_service(
        "xyzzy = 1",
        "E_UNKNOWN_KEY 5:1",
        "its keys are `name`, `protocol`",
    );
    check_service(
        "interval_ms = 1",
        "E_UNKNOWN_KEY 5:1",
        "it belongs to [service.keepalive] or [service.health]",
    );
    check_service(
        "[service.helth]",
        "E_UNKNOWN_KEY 5:10",
        "did you mean `health`?",
    );
    check_service(
        "[service.health]\nprob = \"tcp\"",
        "E_UNKNOWN_KEY 6:1",
        "did you mean `probe`?",
    );
    check_service(
        "health.prob = \"tcp\"",
        "E_UNKNOWN_KEY 5:8",
        "did you mean `probe`?",
    );
    check_service("[logg]", "E_UNKNOWN_KEY 5:2", "did you mean `log`?");
    let wide = "health = { probe = 'http', body = 'é', rise = 0 }";
    check_service(wide, "E_RANGE 5:47", "1 to 100");
    check(
        "[[service]]\nname='a'\nlisten='*:1'\nservers = [{ address = 'e:1', wieght = 1 }]",
        "E_UNKNOWN_KEY 4:31",
        "did you mean `weight`?",
    );
}

#[test]
fn unknown_words_get_the_nearest_one() {
    check_service(
        "balance = \"leastconn\"",
        "E_UNKNOWN_WORD 5:11",
        "did you mean `least-connections`?",
    );
    check_service(
        "balance = \"roundrobin\"",
        "E_UNKNOWN_WORD 5:11",
        "did you mean `round-robin`?",
    );
    check_service(
        "balance = \"First\"",
        "E_UNKNOWN_WORD 5:11",
        "did you mean `first`?",
    );
    check_service(
        "balance = \"xyz\"",
        "E_UNKNOWN_WORD 5:11",
        "it is one of `round-robin`, ",
    );
    check_service(
        "[engine]\nio = \"uring\"",
        "E_UNKNOWN_WORD 6:6",
        "did you mean `io_uring`?",
    );
    check_service(
        "[service.health]\nprobe = \"mysq\"",
        "E_UNKNOWN_WORD 6:9",
        "did you mean `mysql`?",
    );
    check_service(
        "on_server_down = \"cutt\"",
        "E_UNKNOWN_WORD 5:18",
        "did you mean `cut`?",
    );
}

#[test]
fn an_unknown_protocol_is_reported_with_the_nearest_word() {
    check_service(
        "protocol = \"tpc\"",
        "E_UNKNOWN_WORD 5:12",
        "did you mean `tcp`?",
    );
}

#[test]
fn a_role_is_asked_of_a_database() {
    check_service(
        "role = \"primary\"",
        "E_ROLE_PROBE 5:8",
        "requires a database probe",
    );
    check_service(
        "role = \"primry\"",
        "E_UNKNOWN_WORD 5:8",
        "did you mean `primary`?",
    );
}

#[test]
fn a_key_of_one_role_does_not_stand_beside_another() {
    check_service("lag_ms_max = 5", "E_ROLE_KEY 5:1", "`role = \"replica\"`");
    check_service(
        "role = \"replica\"\non_primary_change = \"leave\"\n[service.health]\nprobe = \"mysql\"\n\
         [service.monitor]\nuser = \"m\"",
        "E_ROLE_KEY 6:1",
        "`role = \"primary\"`",
    );
}

#[test]
fn numbers_have_limits_and_units() {
    let servers =
        "[[service]]\nname='a'\nlisten='*:1'\nservers = [{ address = 'e:1', weight = -1 }]";
    check(
        servers,
        "E_RANGE 4:40",
        "`weight` is -1, but must be 0 to 256",
    );
    check_service("retries = 101", "E_RANGE 5:11", "the nearest is 100");
    check_service(
        "max_connections = 0",
        "E_RANGE 5:19",
        "must be 1 to 1000000",
    );
    check_service(
        "idle_timeout_ms = 99999999999999999999",
        "E_RANGE 5:19",
        "milliseconds",
    );
    check_service(
        "connect_timeout_ms = \"5s\"",
        "E_TYPE 5:22",
        "write `connect_timeout_ms = 5000`",
    );
    check_service(
        "connect_timeout_ms = 1.5",
        "E_TYPE 5:22",
        "from 1 to 600000",
    );
    check_service(
        "[service.keepalive]\nidle_ms = 1500",
        "E_RANGE 6:11",
        "use 2000",
    );
    check_service(
        "[service.health]\nprobe='http'\nstatus = [200, 99]",
        "E_RANGE 7:16",
        "100 to 599",
    );
    check_service(
        "[service.health]\nprobe='http'\nstatus = '300-200'",
        "E_RANGE 7:10",
        "200-399",
    );
    check_service(
        "[service.health]\nprobe='http'\nstatus = []",
        "E_VALUE 7:10",
        "is empty",
    );
    check_service(
        "[service.health]\ndead_interval_ms_max = 500",
        "E_ORDER 6:24",
        "use 1000 or more",
    );
    check_service(
        "[service.health]\ntimeout_ms = 2000",
        "W_TIMEOUT 6:14",
        "frozen",
    );
}

#[test]
fn defaults_that_depend_on_the_interval_follow_it() {
    let health = |interval_ms: u64| {
        let text = service(&format!("[service.health]\ninterval_ms = {interval_ms}"));
        let health = plan(&text).services.remove(0).health;
        (health.timeout_ms, health.dead_interval_ms_max)
    };
    assert_eq!(health(100), (100, 10_000));
    assert_eq!(health(60_000), (1_000, 60_000));
}

#[test]
fn values_of_the_wrong_type_are_named() {
    check_service(
        "balance = 3",
        "E_TYPE 5:11",
        "must be a word, not a whole number",
    );
    check_service(
        "[log]\nconnections = \"yes\"",
        "E_TYPE 6:15",
        "`connections = true`",
    );
    check_service(
        "health = \"tcp\"",
        "E_TYPE 5:10",
        "below a line `[service.health]`",
    );
    check_service("accept_proxy_from = [1]", "E_TYPE 5:22", "10.0.0.0/8");
    check("[service]\nname = 'a'", "E_TYPE 1:2", "two brackets");
    check("service = [1]", "E_TYPE 1:12", "`[[service]]`");
    check(
        "[[service]]\nname='a'\nlisten=1\nservers=['e:1']",
        "E_TYPE 3:8",
        "listen = \"127.0.0.1:3306\"",
    );
    check(
        "[[service]]\nname='a'\nlisten='*:1'\nservers=[1]",
        "E_TYPE 4:10",
        "address = ",
    );
    check(
        "[[service]]\nname=''\nlisten='*:1'\nservers=['e:1']",
        "E_VALUE 2:6",
        "is empty",
    );
    check(
        "[[service]]\nname='a/b'\nlisten='*:1'\nservers=['e:1']",
        "E_NAME 2:6",
        "letters",
    );
}

#[test]
fn bad_addresses_are_told_how_to_be_written() {
    let with = |listen: &str, server: &str| {
        format!("[[service]]\nname='a'\nlisten={listen}\nservers=[{server}]")
    };
    check(&with("'db1:3306'", "'e:1'"), "E_ADDRESS 3:8", "`*:3306`");
    check(
        &with("['*:1', '1.2.3.4']", "'e:1'"),
        "E_ADDRESS 3:16",
        "has no port",
    );
    check(
        &with("'*:1'", "'e:1', 'db2'"),
        "E_ADDRESS 4:17",
        "add the port: `db2:3306`",
    );
    check(&with("'*:1'", "'::1:1'"), "E_ADDRESS 4:10", "in brackets");
    check(
        &with("'*:1'", "'10.0.0.300:1'"),
        "E_ADDRESS 4:10",
        "four numbers",
    );
    check_service(
        "accept_proxy_from = ['10.0.0.1/8']",
        "E_ADDRESS 5:22",
        "write `10.0.0.0/8`",
    );
    check_service(
        "accept_proxy_from = ['me']",
        "E_ADDRESS 5:22",
        "is not a network",
    );
    check_service(
        "[admin]\nlisten = '*:9000'",
        "E_ADDRESS 6:10",
        "`0.0.0.0:9000`",
    );
    check_service(
        "[admin]\nlisten = '0.0.0.0:9000'",
        "W_NO_TOKEN 6:10",
        "token_file",
    );
    check_service(
        "[admin]\npostgres = '0.0.0.0:6433'",
        "W_NO_TOKEN 6:12",
        "token_file",
    );
    check_service(
        "[admin]\nallowed_hosts = ['http://x']",
        "E_VALUE 6:18",
        "only the name",
    );
}

#[test]
fn what_is_missing_is_named() {
    check("", "E_NO_SERVICES -", "[[service]]");
    check("service = []", "E_NO_SERVICES -", "[[service]]");
    check(
        "[[service]]\nname='a'\nlisten='*:1'",
        "E_NO_SERVERS 1:1",
        "servers = [",
    );
    check(
        "[[service]]\nname='a'\nlisten='*:1'\nservers=[]",
        "E_NO_SERVERS 4:1",
        "servers = [",
    );
    check(
        "[[service]]\nlisten='*:1'\nservers=['e:1']",
        "E_MISSING_KEY 1:1",
        "no `name`",
    );
    check(
        "[[service]]\nname='a'\nservers=['e:1']",
        "E_MISSING_KEY 1:1",
        "no `listen` address",
    );
    check(
        "[[service]]\nname='a'\nlisten='*:1'\nservers=[{ weight=1 }]",
        "E_MISSING_KEY 4:10",
        "no `address`",
    );
    check_service(
        "[service.health]\nprobe='mysql'",
        "E_NO_MONITOR 6:7",
        "[service.monitor]",
    );
    let monitor = "[service.health]\nprobe='mysql'\n[service.monitor]\ndatabase='x'";
    check_service(monitor, "E_MISSING_KEY 7:10", "no `user`");
}

#[test]
fn listening_twice_is_found_across_the_file() {
    let second =
        |listen: &str| format!("[[service]]\nname='b'\nlisten='{listen}'\nservers=['f:1']");
    let same = "service `a` listens on the same address (that one is in line 3)";
    check_service(&second("127.0.0.1:3306"), "E_DUPLICATE_LISTEN 7:8", same);
    check_service(
        &second("0.0.0.0:3306"),
        "E_DUPLICATE_LISTEN 7:8",
        "listens on 127.0.0.1:3306",
    );
    check_service(&second("*:3306"), "E_DUPLICATE_LISTEN 7:8", "another port");
    check_service(
        &second("127.0.0.1:9000"),
        "E_DUPLICATE_LISTEN 7:8",
        "[admin]",
    );
    let admin = format!("{}\n[admin]\nlisten='127.0.0.1:1'", second("127.0.0.1:1"));
    check_service(
        &admin,
        "E_DUPLICATE_LISTEN 7:8",
        "the admin port listens on the same address",
    );
    let console = format!("{}\n[admin]\npostgres='127.0.0.1:1'", second("127.0.0.1:1"));
    check_service(
        &console,
        "E_DUPLICATE_LISTEN 7:8",
        "the admin console for PostgreSQL listens on the same address",
    );
    plan(&service(&second("127.0.0.2:3306")));
    plan(&service(&format!(
        "{}\n[admin]\nlisten='off'",
        second("127.0.0.1:9000")
    )));
}

#[test]
fn names_and_servers_are_unique() {
    let second = "[[service]]\nname='a'\nlisten='*:1'\nservers=['f:1']";
    check_service(
        second,
        "E_DUPLICATE_SERVICE 6:6",
        "the other one is in line 2",
    );
    let with = |servers: &str| format!("[[service]]\nname='a'\nlisten='*:1'\nservers=[{servers}]");
    check(
        &with("'e:1', 'E:1'"),
        "E_DUPLICATE_SERVER 4:17",
        "`weight = 2`",
    );
    check(
        &with("'[::1]:2', '[0::1]:2'"),
        "E_DUPLICATE_SERVER 4:21",
        "is listed twice",
    );
    let named = "{ name='x', address='e:1' }, { name='x', address='f:1' }";
    check(&with(named), "E_DUPLICATE_SERVER 4:46", "another name");
    check(
        &with("{ address='e:1', backup=true }"),
        "W_ALL_BACKUP 4:1",
        "backup = true",
    );
    check(
        &with("{ address='e:1', weight=0 }"),
        "W_ALL_ZERO 4:1",
        "not serve any client",
    );
}

#[test]
fn a_service_is_not_its_own_server() {
    let check = |listen: &str, server: &str, loops: bool| {
        let text = format!("[[service]]\nname='a'\nlisten='{listen}'\nservers=['{server}']");
        let (_, problems) = load(&text);
        let found: Vec<String> = problems.iter().map(code_and_place).collect();
        assert_eq!(
            found,
            if loops { vec!["E_LOOP 4:10"] } else { vec![] },
            "{text}"
        );
    };
    check("127.0.0.1:1", "127.0.0.1:1", true);
    check("127.0.0.1:1", "localhost:1", true);
    check("*:1", "[::1]:1", true);
    check("0.0.0.0:1", "127.0.0.1:1", true);
    check("10.0.0.1:1", "10.0.0.1:1", true);
    check("unix:/a", "unix:/a", true);
    check("*:1", "10.0.0.1:1", false);
    check("*:1", "db1:1", false);
    check("127.0.0.1:1", "127.0.0.1:2", false);
    check("127.0.0.1:1", "127.0.0.2:1", false);
}

#[test]
fn services_that_share_a_server_agree_about_it() {
    let second = |server: &str, more: &str| {
        format!("[[service]]\nname='b'\nlisten='*:1'\nservers=[{server}]\n{more}")
    };
    plan(&service(&second("{ address='db1:3306', weight=5 }", "")));
    let limit = second("{ address='db1:3306', max_connections=5 }", "");
    check_service(
        &limit,
        "E_SHARED_SERVER 8:48",
        "but no limit in service `a` (the other one is in line 4)",
    );
    let health = second("'db1:3306', 'db2:3306'", "[service.health]\nrise=9");
    check_service(&health, "E_SHARED_SERVER 9:10", "[service.health] differs");
    plan(&service(&second("'f:1'", "[service.health]\nrise=9")));
}

#[test]
fn keys_that_nothing_uses_are_told() {
    check_service(
        "[service.health]\npath='/x'",
        "E_PROBE_KEY 6:1",
        "set `probe = \"http\"`",
    );
    check_service(
        "[service.health]\nprobe='http'\nquery='x'",
        "E_PROBE_KEY 7:1",
        "\"mysql\" or \"postgres\"",
    );
    check_service(
        "[service.health]\nprobe='http'\npath='x'",
        "E_VALUE 7:6",
        "begin it with `/`",
    );
    check_service(
        "[service.monitor]\nuser='x'",
        "W_NO_EFFECT 5:10",
        "does not log in",
    );
    check_service(
        "[service.server_tls]\nmode='off'",
        "W_NO_EFFECT 5:10",
        "does not use TLS",
    );
}

#[test]
fn waiting_takes_a_queue() {
    let lines = "all_down='wait'\n[service.queue]\nlength=0";
    check_service(lines, "W_NO_EFFECT 5:10", "length");
}

#[test]
fn syntax_errors_point_at_their_place() {
    check("[[service]]\nname = ", "E_SYNTAX 2:8", "must be quoted");
    check("[[service]\n", "E_SYNTAX 1:11", "unclosed");
    check(
        "[log]\nlevel = 'info'\nlevel = 'warn'",
        "E_SYNTAX 3:1",
        "keep one of the two",
    );
    check("[log]\nlevel", "E_SYNTAX 2:6", "`key = value`");
    check("[log]\nlevel = 'x\n", "E_SYNTAX 2:11", "quotes");
}

#[test]
fn all_problems_are_reported_in_the_order_of_the_file() {
    let lines = "weight = 2\nretries = 101\nbalance = 3\n[engine]\nio = \"x\"\n[logg]\n";
    let (_, problems) = load(&service(lines));
    let found: Vec<String> = problems.iter().map(code_and_place).collect();
    let expected = [
        "E_UNKNOWN_KEY 5:1",
        "E_RANGE 6:11",
        "E_TYPE 7:11",
        "E_UNKNOWN_WORD 9:6",
        "E_UNKNOWN_KEY 10:2",
    ];
    assert_eq!(found, expected);
}
