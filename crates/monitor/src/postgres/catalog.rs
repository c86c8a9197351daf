//! Reads the effects of a database's functions, tables and views, as far as routing needs them.

mod questions;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use evenkeel_policy::route::Volatility;
use futures_util::TryStreamExt;
use tokio_postgres::{Error, SimpleQueryMessage};

use super::line::{Caller, MonitorConnection, cells};
use super::{UnexpectedValue, WatchError, is_query_error};
use crate::probe::{MonitorAccount, ProbeSetupError, Progress, Target, Tls, messages};
use evenkeel_sql::catalog::{Builder, Catalog, Changes, Function, Relation, RelationKind};
use evenkeel_sql::session_state::analysis::Body;

const STEP: &str = "reading the catalog";

/// Reads one database's catalog, over a new connection each time.
pub struct CatalogReader {
    caller: Caller,
    /// Fingerprint of the last reading, so that an unchanged catalog is not read again.
    fingerprint: Option<String>,
    /// Uses of each version of a view, the most expensive part of a reading.
    views: HashMap<Version, Uses>,
    /// Findings in each version of a function.
    bodies: HashMap<Version, Body>,
}

/// Oid and version of a view's rule or a function.
type Version = (u32, u64);

/// Functions that run and relations that are read when an object is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Uses {
    functions: Vec<u32>,
    relations: Vec<u32>,
    locks: bool,
}

/// Reason why a reading failed.
enum QueryError {
    Library(Error),
    UnexpectedValue(UnexpectedValue),
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<UnexpectedValue> for QueryError {
    fn from(unexpected: UnexpectedValue) -> Self {
        Self::UnexpectedValue(unexpected)
    }
}

impl CatalogReader {
    /// Checks everything that can be checked without the server. The account's database is the one
    /// that is read.
    pub fn new(account: MonitorAccount, tls: &Tls) -> Result<Self, ProbeSetupError> {
        Ok(Self {
            caller: Caller::new(account, tls, "evenkeel-catalog")?,
            fingerprint: None,
            views: HashMap::new(),
            bodies: HashMap::new(),
        })
    }

    /// Reads the catalog, within `timeout`; `None`: unchanged since the last reading.
    pub async fn read(
        &mut self,
        target: &Target,
        generation: u64,
        timeout: Duration,
    ) -> Result<Option<Catalog>, WatchError> {
        let progress = Progress::new(timeout);
        let reading = self.run(target, generation, &progress);
        match tokio::time::timeout(timeout, reading).await {
            Ok(read) => read,
            Err(_) => Err(WatchError::Away(progress.timed_out(timeout))),
        }
    }

    async fn run(
        &mut self,
        target: &Target,
        generation: u64,
        progress: &Progress,
    ) -> Result<Option<Catalog>, WatchError> {
        let line = self.caller.call(target, progress, STEP).await?;
        // A query that is interrupted has a pending reply.
        line.give_up();
        match self.look(&line, generation).await {
            Ok(catalog) => {
                line.hold();
                Ok(catalog)
            }
            Err(error) => Err(self.classify(&error, &line, progress)),
        }
    }

    async fn look(
        &mut self,
        line: &MonitorConnection,
        generation: u64,
    ) -> Result<Option<Catalog>, QueryError> {
        for statement in questions::BEGIN {
            rows::<0>(line, statement, |_| Ok(())).await?;
        }
        let mut found = None;
        rows(line, questions::FINGERPRINT, |[text]| {
            found = text.map(str::to_owned);
            Ok(())
        })
        .await?;
        if found.is_some() && found == self.fingerprint {
            return Ok(None);
        }
        let mut builder = Builder::default();
        self.read_functions(line, &mut builder).await?;
        self.read_relations(line, &mut builder).await?;
        self.fingerprint = found;
        Ok(Some(builder.build(generation)))
    }

    async fn read_functions(
        &mut self,
        line: &MonitorConnection,
        builder: &mut Builder,
    ) -> Result<(), QueryError> {
        let bodies = self.read_bodies(line).await?;
        let body = |oid| bodies.get(&oid).copied().cloned().unwrap_or_default();
        rows(
            line,
            questions::FUNCTIONS,
            |[oid, name, declared, parts, takes_row]| {
                let oid = number(oid)?;
                builder.function(Function {
                    oid,
                    name: text(name)?.to_owned(),
                    declared: declared_as(text(declared)?),
                    parts: numbers(parts)?,
                    body: body(oid),
                    takes_row: takes_row == Some("t"),
                });
                Ok(())
            },
        )
        .await?;
        rows(line, questions::IMPLIED, |[oid]| {
            builder.implied([number(oid)?]);
            Ok(())
        })
        .await?;
        rows(line, questions::EVENTS, |[oid]| {
            builder.event(number(oid)?);
            Ok(())
        })
        .await
    }

