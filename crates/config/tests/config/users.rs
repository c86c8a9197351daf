//! Tests the users file: its permissions, the keys of a user, and the masking of secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use evenkeel_config::plan::{AuthPlan, Credential};
use evenkeel_config::{Style, load};
use tempfile::TempDir;

use super::postgres;

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Config file together with a users file.
struct Files {
    directory: TempDir,
}

impl Files {
    /// Writes a config file. `lines` are in `[service.auth]`, from line 7; the first names the
    /// users file.
    fn new(lines: &str) -> Files {
        let files = Files {
            directory: TempDir::new().expect("a directory"),
        };
        let auth = format!("[service.auth]\nusers_file = 'users.toml'\n{lines}");
        files.write("evenkeel.toml", &postgres(&auth), 0o600);
        files
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set the mode");
        path
    }

    fn auth(&self, users: &str) -> AuthPlan {
        self.write("users.toml", users, 0o600);
        let loaded = load(&self.directory.path().join("evenkeel.toml"));
        assert_eq!(loaded.problems.reported(), [], "{users}");
        let service = loaded.plan.expect("a plan").services.remove(0);
        service.database().expect("a database").auth.clone()
    }

    /// Checks that there is exactly one problem, at the place of the file's name, with these words.
    fn check(&self, users: &str, mode: u32, code: &str, words: &str) {
        self.write("users.toml", users, mode);
        let problems = load(&self.directory.path().join("evenkeel.toml")).problems;
        let reported = problems.reported();
        let [problem] = reported.as_slice() else {
            panic!("{users}\nexpected {code}, found {reported:#?}");
        };
        let help = problem.help.as_deref().unwrap_or_default();
        let described = format!("{} / {help}", problem.message);
        assert!(
            problem.code == code && described.contains(words),
            "{users}\n{problem:#?}"
        );
        let shown = problems.render(Style::Plain);
        assert!(!shown.contains("hunter"), "{shown}");
    }
}

#[test]
fn users_are_read_with_what_they_log_in_with() {
    let scram = format!("SCRAM-SHA-256$4096:c2FsdA==${KEY}:{KEY}");
    let md5 = format!("md5{}", "0a".repeat(16));
    let text = format!(
        "[users.app]\npassword = 'hunter2'\n[users.web]\nverifier = '{scram}'\n\
         [users.old]\nmd5 = '{md5}'\nserver_user = 'x'\nserver_password = 'hunter3'\n\
         [users.'mr. x']\nserver_password = 'hunter3'\n"
    );
    let auth = Files::new("").auth(&text);
    let credential = |name: &str| auth.users[name].credential.as_ref();
    assert!(
        matches!(credential("app"), Some(Credential::Password(it)) if it.expose() == "hunter2")
    );
    assert!(matches!(credential("web"), Some(Credential::Scram(it)) if it.expose() == scram));
    assert!(matches!(credential("old"), Some(Credential::Md5(it)) if it.expose() == md5));
    assert_eq!(credential("mr. x"), None);
    let old = &auth.users["old"];
    assert_eq!(old.server_user.as_deref(), Some("x"));
    assert_eq!(
        old.server_password.as_ref().map(|it| it.expose()),
        Some("hunter3")
    );
    assert!(!format!("{auth:?}").contains("hunter"));
    assert!(auth.account.is_some());
    let named = text.split("[users.'mr. x']").next().expect("the others");
    assert_eq!(Files::new("source = 'file'").auth(named).account, None);
}

#[test]
fn without_any_account_nobody_can_say_what_functions_do() {
    let files = Files::new("");
    let alone = "[[service]]\nname='a'\nprotocol='postgres'\nlisten='127.0.0.1:5432'\n\
                 servers=['e:1']\n[service.auth]\nsource='file'\nusers_file='users.toml'\n";
    files.write("evenkeel.toml", alone, 0o600);
    let users = "[users.app]\npassword = 'hunter2'";
    files.check(users, 0o600, "W_NO_ACCOUNT", "[service.monitor]");
    let kept = format!("{alone}[service.pool]\nmode='session'");
    files.write("evenkeel.toml", &kept, 0o600);
    assert_eq!(files.auth(users).account, None);
}

#[test]
fn a_file_of_users_is_for_its_owner_and_its_group_alone() {
    let files = Files::new("");
    let good = "[users.app]\npassword = 'hunter2'";
    files.check(good, 0o644, "E_SECRET_READABLE", "chmod 600");
    files.check(good, 0o620, "E_SECRET_READABLE", "mode 0620");
    for mode in [0o600, 0o400, 0o640, 0o440] {
        files.write("users.toml", good, mode);
        let loaded = load(&files.directory.path().join("evenkeel.toml"));
        assert_eq!(loaded.problems.reported(), [], "{mode:o}");
    }
}

