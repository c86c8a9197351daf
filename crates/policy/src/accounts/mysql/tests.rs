//! Tests which account row a server chooses.

use super::*;

fn row(user: &str, host: &str) -> MysqlAuthRecord {
    MysqlAuthRecord {
        user: user.to_owned(),
        host: host.to_owned(),
        ..MysqlAuthRecord::default()
    }
}

fn chosen(from: &[&str], rows: &[(&str, &str)]) -> Option<(String, String)> {
    let accounts = MysqlAuthRecords {
        mariadb: false,
        from: from.iter().map(|&one| one.to_owned()).collect(),
        rows: rows.iter().map(|(user, host)| row(user, host)).collect(),
        default_plugin: String::new(),
    };
    let row = accounts.chosen()?;
    Some((row.user.clone(), row.host.clone()))
}

fn host(from: &[&str], hosts: &[&str]) -> Option<String> {
    let rows: Vec<_> = hosts.iter().map(|&host| ("app", host)).collect();
    chosen(from, &rows).map(|(_, host)| host)
}

#[test]
fn the_most_specific_host_is_chosen() {
    let hosts = ["%", "10.%", "10.1.0.0/255.255.0.0", "10.1.%", "10.1.2.3"];
    assert_eq!(host(&["10.1.2.3"], &hosts).as_deref(), Some("10.1.2.3"));
    let fewer = &hosts[..4];
    let network = Some("10.1.0.0/255.255.0.0");
    assert_eq!(host(&["10.1.2.3"], fewer).as_deref(), network);
    assert_eq!(host(&["10.2.2.3"], &hosts).as_deref(), Some("10.%"));
    assert_eq!(host(&["192.0.2.1"], &hosts).as_deref(), Some("%"));
    let narrow = ["10.1.0.0/16", "10.1.2.0/24"];
    assert_eq!(host(&["10.1.2.3"], &narrow).as_deref(), Some("10.1.2.0/24"));
}

#[test]
fn a_host_is_known_by_its_name_or_by_its_address() {
    let from = ["db7.example.com", "10.1.2.3"];
    let found = |hosts: &[&str]| host(&from, hosts);
    assert_eq!(found(&["%.example.com"]).as_deref(), Some("%.example.com"));
    assert_eq!(found(&["10.1.2._"]).as_deref(), Some("10.1.2._"));
    assert_eq!(
        found(&["DB7.Example.COM"]).as_deref(),
        Some("DB7.Example.COM")
    );
    assert_eq!(found(&["example.com", "10.1.2", "localhost"]), None);
}

#[test]
fn nobody_s_row_of_a_more_specific_host_comes_before_the_user_s() {
    let rows = [("app", "%"), ("", "localhost")];
    let nobody = (String::new(), "localhost".to_owned());
    assert_eq!(chosen(&["localhost"], &rows), Some(nobody));
    let rows = [("", "localhost"), ("app", "localhost")];
    let app = ("app".to_owned(), "localhost".to_owned());
    assert_eq!(chosen(&["localhost"], &rows), Some(app));
}

#[test]
fn wildcards_are_those_of_like() {
    for (pattern, text, fits) in [
        ("%", "", true),
        ("a%c", "abbbc", true),
        ("a%c", "abbb", false),
        ("a%b%c", "aXbYbZc", true),
        ("a_c", "abc", true),
        ("a_c", "ac", false),
        ("a\\_c", "a_c", true),
        ("a\\_c", "abc", false),
        ("%%", "a", true),
        ("abc", "abcd", false),
        ("", "", true),
    ] {
        let found = is_like(pattern.as_bytes(), text.as_bytes());
        assert_eq!(found, fits, "{pattern} {text}");
    }
}

#[test]
fn a_stored_password_is_not_shown() {
    let method = AuthMethod {
        plugin: "mysql_native_password".to_owned(),
        stored: Zeroizing::new(b"*ABCDEF".to_vec()),
        retained: Zeroizing::new(b"*ABCDEF".to_vec()),
    };
    assert!(!format!("{method:?}").contains("ABCDEF"));
}

#[test]
fn a_certificate_must_have_exactly_the_names_that_are_required() {
    let (subject, issuer) = (b"/CN=app/O=Shop", b"/CN=authority");
    let is_met = |required_subject: &[u8], required_issuer: &[u8]| {
        let required = RequiredNames {
            subject: required_subject.to_vec(),
            issuer: required_issuer.to_vec(),
        };
        required.are_met_by(subject, issuer)
    };
    assert!(is_met(b"", b"") && is_met(subject, b"") && is_met(b"", issuer));
    assert!(is_met(subject, issuer));
    assert!(!is_met(b"/CN=app", b"") && !is_met(b"/", b""));
    assert!(!is_met(subject, b"/CN=x"));
}