    /// Returns the findings in the body of each function. Only changed ones are examined.
    async fn read_bodies(
        &mut self,
        line: &MonitorConnection,
    ) -> Result<HashMap<u32, &Body>, QueryError> {
        let mut listed: HashSet<Version> = HashSet::new();
        rows(line, questions::BODIES, |[oid, version]| {
            listed.insert((number(oid)?, number(version)?));
            Ok(())
        })
        .await?;
        self.bodies.retain(|version, _| listed.contains(version));
        let known = &self.bodies;
        let news = listed.iter().filter(|one| !known.contains_key(one));
        let news: Vec<Version> = news.copied().collect();
        for part in news.chunks(questions::AT_ONCE) {
            let versions: HashMap<u32, u64> = part.iter().copied().collect();
            let question = questions::bodies(versions.keys().copied());
            rows(line, &question, |[oid, language, code]| {
                let oid = number(oid)?;
                let body = match code {
                    Some(code) => Body::read(text(language)?, code.as_bytes()),
                    None => Body::unread(),
                };
                let version = versions.get(&oid).map(|version| (oid, *version));
                self.bodies.extend(version.map(|version| (version, body)));
                Ok(())
            })
            .await?;
        }
        Ok(self
            .bodies
            .iter()
            .map(|((oid, _), body)| (*oid, body))
            .collect())
    }

    async fn read_relations(
        &mut self,
        line: &MonitorConnection,
        builder: &mut Builder,
    ) -> Result<(), QueryError> {
        let mut changes = read_changes(line).await?;
        let mut uses = policies_and_children(line).await?;
        for (view, of_view) in self.read_views(line).await? {
            uses.entry(view).or_default().add(of_view);
        }
        rows(line, questions::RELATIONS, |[oid, name, kind, unlogged]| {
            let oid = number(oid)?;
            let uses = uses.remove(&oid).unwrap_or_default();
            builder.relation(Relation {
                oid,
                name: text(name)?.to_owned(),
                kind: kind_of(text(kind)?, unlogged == Some("t") || uses.locks),
                functions: uses.functions,
                relations: uses.relations,
                changes: changes.remove(&oid).unwrap_or_default(),
            });
            Ok(())
        })
        .await
    }

    /// Returns the uses of each view. Only changed ones are examined.
    async fn read_views(
        &mut self,
        line: &MonitorConnection,
    ) -> Result<Vec<(u32, Uses)>, QueryError> {
        let mut listed: Vec<(Version, u32)> = Vec::new();
        rows(line, questions::VIEWS, |[rule, version, view]| {
            let version = (number(rule)?, number(version)?);
            listed.push((version, number(view)?));
            Ok(())
        })
        .await?;
        let mut known = std::mem::take(&mut self.views);
        known.retain(|version, _| listed.iter().any(|(listed, _)| listed == version));
        let news = listed
            .iter()
            .filter(|(version, _)| !known.contains_key(version));
        let news: Vec<Version> = news.map(|(version, _)| *version).collect();
        for part in news.chunks(questions::AT_ONCE) {
            read_rules(line, part, &mut known).await?;
        }
        let uses = listed.iter().map(|(version, view)| {
            let uses = known.get(version).cloned();
            // No view can vanish between two queries: they share one snapshot of the catalog.
            (*view, uses.unwrap_or_else(Uses::unknown))
        });
        let uses = uses.collect();
        self.views = known;
        Ok(uses)
    }

    fn classify(
        &self,
        error: &QueryError,
        line: &MonitorConnection,
        progress: &Progress,
    ) -> WatchError {
        let error = match error {
            QueryError::UnexpectedValue(unexpected) => {
                return WatchError::CannotTell(unexpected.to_string());
            }
            QueryError::Library(error) => error,
        };
        match error.as_db_error().filter(|db| is_query_error(db)) {
            Some(db) => WatchError::CannotTell(format!(
                "cannot read the catalog: {} (SQLSTATE {})",
                messages::truncated(db.message()),
                db.code().code()
            )),
            None => self.caller.classify(error, line, progress),
        }
    }
}

impl Uses {
    /// Returns an unknown use: no object has the oid zero.
    fn unknown() -> Uses {
        Uses {
            functions: vec![0],
            ..Uses::default()
        }
    }

