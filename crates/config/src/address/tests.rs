//! Tests the parsing of addresses, the advice for invalid ones, and overlapping listen addresses.

use super::{Address, Listen};

fn address(text: &str) -> Result<String, String> {
    text.parse::<Address>()
        .map(|address| address.to_string())
        .map_err(|wrong| wrong.help)
}

#[test]
fn one_address_has_one_spelling() {
    let check = |text: &str, expected: &str| assert_eq!(address(text).as_deref(), Ok(expected));
    check("DB1.Example.org:3306", "db1.example.org:3306");
    check("[0:0::1]:5432", "[::1]:5432");
    check("10.0.0.1:80", "10.0.0.1:80");
    check("unix:/run/a.sock", "unix:/run/a.sock");
    check("unix:///run/a.sock", "unix:/run/a.sock");
    check("my_db-1:65535", "my_db-1:65535");
}

#[test]
fn a_bad_address_is_refused_with_advice() {
    let check = |text: &str, advice: &str| match address(text) {
        Ok(address) => panic!("{text} was taken as {address}"),
        Err(help) => assert!(help.contains(advice), "{text}: {help}"),
    };
    check("db1", "`db1:3306`");
    check("::1", "`[::1]:PORT`");
    check("fe80::1:3306", "brackets");
    check("[::1]", "port");
    check("[db1]:80", "only an IPv6");
    check(":3306", "127.0.0.1:3306");
    check("*:3306", "name the server");
    check("db1:0", "1 to 65535");
    check("db1:65536", "1 to 65535");
    check("db1:-1", "1 to 65535");
    check("10.0.0.256:1", "0 to 255");
    check("10.0.0:1", "0 to 255");
    check("db 1:1", "letters");
    check("tcp://db1:1", "`db1:1`");
    check("/run/a.sock", "`unix:/run/a.sock`");
    check("unix:a.sock", "whole path");
    check(&format!("unix:/{}", "a".repeat(107)), "107");
}

#[test]
fn listens_overlap_when_the_kernel_would_refuse_the_second() {
    let listen = |text: &str| text.parse::<Listen>().expect(text);
    let check = |a: &str, b: &str, expected: bool| {
        assert_eq!(listen(a).overlaps(&listen(b)), expected, "{a} {b}");
        assert_eq!(listen(b).overlaps(&listen(a)), expected, "{b} {a}");
    };
    check("127.0.0.1:1", "127.0.0.1:1", true);
    check("127.0.0.1:1", "127.0.0.2:1", false);
    check("127.0.0.1:1", "127.0.0.1:2", false);
    check("0.0.0.0:1", "127.0.0.1:1", true);
    check("0.0.0.0:1", "[::1]:1", false);
    check("[::]:1", "[::1]:1", true);
    check("[::]:1", "0.0.0.0:1", false);
    check("*:1", "[::1]:1", true);
    check("*:1", "10.0.0.1:1", true);
    check("*:1", "*:2", false);
    check("localhost:1", "127.0.0.1:1", true);
    check("127.0.0.1:0", "127.0.0.1:0", false);
    check("unix:/a", "unix:/a", true);
    check("unix:/a", "unix:/b", false);
    check("unix:/a", "*:1", false);
}

#[test]
fn a_name_is_not_an_address_to_listen_on() {
    let wrong = "db1:3306".parse::<Listen>().expect_err("a name");
    assert!(wrong.help.contains("`*:3306`"), "{wrong}");
}
