//! SELECT, and what may stand behind the name of a table in SHOW.

use std::cmp::Ordering;

use super::line::Line;
use super::pattern::Pattern;
use super::words::Word;
use crate::admin::console::complaint::{Complaint, Why};
use crate::admin::console::show::{Row, SCHEMA, Show, VARIABLES};

/// Rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admin::console) struct Query {
    pub(in crate::admin::console) show: Show,
    /// The first word: clients are told by it what was done.
    pub(in crate::admin::console) verb: &'static str,
    /// Places of columns in the table.
    columns: Vec<usize>,
    names: Vec<String>,
    tail: Tail,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tail {
    filter: Option<(usize, Test)>,
    order: Option<Order>,
    limit: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Equals(String),
    Like(Pattern),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    column: usize,
    is_descending: bool,
}

/// A value that is in no table, and its column's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admin::console) struct Named {
    pub(in crate::admin::console) name: String,
    pub(in crate::admin::console) value: Value,
}

/// What drivers ask for at their beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admin::console) enum Value {
    Text(String),
    /// The name of the console.
    Version,
    /// Where the client is.
    Schema,
    /// Who it is.
    User,
    /// Which connection it has.
    Connection,
}

/// What SELECT asks for.
pub(super) enum Select {
    Rows(Query),
    Values(Vec<Named>),
}

impl Query {
    /// All of a table.
    pub(in crate::admin::console) fn all(show: Show) -> Self {
        let names = show.columns().iter();
        Self {
            show,
            verb: "SHOW",
            columns: (0..show.columns().len()).collect(),
            names: names.map(|name| (*name).to_owned()).collect(),
            tail: Tail::default(),
        }
    }

    /// What stands behind the table's name in SHOW.
    pub(super) fn shown(show: Show, line: &mut Line<'_>) -> Result<Self, Complaint> {
        let tail = Tail::parse(show, line)?;
        Ok(Self {
            tail,
            ..Self::all(show)
        })
    }

    /// The names of what is asked for.
    pub(in crate::admin::console) fn columns(&self) -> &[String] {
        &self.names
    }

    /// Of all of a table's rows, what is asked for.
    pub(in crate::admin::console) fn of(&self, mut rows: Vec<Row>) -> Vec<Row> {
        if let Some((column, test)) = &self.tail.filter {
            rows.retain(|row| row[*column].as_ref().is_some_and(|value| test.fits(value)));
        }
        if let Some(order) = self.tail.order {
            rows.sort_by(|one, other| order.compare(one, other));
        }
        rows.truncate(self.tail.limit.unwrap_or(usize::MAX));
        if self.columns.len() == self.show.columns().len() && self.columns.is_sorted() {
            return rows;
        }
        let picked = |row: Row| self.columns.iter().map(|at| row[*at].clone()).collect();
        rows.into_iter().map(picked).collect()
    }
}

impl Tail {
    fn parse(show: Show, line: &mut Line<'_>) -> Result<Self, Complaint> {
        let mut tail = Self::default();
        if line.takes("LIKE") {
            tail.filter = Some((0, Test::Like(Pattern::of(&line.word()?.text))));
        } else if line.takes("WHERE") {
            tail.filter = Some(test(show, line)?);
        }
        if line.takes("ORDER") {
            line.must_take("BY")?;
            let column = column(show, line.word()?)?;
            let is_descending = line.takes("DESC");
            if !is_descending {
                line.takes("ASC");
            }
            tail.order = Some(Order {
                column,
                is_descending,
            });
        }
        tail.limit = limit(line)?;
        line.ends()?;
        Ok(tail)
    }
}

fn test(show: Show, line: &mut Line<'_>) -> Result<(usize, Test), Complaint> {
    let column = column(show, line.word()?)?;
    if line.takes("LIKE") {
        return Ok((column, Test::Like(Pattern::of(&line.word()?.text))));
    }
    line.must_take("=")?;
    Ok((column, Test::Equals(line.word()?.text.clone())))
}

fn limit(line: &mut Line<'_>) -> Result<Option<usize>, Complaint> {
    if !line.takes("LIMIT") {
        return Ok(None);
    }
    let word = line.word()?;
    let message = || format!("{:?} is no number of rows", word.text);
    let limit = word.text.parse();
    limit
        .map(Some)
        .map_err(|_| Complaint::new(Why::Value, message()))
}

fn column(show: Show, word: &Word) -> Result<usize, Complaint> {
    let mut columns = show.columns().iter();
    let found = columns.position(|name| name.eq_ignore_ascii_case(&word.text));
    found.ok_or_else(|| {
        let known = show.columns().join(", ");
        let message = format!("there is no column {:?}; there are {known}", word.text);
        Complaint::new(Why::NoColumn, message)
    })
}