    fn add(&mut self, other: Uses) {
        self.functions.extend(other.functions);
        self.relations.extend(other.relations);
        self.locks |= other.locks;
    }
}

/// Reads the functions and relations that row security uses, and the children that are read with a
/// parent.
async fn policies_and_children(line: &MonitorConnection) -> Result<HashMap<u32, Uses>, QueryError> {
    let mut all: HashMap<u32, Uses> = HashMap::new();
    rows(
        line,
        questions::POLICIES,
        |[table, functions, relations]| {
            all.entry(number(table)?).or_default().add(Uses {
                functions: numbers(functions)?,
                relations: numbers(relations)?,
                locks: false,
            });
            Ok(())
        },
    )
    .await?;
    rows(line, questions::CHILDREN, |[parent, child]| {
        let uses = all.entry(number(parent)?).or_default();
        uses.relations.push(number(child)?);
        Ok(())
    })
    .await?;
    Ok(all)
}

/// Reads the effects of writes to each table.
async fn read_changes(line: &MonitorConnection) -> Result<HashMap<u32, Changes>, QueryError> {
    let mut all: HashMap<u32, Changes> = HashMap::new();
    rows(line, questions::CHANGES, |[table, functions, relations]| {
        let changes = all.entry(number(table)?).or_default();
        changes.functions.extend(numbers(functions)?);
        changes.relations.extend(numbers(relations)?);
        Ok(())
    })
    .await?;
    Ok(all)
}

async fn read_rules(
    line: &MonitorConnection,
    rules: &[Version],
    known: &mut HashMap<Version, Uses>,
) -> Result<(), QueryError> {
    let question = questions::rules(rules.iter().map(|(rule, _)| *rule));
    rows(line, &question, |[rule, functions, relations, locks]| {
        let rule: u32 = number(rule)?;
        let version = rules.iter().find(|(listed, _)| *listed == rule);
        let uses = Uses {
            functions: numbers(functions)?,
            relations: numbers(relations)?,
            locks: locks == Some("t"),
        };
        known.extend(version.map(|version| (*version, uses)));
        Ok(())
    })
    .await
}

/// Passes each row to `take` as it arrives.
async fn rows<const N: usize>(
    line: &MonitorConnection,
    question: &str,
    mut take: impl FnMut([Option<&str>; N]) -> Result<(), UnexpectedValue>,
) -> Result<(), QueryError> {
    let mut answer = std::pin::pin!(line.ask(question).await?);
    while let Some(message) = answer.try_next().await? {
        match cells(&message) {
            Some(cells) => take(cells)?,
            None if matches!(message, SimpleQueryMessage::Row(_)) => {
                return Err(UnexpectedValue::new("unexpected number of columns").into());
            }
            None => {}
        }
    }
    Ok(())
}

fn declared_as(word: &str) -> Volatility {
    match word {
        "i" => Volatility::Immutable,
        "s" => Volatility::Stable,
        _ => Volatility::Volatile,
    }
}

fn kind_of(word: &str, primary_only: bool) -> RelationKind {
    match word {
        _ if primary_only => RelationKind::PrimaryOnly,
        "r" | "p" | "m" => RelationKind::Table,
        "v" => RelationKind::View,
        _ => RelationKind::PrimaryOnly,
    }
}

fn text(cell: Option<&str>) -> Result<&str, UnexpectedValue> {
    cell.ok_or_else(|| UnexpectedValue::new("a name is NULL"))
}

fn number<T: std::str::FromStr>(cell: Option<&str>) -> Result<T, UnexpectedValue> {
    let parsed = cell.and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| match cell {
        Some(text) => UnexpectedValue::new(format!("expected a number, got {text:?}")),
        None => UnexpectedValue::new("expected a number, got NULL"),
    })
}

/// Parses numbers separated by blanks; zero stands for none.
fn numbers(cell: Option<&str>) -> Result<Vec<u32>, UnexpectedValue> {
    let words = cell.unwrap_or_default().split_ascii_whitespace();
    let each = words.filter(|word| *word != "0");
    each.map(|word| number(Some(word))).collect()
}
