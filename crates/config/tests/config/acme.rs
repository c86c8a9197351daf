//! Tests of `[acme]` and of the names whose certificates come by it.

use evenkeel_config::plan::{AcmeChallenge, Plan};

use super::{code_and_place, load, plan, service};

/// Returns a file with these keys of `[acme]`, from line 2 on, and these of `[service.tls]`.
fn file(acme: &str, tls: &str) -> String {
    let web = service(&format!("protocol = \"http\"\n[service.tls]\n{tls}\n"));
    format!("[acme]\n{acme}\n{web}")
}

/// Returns the only problem, its help included.
fn problem(text: &str) -> String {
    let (_, problems) = load(text);
    let [problem] = &*problems else {
        panic!("{text}\n{problems:#?}");
    };
    let help = problem.help.clone().unwrap_or_default();
    format!("{}: {} ({help})", code_and_place(problem), problem.message)
}

fn names(plan: &Plan) -> &[String] {
    plan.services[0].acme_names()
}

#[test]
fn names_need_no_files_and_are_compared_without_case() {
    let plan = plan(&file(
        "terms_agreed = true\nemail = 'ops@shop.example'\nchallenge = 'tls-alpn-01'",
        "acme = ['Shop.example', 'shop.example', 'xn--bcher-kva.example']",
    ));
    assert_eq!(names(&plan), ["shop.example", "xn--bcher-kva.example"]);
    let acme = plan.acme.unwrap();
    assert_eq!(acme.challenge, AcmeChallenge::TlsAlpn);
    assert_eq!(acme.email.as_deref(), Some("ops@shop.example"));
    assert_eq!(acme.storage.to_str(), Some("/var/lib/evenkeel/acme"));
    let tls = plan.services[0].http().unwrap().tls.as_ref().unwrap();
    assert!(tls.certificates.is_empty());
}

#[test]
fn a_name_that_no_order_can_have_is_explained() {
    let refused = |name: &str| {
        let text = file("terms_agreed = true", &format!("acme = ['{name}']"));
        problem(&text)
    };
    let wildcard = refused("*.shop.example");
    assert!(
        wildcard.starts_with("E_NAME 9:9: ") && wildcard.contains("dns-01"),
        "{wildcard}"
    );
    for address in ["10.0.0.1", "::1", "[::1]", "shop.example:443"] {
        let message = refused(address);
        assert!(message.contains("addresses are not ordered"), "{message}");
    }
    let long = format!("{}.example", "a".repeat(64));
    for name in [
        "",
        "a b",
        "shop..example",
        "-a.example",
        "../x",
        "b_c",
        &long,
    ] {
        let message = refused(name);
        assert!(message.contains("E_NAME"), "{name}: {message}");
    }
}

#[test]
fn the_terms_must_be_agreed_to_and_the_table_must_be_there_and_in_use() {
    let names = "acme = ['shop.example']";
    for acme in ["email = 'ops@shop.example'", "terms_agreed = false"] {
        let message = problem(&file(acme, names));
        assert!(message.contains("E_MISSING_KEY"), "{message}");
        assert!(message.contains("terms_agreed = true"), "{message}");
    }
    let without = service(&format!("protocol = 'http'\n[service.tls]\n{names}\n"));
    let message = problem(&without);
    assert!(message.contains("requires a table [acme]"), "{message}");
    let unused = format!("[acme]\nterms_agreed = true\n{}", service(""));
    let message = problem(&unused);
    assert!(message.starts_with("W_NO_EFFECT 1:"), "{message}");
}

#[test]
fn wrong_values_of_the_table_are_reported_at_their_place() {
    for (line, wanted) in [
        ("directory = 'http://ca.example/dir'", "E_VALUE 3:13"),
        ("email = 'ops'", "E_VALUE 3:9"),
        ("email = 'mailto:ops@shop.example'", "E_VALUE 3:9"),
        ("ca = 'no-such-file.pem'", "E_FILE 3:6"),
        ("eab_key_id = 'kid-1'", "E_MISSING_KEY 3:1"),
        ("challenge = 'dns-01'", "E_UNKNOWN_WORD 3:13"),
    ] {
        let text = file(
            &format!("terms_agreed = true\n{line}"),
            "acme = ['shop.example']",
        );
        let message = problem(&text);
        assert!(message.starts_with(wanted), "{line}: {message}");
    }
}

#[test]
fn a_service_needs_names_or_a_file() {
    let text = file("terms_agreed = true", "client_ca = 'no-such-file.pem'");
    let (_, problems) = load(&text);
    let missing = problems
        .iter()
        .any(|problem| problem.message.contains("has no `certificate`"));
    assert!(missing, "{problems:#?}");
}
