//! Evaluates the operator's ordered rules for statements.
//!
//! The first active rule that matches a statement decides: its destination, its time limit, or its
//! rejection. [`Rules::evaluate`] returns the result. [`route::decide`](crate::route::decide)
//! follows a rule's [`Destination`] as far as a read may run there. Further actions belong in
//! [`RuleAction`].

mod outcome;
mod pattern;

#[cfg(test)]
mod tests;

pub use outcome::RuleOutcome;
pub use pattern::{BadPattern, Pattern};

/// Maximum number of rules. Each statement is compared with all of them, and a [`RuleOutcome`] has
/// one bit for each.
pub const RULES_MAX: usize = 128;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Name, unique within the service.
    pub name: Box<str>,
    /// False if the rule is only counted where it matches, and has no effect.
    pub is_active: bool,
    /// Condition for the statements that the rule applies to.
    pub when: RuleMatch,
    /// Action for these statements.
    pub then: RuleAction,
}

/// Conditions on a statement, all of which must hold. Without a condition the rule matches every
/// statement.
#[derive(Debug, Default)]
pub struct RuleMatch {
    /// User that sends the statement.
    pub user: Option<Box<str>>,
    /// PostgreSQL's database or MySQL's schema.
    pub database: Option<Box<str>>,
    /// Digest: the number shared by all texts that differ in literals only.
    pub digest: Option<u64>,
    /// Regular expression for the text.
    pub pattern: Option<Pattern>,
}

/// Action for a statement.
#[derive(Debug, Default)]
pub struct RuleAction {
    /// Destination, as far as the statement may run there.
    pub to: Option<Destination>,
    /// Time limit in ms, instead of the service's limit; zero means no limit.
    pub timeout_ms: Option<u64>,
    /// Text of the error with which the statement is rejected.
    pub reject: Option<Box<str>>,
}

/// Destination of statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Permitted servers.
    pub group: ServerGroup,
    /// True if the operator asserts that the functions, views and procedures in these statements
    /// only read, though that is unknown. Other obstacles still keep a statement from replicas.
    pub assume_read: bool,
}

/// Group of servers of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerGroup {
    /// The primary.
    Primary,
    /// The replicas.
    Replicas,
    /// The replicas and the primary.
    Any,
    /// Servers by their indices in the service's list.
    Servers(Box<[usize]>),
}

impl ServerGroup {
    /// Returns whether a server, by its index, is in the group. Its role in the cluster is checked
    /// elsewhere.
    #[must_use]
    pub fn has(&self, index: usize) -> bool {
        match self {
            ServerGroup::Primary | ServerGroup::Replicas | ServerGroup::Any => true,
            ServerGroup::Servers(places) => places.contains(&index),
        }
    }
}

/// Properties of a statement that rules check.
#[derive(Debug, Clone, Copy)]
pub struct RuleInput<'a> {
    /// User that sends the statement.
    pub user: &'a str,
    /// Database; `None` if there is none.
    pub database: Option<&'a [u8]>,
    /// Text; `None` if it is too long to be read, so that no rule with a pattern matches.
    pub text: Option<&'a [u8]>,
    /// Text without its surrounding comments, if there are any: a pattern may match either form.
    pub bare: Option<&'a [u8]>,
    /// Digest, if [`Rules::need_digests`].
    pub digest: Option<u64>,
}

/// Rules of a service, in order.
#[derive(Debug, Default)]
pub struct Rules {
    all: Vec<Rule>,
}

impl Rules {
    /// Creates the rules in this order; rules after the first [`RULES_MAX`] are dropped.
    #[must_use]
    pub fn new(mut all: Vec<Rule>) -> Self {
        all.truncate(RULES_MAX);
        Self { all }
    }

    /// Returns all rules in order.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.all
    }

    /// Returns whether any rule has a condition on the digest.
    #[must_use]
    pub fn need_digests(&self) -> bool {
        self.all.iter().any(|rule| rule.when.digest.is_some())
    }

    /// Evaluates the rules for one statement.
    #[must_use]
    pub fn evaluate(&self, input: &RuleInput<'_>) -> RuleOutcome {
        let mut outcome = RuleOutcome::default();
        for (index, rule) in self.all.iter().enumerate() {
            if !rule.when.fits(input) {
                continue;
            }
            outcome.note(index);
            if rule.is_active {
                outcome.decide(index, &rule.then);
                break;
            }
        }
        outcome
    }

    /// Combines the outcomes of statements that are sent as a unit.
    ///
    /// If one is rejected, all are, and the shortest time limit applies. The destination is the
    /// primary if one statement requires it, and another group only if no two destinations differ.
    /// An assertion that one statement only reads does not extend to the other.
    #[must_use]
    pub fn join(&self, one: RuleOutcome, other: RuleOutcome) -> RuleOutcome {
        let to = match (self.destination(&one), self.destination(&other)) {
            (Some(to), _) if to.group == ServerGroup::Primary => one.to,
            (_, Some(to)) if to.group == ServerGroup::Primary => other.to,
            (Some(to), Some(also)) if to.group != also.group => None,
            (Some(to), _) if !to.assume_read => one.to,
            (_, Some(to)) if !to.assume_read => other.to,
            (Some(_), Some(_)) => one.to,
            _ => None,
        };
        one.and(other, to)
    }

    /// Returns the destination of an outcome.
    #[must_use]
    pub fn destination(&self, outcome: &RuleOutcome) -> Option<&Destination> {
        self.rule(outcome.to?)?.then.to.as_ref()
    }

    /// Returns the rule by which a statement is rejected, and the text of the error.
    #[must_use]
    pub fn rejection(&self, outcome: &RuleOutcome) -> Option<(&str, &str)> {
        let rule = self.rule(outcome.reject?)?;
        Some((&rule.name, rule.then.reject.as_deref()?))
    }

    fn rule(&self, index: u8) -> Option<&Rule> {
        self.all.get(usize::from(index))
    }
}

impl RuleMatch {
    fn fits(&self, input: &RuleInput<'_>) -> bool {
        self.differs(input).is_none()
    }

    /// Returns the key of the first condition that a statement does not meet; the most expensive
    /// condition is checked last.
    #[must_use]
    pub fn differs(&self, input: &RuleInput<'_>) -> Option<&'static str> {
        let is_user = |user: &str| user == input.user;
        let is_database = |database: &str| input.database == Some(database.as_bytes());
        let is_text = |pattern: &Pattern| {
            let mut texts = input.text.into_iter().chain(input.bare);
            texts.any(|text| pattern.fits(text))
        };
        if !self.user.as_deref().is_none_or(is_user) {
            return Some("user");
        }
        if !self.database.as_deref().is_none_or(is_database) {
            return Some("database");
        }
        if self.digest.is_some() && self.digest != input.digest {
            return Some("digest");
        }
        (!self.pattern.as_ref().is_none_or(is_text)).then_some("match")
    }
}
