//! Builds the rules that statements are matched against from the rules of the configuration.

use evenkeel_config::plan::{RulePlan, RuleTo};
use evenkeel_policy::rules::{Destination, Rule, RuleAction, RuleMatch, Rules, ServerGroup};
use evenkeel_proxy::database::DatabaseService;
use evenkeel_proxy::rules::RuleSet;

/// Returns the rule set of a plan, with the hit counters of the rules that already exist.
pub(crate) fn rule_set(plans: &[RulePlan], shared: &DatabaseService) -> RuleSet {
    let hits = plans.iter().map(|plan| shared.hits(&plan.name)).collect();
    RuleSet::new(rules(plans, None), hits)
}

/// Returns the rules of a plan. The rule named `tried` counts as active.
pub(crate) fn rules(plans: &[RulePlan], tried: Option<&str>) -> Rules {
    let rule = |plan: &RulePlan| Rule {
        name: plan.name.as_str().into(),
        is_active: plan.active || tried == Some(&plan.name),
        when: when(plan),
        then: then(plan),
    };
    Rules::new(plans.iter().map(rule).collect())
}

fn when(plan: &RulePlan) -> RuleMatch {
    let boxed = |text: &String| text.as_str().into();
    RuleMatch {
        user: plan.user.as_ref().map(boxed),
        database: plan.database.as_ref().map(boxed),
        digest: plan.digest,
        pattern: plan.pattern.clone(),
    }
}

fn then(plan: &RulePlan) -> RuleAction {
    let group = plan.to.as_ref().map(|to| match to {
        RuleTo::Primary => ServerGroup::Primary,
        RuleTo::Replicas => ServerGroup::Replicas,
        RuleTo::Any => ServerGroup::Any,
        RuleTo::Servers(indices) => ServerGroup::Servers(indices.as_slice().into()),
    });
    let assume_read = plan.assume_read;
    RuleAction {
        to: group.map(|group| Destination { group, assume_read }),
        timeout_ms: plan.timeout_ms,
        reject: plan.reject.as_deref().map(Into::into),
    }
}
