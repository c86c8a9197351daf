//! Addresses and cookies in fields.

use std::net::IpAddr;

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Trusts 10.0.0.0/8 and fd00::/8.
fn trusts(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

#[test]
fn the_client_is_the_last_address_that_is_not_a_trusted_proxys() {
    for (peer, values, client) in [
        ("192.0.2.9", &["198.51.100.1"][..], "192.0.2.9"),
        ("192.0.2.9", &[], "192.0.2.9"),
        ("192.0.2.9", &["10.0.0.1, 198.51.100.1"], "192.0.2.9"),
        ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", &[], "10.0.0.1"),
        ("::ffff:203.0.113.9", &["198.51.100.1"], "203.0.113.9"),
        ("fd00::1", &["2001:db8::5"], "2001:db8::5"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["203.0.113.1, 198.51.100.1"], "198.51.100.1"),
        (
            "10.0.0.1",
            &["203.0.113.1, 198.51.100.1,10.0.0.2 , 10.0.0.3"],
            "198.51.100.1",
        ),
        (
            "10.0.0.1",
            &["203.0.113.1", "198.51.100.1", "10.0.0.2"],
            "198.51.100.1",
        ),
        ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", &["10.0.0.3, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &["203.0.113.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", &["203.0.113.1, _hidden, 10.0.0.2"], "10.0.0.2"),
        (
            "10.0.0.1",
            &["203.0.113.1, x, 198.51.100.1"],
            "198.51.100.1",
        ),
        ("10.0.0.1", &[" , ,"], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1:1234"], "198.51.100.1"),
        ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", &["[2001:db8::1]:1"], "2001:db8::1"),
        ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["203.0.113.1, ::ffff:10.0.0.7"], "203.0.113.1"),
        ("fd00::1", &["198.51.100.1, fd00::2"], "198.51.100.1"),
    ] {
        let values = values.iter().map(|value| value.as_bytes());
        let found = forwarded::client_of_x_forwarded_for(address(peer), values, trusts);
        assert_eq!(found, address(client));
    }
}

#[test]
fn the_standard_field_is_read_with_its_quotes() {
    for (value, client) in [
        ("for=198.51.100.1", "198.51.100.1"),
        ("For=\"198.51.100.1:80\"", "198.51.100.1"),
        (
            "for=203.0.113.1;proto=http;by=x, for=198.51.100.1",
            "198.51.100.1",
        ),
        ("proto=http; for=198.51.100.1", "198.51.100.1"),
        ("for=\"[2001:db8::1]:_port\"", "2001:db8::1"),
        ("for=\"[2001:db8::1]\"", "2001:db8::1"),
        ("for=\"198.51.100.1:_a.b-c\", for=10.0.0.2", "198.51.100.1"),
        ("for=203.0.113.1, for=unknown", "10.0.0.1"),
        ("for=203.0.113.1, for=_hidden, for=10.0.0.2", "10.0.0.2"),
        ("for=203.0.113.1, proto=http", "10.0.0.1"),
        ("for=203.0.113.1;for=198.51.100.1", "10.0.0.1"),
        ("for=203.0.113.1;host=\"a,for=198.51.100.1\"", "203.0.113.1"),
        ("for=203.0.113.1,", "10.0.0.1"),
        ("for=\"203.0.113.1", "10.0.0.1"),
        ("for=\"203.0.\\113.1\"", "10.0.0.1"),
        ("for=2001:db8::1", "10.0.0.1"),
        ("for", "10.0.0.1"),
        ("=203.0.113.1", "10.0.0.1"),
        ("for=203.0.113.1 x", "10.0.0.1"),
        ("for=\"203.0.113.1:\"", "10.0.0.1"),
        ("", "10.0.0.1"),
    ] {
        let peer = address("10.0.0.1");
        let found = forwarded::client_of_forwarded(peer, [value.as_bytes()].into_iter(), trusts);
        assert_eq!(found, address(client), "{value}");
    }
    let values = [
        &b"for=203.0.113.1"[..],
        b"for=198.51.100.1",
        b"for=10.0.0.2",
    ]
    .into_iter();
    let found = forwarded::client_of_forwarded(address("10.0.0.1"), values, trusts);
    assert_eq!(found, address("198.51.100.1"));
}

#[test]
fn an_address_is_appended_to_the_list() {
    for (values, expect) in [
        (&[][..], "192.0.2.1"),
        (&["a"], "a, 192.0.2.1"),
        (&["a, b", "", "c"], "a, b, c, 192.0.2.1"),
    ] {
        let mut out = Vec::new();
        let values = values.iter().map(|value| value.as_bytes());
        forwarded::append_address(&mut out, values, address("::ffff:192.0.2.1"));
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }
}

#[test]
fn one_cookie_is_found_among_all() {
    let values = [
        &b"a=b; c=d;e=f ;g"[..],
        b"h = i; c=second; =j; k=l=m; C=n; q=\"r\"",
    ];
    for (name, value) in [
        ("a", Some("b")),
        ("c", Some("d")),
        ("e", Some("f")),
        ("g", None),
        ("h", Some("i")),
        ("k", Some("l=m")),
        ("C", Some("n")),
        ("q", Some("\"r\"")),
        ("d", None),
    ] {
        let found = cookie::find(values.into_iter(), name.as_bytes());
        assert_eq!(found, value.map(str::as_bytes), "{name}");
    }
}

#[test]
fn cookies_are_joined_with_semicolons_and_left_out_by_name() {
    let values = [&b"a=b; c=d"[..], b"e=f"];
    let (mut joined, mut left) = (Vec::new(), Vec::new());
    cookie::join(&mut joined, values.into_iter());
    assert_eq!(joined, b"a=b; c=d; e=f");
    assert!(cookie::write_without(&mut left, values.into_iter(), b"c"));
    assert_eq!(left, b"a=b; e=f");
    left.clear();
    assert!(!cookie::write_without(
        &mut left,
        [&b"c=d"[..]].into_iter(),
        b"c"
    ));
    assert!(left.is_empty());
}
