//! Compares the configuration pages with the program: keys, defaults, limits, message codes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use evenkeel_config::keys::{HEALTH, Key, Kind, MONITOR, SECTIONS, SERVER_TLS, Section, USER};

use super::postgres::Pair;
use super::{load, plan, postgres, service};

/// Row of a table: key, default, limits.
struct Row {
    key: String,
    default: String,
    limits: String,
}

/// The pages that document the configuration; the messages of `check` are on the last one.
const PAGES: [&str; 4] = [
    "configuration-reference.md",
    "configuration-http.md",
    "configuration-database.md",
    "configuration.md",
];

/// Returns the text of all pages.
fn page() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = PAGES.map(|page| fs::read_to_string(docs.join(page)).expect(page));
    pages.join("\n")
}

/// Returns the rows below one heading, which begins with a capital and may have several titles.
fn rows(page: &str, title: &str) -> Vec<Row> {
    let (first, rest) = title.split_at(1);
    let title = format!("{}{rest}", first.to_uppercase());
    let has_title = |chapter: &&str| {
        let heading = chapter.lines().next().unwrap_or_default();
        heading.split(", ").any(|one| one == title)
    };
    let found = page.split("\n## ").find(has_title);
    let body = found.unwrap_or_else(|| panic!("no {title}"));
    let lines = body.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| {
            let mut cells = line
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned());
            let mut cell = || cells.next().unwrap_or_default();
            Row {
                key: cell().replace('`', ""),
                default: cell(),
                limits: cell(),
            }
        })
        .collect()
}

fn for_each(check: impl Fn(&Section, &Key, &Row)) {
    let page = page();
    // The users file is another file, but documented on these pages.
    for section in SECTIONS.into_iter().chain([&USER]) {
        let rows = rows(&page, section.title);
        let names: Vec<&str> = section.keys().map(|key| key.name).collect();
        let documented: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(documented, names, "{}", section.title);
        for (key, row) in section.keys().zip(&rows) {
            check(section, key, row);
        }
    }
}

/// Tables that a role needs. Further keys of the monitor can follow.
const DATABASE: &str = "[service.health]\nprobe = 'mysql'\n[service.monitor]\nuser = 'm'\n";

/// Returns a file in which one key of one section has this value.
fn file_with(section: &Section, key: &str, value: &str) -> String {
    let line = format!("{key} = {value}");
    match section.title {
        "[[cluster]]" => with_cluster(&service(&line)),
        "[cluster.health]" => with_cluster(&file_with(&HEALTH, key, value)),
        "[cluster.monitor]" => with_cluster(&file_with(&MONITOR, key, value)),
        "[cluster.server_tls]" => with_cluster(&file_with(&SERVER_TLS, key, value)),
        "an entry of `servers`" => format!(
            "[[service]]\nname = 'a'\nlisten = '127.0.0.1:3306'\n\
             servers = ['db1:3306', {{ address = 'db2:3306', {line} }}]\n"
        ),
        "[[service]]" => match key {
            "on_primary_change" => service(&format!("role = 'primary'\n{line}\n{DATABASE}")),
            "lag_ms_max" | "fallback" => service(&format!("role = 'replica'\n{line}\n{DATABASE}")),
            "query_timeout_ms"
            | "transaction_timeout_ms"
            | "idle_in_transaction_timeout_ms"
            | "login_timeout_ms"
            | "logins_at_once"
            | "logins_per_address"
            | "digests_max" => postgres(&line),
            "times" | "http" | "route" | "sticky" | "retry" => http(&line),
            "hello_timeout_ms" => service(&format!("{line}\n[[service.route]]\nhost = 'a'\n")),
            _ => service(&line),
        },
        "[service.monitor]" if key == "role_interval_ms" => service(&format!("{DATABASE}{line}\n")),
        "[service.health]" => {
            let probe = match key {
                "path" | "status" => "probe = 'http'\n",
                "query" => "probe = 'mysql'\n",
                _ => "",
            };
            let monitor = if key == "query" {
                "\n[service.monitor]\nuser = 'm'"
            } else {
                ""
            };
            service(&format!("[service.health]\n{probe}{line}{monitor}\n"))
        }
        "[service.split]" if key != "reads" => {
            postgres(&format!("[service.split]\nreads = true\n{line}"))
        }
        "[[service.rule]]" => {
            // Keys that every rule must have.
            let name = if key == "name" { "" } else { "name = 'a'\n" };
            let to = if key == "to" { "" } else { "to = 'any'\n" };
            let split = "[service.split]\nreads = true\n";
            postgres(&format!("{split}[[service.rule]]\n{name}{to}{line}"))
        }
        title if is_http(title) => http_with(section, key, &line),
        "[service.tls]" => postgres(&format!("{}\n{line}", tls())),
        "[acme]" => {
            let tls = "protocol = 'http'\n[service.tls]\nacme = ['shop.example']\n";
            format!("[acme]\nterms_agreed = true\n{line}\n{}", service(tls))
        }
        "[peers]" => format!("{}\n[peers]\n{line}\n", postgres("")),
        title
        @ ("[service.auth]" | "[service.pool]" | "[service.split]" | "[service.failover]") => {
            postgres(&format!("{title}\n{line}\n"))
        }
        title @ ("[service.pool.users.NAME]" | "[service.pool.databases.NAME]") => {
            postgres(&format!("{title}\n{line}\n"))
        }
        title => service(&format!("{title}\n{line}\n")),
    }
}

/// Returns the file with the servers of its one service, and their settings, in a cluster.
fn with_cluster(text: &str) -> String {
    let own = "servers = [\"db1:3306\", \"db2:3306\"]\n";
    let cluster = format!("cluster = 'c'\n[[cluster]]\nname = 'c'\n{own}");
    text.replace(own, &cluster)
        .replace("[service.", "[cluster.")
}