#[test]
fn a_file_of_users_is_told_apart_from_the_config_with_line_and_column() {
    let files = Files::new("");
    let check = |users: &str, code: &str, words: &str| files.check(users, 0o600, code, words);
    check(
        "[users.app]\npasswrd = 'hunter2'",
        "E_UNKNOWN_KEY",
        "did you mean `password`?",
    );
    check(
        "[users.app]\npassword = hunter2",
        "E_SYNTAX",
        "users.toml:2:12: ",
    );
    check(
        "[user.app]\npassword = 'hunter2'",
        "E_UNKNOWN_KEY",
        "users.toml:1:2: ",
    );
    check("[users]\napp = 'hunter2'", "E_TYPE", "[users.NAME]");
    check("users = 1", "E_TYPE", "[users.NAME]");
    check("", "E_FILE", "defines no users");
    check("[users.'']\npassword = 'hunter2'", "E_NAME", "is empty");
}

#[test]
fn what_cannot_log_in_is_told() {
    let files = Files::new("");
    let check = |users: &str, code: &str, words: &str| files.check(users, 0o600, code, words);
    let both = "[users.app]\npassword = 'hunter2'\nmd5 = 'md5hunter'";
    check(both, "E_BOTH", "users.toml:3:1: both `password` and `md5`");
    check("[users.app]\nmd5 = 'md5hunter'", "E_VALUE", "32 digits");
    check(
        "[users.app]\nverifier = 'hunter2'",
        "E_VALUE",
        "StoredKey:ServerKey",
    );
    let no_rounds = format!("[users.app]\nverifier = 'SCRAM-SHA-256$0:c2FsdA==${KEY}:{KEY}'");
    check(&no_rounds, "E_VALUE", "pg_authid");
    let short = format!("[users.app]\nverifier = 'SCRAM-SHA-256$1:c2FsdA==$c2FsdA==:{KEY}'");
    check(&short, "E_VALUE", "pg_authid");
    check("[users.app]", "E_MISSING_KEY", "no credentials");
    let other = "[users.app]\nmd5 = 'md500000000000000000000000000000000'\nserver_user = 'x'";
    check(other, "E_MISSING_KEY", "a different `server_user`");
    Files::new("source = 'file'").check(
        "[users.app]\nserver_password = 'hunter2'",
        0o600,
        "E_MISSING_KEY",
        "no credentials",
    );
}

#[test]
fn a_login_by_certificate_needs_who_signs_it_and_a_password_for_the_servers() {
    let files = Files::new("");
    let certificate = "[users.app]\ncertificate = true\nserver_password = 'hunter2'";
    files.check(certificate, 0o600, "W_NO_EFFECT", "client_ca");
    let pair = super::postgres::Pair::new("ca");
    let ca = pair
        .lines()
        .lines()
        .next()
        .map(|line| line.replace("certificate", "client_ca"));
    let ca = ca
        .expect("a line")
        .replace("client_ca.pem", "certificate.pem");
    let with_ca = Files::new(&format!("[service.tls]\n{}\n{ca}", pair.lines()));
    assert!(with_ca.auth(certificate).users["app"].certificate);
    with_ca.check(
        "[users.app]\ncertificate = true",
        0o600,
        "E_MISSING_KEY",
        "server_password",
    );
}

#[test]
fn a_password_as_it_is_needs_tls_and_postgres() {
    let users = "[users.app]\ncleartext = true";
    Files::new("").check(users, 0o600, "W_NO_EFFECT", "requires TLS");
    let pair = super::postgres::Pair::new("ca");
    let with_tls = Files::new(&format!("[service.tls]\n{}", pair.lines()));
    assert!(with_tls.auth(users).users["app"].cleartext);
    let nothing = Files::new(&format!("source = 'file'\n[service.tls]\n{}", pair.lines()));
    nothing.check(users, 0o600, "E_MISSING_KEY", "no credentials");
}

#[test]
fn a_misspelt_name_in_allow_from_is_told_where_all_names_are_known() {
    let files = Files::new("source = 'file'\nallow_from = { ap = ['10.0.0.0/8'] }");
    let users = "[users.app]\npassword = 'hunter2'";
    files.check(users, 0o600, "W_NO_EFFECT", "did you mean `app`?");
    Files::new("allow_from = { ap = ['10.0.0.0/8'] }").auth(users);
}
