//! Tests of startup settings and of what servers accept.

use super::*;

fn start(parameters: &[(&str, &str)]) -> Result<String, StartupError> {
    let interner = Interner::new();
    let bytes = parameters
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    from_startup(bytes, &interner).map(|settings| shown(&settings))
}

#[test]
fn every_parameter_but_those_of_the_connection_is_a_setting() {
    let parameters = [
        ("user", "u"),
        ("database", "d"),
        ("replication", "off"),
        ("_pq_.x", "y"),
        ("DateStyle", "ISO"),
        ("Search_Path", "a, b"),
        ("application_name", "x y"),
        ("my.Own", ""),
    ];
    let expect = "application_name=x y datestyle=ISO my.own= search_path=a, b";
    assert_eq!(start(&parameters), Ok(expect.to_owned()));
}

#[test]
fn options_are_split_as_the_server_does_and_parameters_of_their_own_win() {
    for (options, expect) in [
        ("-c a=1 -cb=2 --c-d=3", "a=1 b=2 c_d=3"),
        ("  --a=x\\ y\\\\z\t-c  b=  ", "a=x y\\z b="),
        ("-c a=b=c", "a=b=c"),
        ("-c timezone=UTC", "timezone=UTC"),
        ("", ""),
    ] {
        assert_eq!(
            start(&[("options", options)]),
            Ok(expect.to_owned()),
            "{options}"
        );
    }
    let both = [("TimeZone", "A"), ("options", "-c TimeZone=B")];
    assert_eq!(start(&both), Ok("timezone=A".to_owned()));
}

#[test]
fn what_cannot_be_taken_is_named() {
    for (options, expect) in [
        ("-c a", "-c a requires a value"),
        ("-c", "-c  requires a value"),
        (
            "-F",
            "unsupported switch in startup options: -F; use -c name=value",
        ),
        ("x", "unsupported switch in startup options: x"),
        ("-c =1", "invalid startup parameter \"\""),
    ] {
        let reported = start(&[("options", options)]).unwrap_err().to_string();
        assert!(reported.starts_with(expect), "{reported}");
    }
    let interner = Interner::new();
    let latin = [(&b"a.b"[..], &b"\xc4"[..])];
    assert!(from_startup(latin.into_iter(), &interner).is_err());
}

#[test]
fn a_server_is_asked_once_whether_a_setting_is_one() {
    let interner = Interner::new();
    let mut on = ServerSessionState::new(REPORTS, &interner);
    let startup = interner.of([(&b"timezone"[..], &b"utc"[..]), (b"application_name", b"a")]);
    let mut proofs = AcceptedSettings::default();
    assert!(proofs.is_missing(&startup));
    let named = interner.of([(&b"application_name"[..], &b"b"[..])]);
    assert!(!proofs.is_missing(&named), "any name is right");
    on.record_report(b"TimeZone", b"UTC", &interner);
    proofs.learn(&startup, &on);
    assert!(!proofs.is_missing(&startup));
    let other = ServerSessionState::new(REPORTS, &interner);
    let reported = proofs.greeting(&startup, &other, &interner);
    assert_eq!(
        reported.get(b"timezone"),
        Some(&b"UTC"[..]),
        "as the server calls it"
    );
    assert_eq!(reported.get(b"datestyle"), Some(&b"ISO, MDY"[..]));
}

#[test]
fn proofs_are_bounded() {
    let interner = Interner::new();
    let on = ServerSessionState::new(REPORTS, &interner);
    let mut proofs = AcceptedSettings::default();
    for number in 0..3000_u32 {
        let value = number.to_string();
        proofs.learn(&interner.of([(&b"a.b"[..], value.as_bytes())]), &on);
    }
    let last = interner.of([(&b"a.b"[..], &b"2999"[..])]);
    let first = interner.of([(&b"a.b"[..], &b"0"[..])]);
    assert!(!proofs.is_missing(&last) && proofs.is_missing(&first));
}

#[test]
fn whether_a_role_is_a_superuser_is_no_default_of_its_connection() {
    let interner = Interner::new();
    let mut on = ServerSessionState::new(REPORTS, &interner);
    let before = on.login().get(b"is_superuser").map(<[u8]>::to_vec);
    on.record_report(b"is_superuser", b"off", &interner);
    on.restored(interner.of([(&b"role"[..], &b"r"[..])]), &interner);
    assert_eq!(on.login().get(b"is_superuser"), before.as_deref());
}