/// Returns whether only HTTP services have the section.
fn is_http(title: &str) -> bool {
    const TITLES: [&str; 10] = [
        "[service.http]",
        "[service.times]",
        "[service.sticky]",
        "[service.retry]",
        "[[service.route]]",
        "[service.route.respond]",
        "[service.route.basic_auth]",
        "[service.route.mirror]",
        "an entry of `certificates`",
        "an entry of `to`",
    ];
    title.ends_with("(http)") || TITLES.contains(&title)
}

/// Returns a file in which one key of a section of HTTP services has a value.
fn http_with(section: &Section, key: &str, line: &str) -> String {
    match section.title {
        "[service.pool] (http)" => http(&format!("[service.pool]\n{line}\n")),
        "[service.tls] (http)" => http(&format!("{}\n{line}", tls())),
        "an entry of `certificates`" => http(&format!("{}\ncertificates = [{{ {line} }}]", tls())),
        "an entry of `to`" => {
            let service = if key == "service" {
                ""
            } else {
                "service = 'api', "
            };
            let api = "[[service]]\nname = 'api'\nprotocol = 'http'\nservers = ['db3:80']\n";
            let to = format!("to = [{{ {service}{line} }}, {{ service = 'api' }}]");
            http(&format!("[[service.route]]\n{to}\n{api}"))
        }
        "[service.route.mirror]" => {
            let service = match key {
                "service" => "",
                _ => "service = 'api'\n",
            };
            let api = "[[service]]\nname = 'api'\nprotocol = 'http'\nservers = ['db3:80']\n";
            let table = "[[service.route]]\n[service.route.mirror]\n";
            http(&format!("{table}{service}{line}\n{api}"))
        }
        "[service.http]" if key == "hash" => {
            http(&format!("balance = 'source'\n[service.http]\n{line}\n"))
        }
        "[service.http]" if matches!(key, "https" | "hsts_days") => {
            http(&format!("{}\n[service.http]\n{line}\n", tls()))
        }
        "[service.route.respond]" => http(&format!(
            "[[service.route]]\n[service.route.respond]\n{line}\n"
        )),
        "[service.route.basic_auth]" => {
            // Of the test vectors of crypt_blowfish.
            let hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
            let users = if key == "realm" {
                format!("users = {{ ann = '{hash}' }}\n")
            } else {
                String::new()
            };
            let table = "[[service.route]]\n[service.route.basic_auth]\n";
            http(&format!("{table}{users}{line}\n"))
        }
        "[[service.route]]" if matches!(key, "redirect_status" | "keep_path") => {
            http(&format!("[[service.route]]\nredirect = '/a'\n{line}\n"))
        }
        title => http(&format!("{title}\n{line}\n")),
    }
}

/// Returns a file with an HTTP service.
fn http(lines: &str) -> String {
    service(&format!("protocol = 'http'\n{lines}"))
}

/// Returns the required keys of `[service.tls]`. The files exist as long as the process.
pub(crate) fn tls() -> String {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    let pair = PAIR.get_or_init(|| Pair::new("localhost"));
    format!("[service.tls]\n{}", pair.lines())
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    for_each(|_, _, _| {});
}

#[test]
fn documented_limits_are_the_programs() {
    for_each(|section, key, row| match key.kind {
        Kind::Number(min, max) => {
            assert_eq!(row.limits, format!("{min} to {max}"), "{}", key.name);
            let (_, problems) = load(&file_with(section, key.name, &(max + 1).to_string()));
            assert!(
                problems.iter().any(|one| one.code == "E_RANGE"),
                "{} {problems:?}",
                key.name
            );
        }
        Kind::Word(words) => {
            let listed: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            assert_eq!(row.limits, listed.join(", "), "{}", key.name);
        }
        Kind::Flag => assert_eq!(row.limits, "true, false", "{}", key.name),
        _ => assert!(!row.limits.is_empty(), "{}", key.name),
    });
}

#[test]
fn documented_defaults_are_the_programs() {
    for_each(|section, key, row| {
        if section.title == USER.title || row.default == "required" {
            return;
        }
        if row.default.is_empty() {
            assert!(
                !matches!(key.kind, Kind::Flag),
                "{} has no default",
                key.name
            );
            return;
        }
        let value = match row
            .default
            .strip_prefix('`')
            .and_then(|rest| rest.strip_suffix('`'))
        {
            Some(list) if list.starts_with('[') => list.to_owned(),
            Some(word) => format!("\"{word}\""),
            None => row.default.clone(),
        };
        let with = plan(&file_with(section, key.name, &value));
        let without =
            file_with(section, key.name, &value).replace(&format!("{} = {value}", key.name), "");
        assert_eq!(
            with,
            plan(&without.replace(", }", " }")),
            "{} {}",
            section.title,
            key.name
        );
    });
}

/// Returns the codes such as `E_RANGE` in a text.
fn codes(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !word(c));
    words
        .filter(|w| w.starts_with("E_") || w.starts_with("W_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_message_code_is_documented_and_every_documented_one_exists() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut used = BTreeSet::new();
    for directory in [source.clone(), source.join("check"), source.join("route")] {
        for entry in fs::read_dir(directory).expect("the sources") {
            let path = entry.expect("a file").path();
            if !path.is_file() {
                continue;
            }
            let text = fs::read_to_string(path).expect("a source");
            let quoted = text
                .split('"')
                .skip(1)
                .step_by(2)
                .filter(|w| codes(w).contains(*w));
            used.extend(quoted.map(str::to_owned));
        }
    }
    let page = page();
    let documented = page
        .split("## Messages of `check`")
        .nth(1)
        .expect("the messages");
    assert_eq!(used, codes(documented));
}
