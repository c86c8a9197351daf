//! Tests the rules for statements: keys, order and contradictions.

use evenkeel_config::plan::{RulePlan, RuleTo};

use super::wrong::check;
use super::{plan, postgres};

/// Returns a service that routes reads to replicas; `lines` begin in line 8.
fn with(lines: &str) -> String {
    postgres(&format!("[service.split]\nreads = true\n{lines}"))
}

fn rules(lines: &str) -> Vec<RulePlan> {
    let service = plan(&with(lines)).services.remove(0);
    service.database().expect("a database").rules.clone()
}

fn check_rule(lines: &str, expected: &str, words: &str) {
    check(&with(lines), expected, words);
}

#[test]
fn rules_reach_the_plan_in_their_order() {
    let all = rules(
        "[[service.rule]]\nname = 'one'\nuser = 'app'\ndatabase = 'shop'\n\
         digest = '00000000000000FE'\nmatch = '^select'\nto = 'replicas'\nassume_read = true\n\
         timeout_ms = 0\n[[service.rule]]\nname = 'two'\nactive = false\nreject = 'no'\n\
         [[service.rule]]\nname = 'three'\nto = ['db2:3306', 'db1:3306']\n",
    );
    let [one, two, three] = all.as_slice() else {
        panic!("{all:#?}");
    };
    assert_eq!((one.name.as_str(), one.active), ("one", true));
    assert_eq!(one.user.as_deref(), Some("app"));
    assert_eq!(one.database.as_deref(), Some("shop"));
    assert_eq!((one.digest, one.timeout_ms), (Some(0xfe), Some(0)));
    assert!(
        one.pattern
            .as_ref()
            .is_some_and(|pattern| pattern.fits(b"SELECT 1"))
    );
    assert_eq!((&one.to, one.assume_read), (&Some(RuleTo::Replicas), true));
    assert!(!two.active && two.is_for_all());
    assert_eq!(two.reject.as_deref(), Some("no"));
    assert_eq!(three.to, Some(RuleTo::Servers(vec![1, 0])));
}

#[test]
fn what_a_rule_cannot_say_is_pointed_at() {
    let of = |lines: &str| format!("[[service.rule]]\nname = 'a'\n{lines}");
    check_rule(
        "[[service.rule]]\nreject = 'no'",
        "E_MISSING_KEY 8:1",
        "no `name`",
    );
    check_rule(&of(""), "E_MISSING_KEY 8:1", "does nothing");
    check_rule(
        &of("reject = 'no'\nmatsch = 'a'"),
        "E_UNKNOWN_KEY 11:1",
        "`match`",
    );
    check_rule(
        &of("reject = 'no'\nmatch = 'a(b'"),
        "E_VALUE 11:9",
        "unclosed group",
    );
    check_rule(
        &of("reject = 'no'\nmatch = '(a{999}){999}'"),
        "E_VALUE 11:9",
        "size limit",
    );
    check_rule(
        &of("reject = 'no'\ndigest = 'fe'"),
        "E_VALUE 11:10",
        "16 hexadecimal",
    );
    check_rule(
        &of("to = 'replica'"),
        "E_UNKNOWN_WORD 10:6",
        "did you mean `replicas`?",
    );
    check_rule(&of("to = ['db3:3306']"), "E_VALUE 10:7", "did you mean");
    check_rule(&of("to = []"), "E_VALUE 10:6", "empty");
    check_rule(&of("to = [5]"), "E_TYPE 10:7", "names of servers");
    check_rule(
        &of("reject = 'no'\nto = 'any'"),
        "E_BOTH 11:1",
        "exclude each other",
    );
    check_rule(&of("timeout_ms = 604800001"), "E_RANGE 10:14", "604800000");
    check_rule("[service.rule]\nname = 'a'", "E_TYPE 8:10", "two brackets");
    check_rule(
        "[[service.rule]]\nname = 'a b'\nreject = 'no'",
        "E_NAME 9:8",
        "not a valid rule name",
    );
}

#[test]
fn rules_that_get_in_each_other_s_way_are_pointed_at() {
    let two = |first: &str, second: &str| {
        format!(
            "[[service.rule]]\nname = 'a'\nreject = 'no'\n{first}\n\
             [[service.rule]]\nreject = 'no'\n{second}"
        )
    };
    check_rule(
        &two("user = 'u'", "name = 'a'"),
        "E_DUPLICATE_RULE 14:8",
        "another rule `a`",
    );
    check_rule(
        &two("", "name = 'b'"),
        "W_NO_EFFECT 12:1",
        "`a` before it matches every",
    );
    assert_eq!(rules(&two("active = false", "name = 'b'")).len(), 2);
    let many: String = (0..129)
        .map(|index| format!("[[service.rule]]\nname = 'r{index}'\nuser = 'u'\nreject = 'no'\n"))
        .collect();
    check_rule(&many, "E_RANGE 520:1", "at most 128 rules");
}

#[test]
fn what_has_no_effect_is_told() {
    let rule = "[[service.rule]]\nname = 'a'\n";
    check_rule(
        &format!("{rule}to = 'primary'\nassume_read = true"),
        "W_NO_EFFECT 11:1",
        "sends nothing to replicas",
    );
    check(
        &postgres(&format!("{rule}to = 'replicas'")),
        "W_NO_EFFECT 8:1",
        "`reads = true`",
    );
    check(
        &super::service(&format!("{rule}reject = 'no'")),
        "E_PROTOCOL_KEY 5:11",
        "`protocol = \"postgres\"`",
    );
}
