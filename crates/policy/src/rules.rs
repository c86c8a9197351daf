//! Ordered rules: what an operator wants done with some statements, whatever else is known of them.
//!
//! The first active rule that fits a statement decides: where it goes, how long it may take, or
//! that it is refused. [`Rules::judge`] says which; [`route::decide`](crate::route::decide)
//! follows a rule's [`Destination`] as far as a read may be sent there. What else a rule may do one
//! day is a part of [`Then`].

mod outcome;
mod pattern;

#[cfg(test)]
mod tests;

pub use outcome::RuleOutcome;
pub use pattern::{BadPattern, Pattern};

/// Each statement is held against all of them, and a [`Verdict`] has a bit for each.
pub const RULES_MAX: usize = 128;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Unique among its service's.
    pub name: Box<str>,
    /// One that is not is counted where it fits, and does nothing.
    pub is_active: bool,
    /// Which statements it is for.
    pub when: RuleMatch,
    /// What it does with them.
    pub then: RuleAction,
}

/// What must be so of a statement; all of it. Nothing: it is for every statement.
#[derive(Debug, Default)]
pub struct RuleMatch {
    /// Who sends it.
    pub user: Option<Box<str>>,
    /// Where: PostgreSQL's database, MySQL's schema.
    pub database: Option<Box<str>>,
    /// The number of all texts that differ from it in literals only.
    pub digest: Option<u64>,
    /// What its text looks like.
    pub pattern: Option<Pattern>,
}

/// What is done with a statement.
#[derive(Debug, Default)]
pub struct RuleAction {
    /// Where it goes, if it may.
    pub to: Option<Destination>,
    /// How long it may take, milliseconds, instead of the service's limit; zero: as long as it
    /// likes.
    pub timeout_ms: Option<u64>,
    /// It is refused, in these words.
    pub reject: Option<Box<str>>,
}

/// Where statements go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Which servers.
    pub group: ServerGroup,
    /// The operator vouches that the functions, views and procedures that these statements name
    /// only read, though that is not known. What keeps a statement from replicas besides, does.
    pub assume_read: bool,
}

/// Some of the servers of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerGroup {
    /// The primary.
    Primary,
    /// The replicas.
    Replicas,
    /// The replicas and the primary.
    Any,
    /// These, by their places in the service's list.
    Servers(Box<[usize]>),
}

impl ServerGroup {
    /// Whether a server, by its place, is one of them; what it is for the cluster is asked
    /// elsewhere.
    #[must_use]
    pub fn has(&self, index: usize) -> bool {
        match self {
            ServerGroup::Primary | ServerGroup::Replicas | ServerGroup::Any => true,
            ServerGroup::Servers(places) => places.contains(&index),
        }
    }
}

/// A statement, as far as rules look at it.
#[derive(Debug, Clone, Copy)]
pub struct RuleInput<'a> {
    /// Who sends it.
    pub user: &'a str,
    /// Where; `None`: in no database.
    pub database: Option<&'a [u8]>,
    /// Its text; `None`: too long to be read, so that no rule fits that asks for it.
    pub text: Option<&'a [u8]>,
    /// The same without the comments around it, where there are some: a pattern may mean either.
    pub bare: Option<&'a [u8]>,
    /// Its digest, if [`Rules::ask_for_digests`].
    pub digest: Option<u64>,
}

/// The rules of a service, in order.
#[derive(Debug, Default)]
pub struct Rules {
    all: Vec<Rule>,
}

impl Rules {
    /// In this order; what is beyond [`RULES_MAX`] is left out.
    #[must_use]
    pub fn new(mut all: Vec<Rule>) -> Self {
        all.truncate(RULES_MAX);
        Self { all }
    }

    /// In their order.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.all
    }

    /// Whether any of them asks for a digest.
    #[must_use]
    pub fn ask_for_digests(&self) -> bool {
        self.all.iter().any(|rule| rule.when.digest.is_some())
    }

    /// What is done with one statement.
    #[must_use]
    pub fn judge(&self, asked: &RuleInput<'_>) -> RuleOutcome {
        let mut verdict = RuleOutcome::default();
        for (index, rule) in self.all.iter().enumerate() {
            if !rule.when.fits(asked) {
                continue;
            }
            verdict.note(index);
            if rule.is_active {
                verdict.decide(index, &rule.then);
                break;
            }
        }
        verdict
    }

    /// What is done with several statements that are sent as one.
    ///
    /// One that is refused is enough to refuse them all; the shortest time holds; to the primary if
    /// one of them must, elsewhere if no two are to go to different places. Who vouches for one
    /// does not vouch for the other.
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

    /// Where a verdict sends a statement.
    #[must_use]
    pub fn destination(&self, verdict: &RuleOutcome) -> Option<&Destination> {
        self.rule(verdict.to?)?.then.to.as_ref()
    }

    /// The rule by which a statement is refused, and its words.
    #[must_use]
    pub fn rejection(&self, verdict: &RuleOutcome) -> Option<(&str, &str)> {
        let rule = self.rule(verdict.reject?)?;
        Some((&rule.name, rule.then.reject.as_deref()?))
    }

    fn rule(&self, index: u8) -> Option<&Rule> {
        self.all.get(usize::from(index))
    }
}

impl RuleMatch {
    fn fits(&self, asked: &RuleInput<'_>) -> bool {
        self.differs(asked).is_none()
    }

    /// The first condition that a statement does not meet, by its key; what costs most is looked at
    /// last.
    #[must_use]
    pub fn differs(&self, asked: &RuleInput<'_>) -> Option<&'static str> {
        let is_user = |user: &str| user == asked.user;
        let is_database = |database: &str| asked.database == Some(database.as_bytes());
        let is_text = |pattern: &Pattern| {
            let mut texts = asked.text.into_iter().chain(asked.bare);
            texts.any(|text| pattern.fits(text))
        };
        if !self.user.as_deref().is_none_or(is_user) {
            return Some("user");
        }
        if !self.database.as_deref().is_none_or(is_database) {
            return Some("database");
        }
        if self.digest.is_some() && self.digest != asked.digest {
            return Some("digest");
        }
        (!self.pattern.as_ref().is_none_or(is_text)).then_some("match")
    }
}