impl Test {
    fn fits(&self, value: &str) -> bool {
        match self {
            Test::Equals(wanted) => value == wanted,
            Test::Like(pattern) => pattern.fits(value),
        }
    }
}

impl Order {
    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let (one, other) = (&one[self.column], &other[self.column]);
        let number = |value: &Option<String>| value.as_ref()?.parse::<u64>().ok();
        let order = match (number(one), number(other)) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => one.cmp(other),
        };
        match self.is_descending {
            true => order.reverse(),
            false => order,
        }
    }
}

/// One thing that SELECT asks for.
struct Item<'a> {
    word: &'a Word,
    is_call: bool,
    alias: Option<&'a Word>,
}

impl<'a> Item<'a> {
    fn parse(line: &mut Line<'a>) -> Result<Self, Complaint> {
        let word = line.word()?;
        let is_call = line.takes_call();
        let is_next = |line: &Line<'_>| {
            line.is_over() || [",", "FROM", "LIMIT"].iter().any(|word| line.sees(word))
        };
        let alias = match line.takes("AS") || !is_next(line) {
            true => Some(line.word()?),
            false => None,
        };
        Ok(Self {
            word,
            is_call,
            alias,
        })
    }

    fn name(&self) -> String {
        let call = if self.is_call { "()" } else { "" };
        match self.alias {
            Some(alias) => alias.text.clone(),
            None => self.word.text.clone() + call,
        }
    }

    fn value(&self) -> Result<Named, Complaint> {
        let word = &self.word.text;
        let value = match word.to_ascii_lowercase().as_str() {
            _ if self.word.is_quoted => Value::Text(word.clone()),
            "version" if self.is_call => Value::Version,
            "database" | "schema" | "current_database" if self.is_call => Value::Schema,
            "user" | "current_user" | "session_user" => Value::User,
            "connection_id" if self.is_call => Value::Connection,
            name if name.starts_with("@@") => Value::Text(variable(name)?),
            number if !self.is_call && number.parse::<i64>().is_ok() => Value::Text(number.into()),
            _ => {
                let message = format!("the console cannot tell {word:?}: see SHOW HELP");
                return Err(Complaint::new(Why::Syntax, message));
            }
        };
        let name = self.name();
        Ok(Named { name, value })
    }
}

fn variable(name: &str) -> Result<String, Complaint> {
    let name = name.trim_start_matches("@@");
    let scoped = ["session.", "global.", "local."];
    let own = scoped.iter().find_map(|scope| name.strip_prefix(scope));
    let own = own.unwrap_or(name);
    let found = VARIABLES.iter().find(|(known, _)| *known == own);
    found.map(|(_, value)| (*value).to_owned()).ok_or_else(|| {
        let message = format!("there is no variable {own:?}: see SHOW VARIABLES");
        Complaint::new(Why::NoVariable, message)
    })
}

/// What stands behind SELECT.
pub(super) fn select(line: &mut Line<'_>) -> Result<Select, Complaint> {
    let mut items = vec![Item::parse(line)?];
    while line.takes(",") {
        items.push(Item::parse(line)?);
    }
    if line.takes("FROM") {
        return rows(&items, line).map(Select::Rows);
    }
    limit(line)?;
    line.ends()?;
    let values: Result<_, _> = items.iter().map(Item::value).collect();
    values.map(Select::Values)
}

fn rows(items: &[Item<'_>], line: &mut Line<'_>) -> Result<Query, Complaint> {
    let show = table(line)?;
    let mut query = Query::shown(show, line)?;
    query.verb = "SELECT";
    if let [item] = items
        && item.word.is("*")
    {
        return Ok(query);
    }
    (query.columns, query.names) = (Vec::new(), Vec::new());
    for item in items {
        query.columns.push(column(show, item.word)?);
        query.names.push(item.name());
    }
    Ok(query)
}

/// A table's name, perhaps behind that of the schema.
pub(super) fn table(line: &mut Line<'_>) -> Result<Show, Complaint> {
    let mut name = line.word()?.text.clone();
    // In quotes, the dot is a word of its own.
    while let Some(next) = line.first()
        && (next.text.starts_with('.') || name.ends_with('.'))
    {
        name += &line.word()?.text;
    }
    let own = match name.split_once('.') {
        Some((schema, own)) if schema.eq_ignore_ascii_case(SCHEMA) => own,
        _ => &name,
    };
    Show::named(own).ok_or_else(|| {
        let message = format!("there is no table {name:?}: see SHOW TABLES");
        Complaint::new(Why::NoTable, message)
    })
}
