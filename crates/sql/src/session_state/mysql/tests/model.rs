//! Models one server connection, as far as these tests need it.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_wire::mysql::flags::Status;

use super::status;

/// Reply of the model to a text.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Answer {
    pub(super) rows: Vec<String>,
    pub(super) error: Option<u16>,
    pub(super) status: Status,
    pub(super) insert_id: u64,
    pub(super) warnings: u16,
    pub(super) variables: Vec<(String, String)>,
    pub(super) schema: Option<String>,
}

impl Answer {
    /// Returns the parts of the reply that a client sees.
    pub(super) fn seen(&self) -> (&[String], Option<u16>, Status) {
        (&self.rows, self.error, self.status)
    }
}

const BEGUN: [(&str, &str); 8] = [
    ("autocommit", "ON"),
    ("character_set_client", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("sql_mode", "STRICT_TRANS_TABLES"),
    ("time_zone", "SYSTEM"),
    ("tx_isolation", "REPEATABLE-READ"),
    ("session_track_schema", "ON"),
];

#[derive(Debug, Clone)]
pub(super) struct Model {
    variables: BTreeMap<String, String>,
    users: BTreeMap<String, String>,
    schema: String,
    insert_id: u64,
    warnings: Vec<String>,
    found_rows: u64,
    tables: BTreeSet<String>,
    locks: BTreeMap<String, u32>,
    in_transaction: bool,
    next: Option<String>,
    /// True if, as in MariaDB, only statements that use a table clear earlier warnings, and DO
    /// counts no rows.
    pub(super) keeps_warnings: bool,
}

impl Default for Model {
    fn default() -> Model {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Model {
            variables: BEGUN.into_iter().map(owned).collect(),
            users: BTreeMap::new(),
            schema: String::new(),
            insert_id: 0,
            warnings: Vec::new(),
            found_rows: 0,
            tables: BTreeSet::new(),
            locks: BTreeMap::new(),
            in_transaction: false,
            next: None,
            keeps_warnings: true,
        }
    }
}

impl Model {
    pub(super) fn fresh(&self) -> impl Iterator<Item = (&'static [u8], &'static [u8])> + Clone {
        BEGUN
            .into_iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    /// Returns all session state that the session itself can see.
    pub(super) fn state(&self) -> String {
        let users = self.users.iter().filter(|(_, value)| *value != "NULL");
        let variables = self.variables.iter();
        let variables = variables.filter(|(name, value)| {
            let begun = BEGUN.iter().find(|(begun, _)| begun == name);
            begun.is_some() || !value.is_empty()
        });
        let (users, variables): (Vec<_>, Vec<_>) = (users.collect(), variables.collect());
        format!(
            "{users:?} {variables:?} {} {:?} {:?} {} {:?}",
            self.schema, self.tables, self.locks, self.in_transaction, self.next
        )
    }

    pub(super) fn run(&mut self, text: &str) -> Answer {
        let mut answer = Answer::default();
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        if !matches!(verb, "SHOW") {
            let uses_table = matches!(verb, "INSERT" | "CREATE" | "DROP") || text.contains("FROM");
            let keeps = self.keeps_warnings && !uses_table;
            let before = std::mem::take(&mut self.warnings);
            if keeps {
                self.warnings = before;
            }
        }
        match verb {
            "SET" if rest.starts_with("TRANSACTION") => self.next = Some(rest.to_owned()),
            "SET" => self.set(rest, &mut answer),
            "USE" => {
                self.schema = rest.to_owned();
                answer.schema = Some(rest.to_owned());
            }
            "BEGIN" => self.begin(),
            "COMMIT" | "ROLLBACK" => self.end(),
            "INSERT" => self.insert(rest, &mut answer),
            "SELECT" => self.select(rest, &mut answer),
            "DO" => {
                let before = self.found_rows;
                self.select(rest, &mut answer);
                if self.keeps_warnings {
                    self.found_rows = before;
                }
            }
            "SHOW" => answer.rows = self.warnings.clone(),
            "CREATE" => {
                let name = rest.rsplit(' ').next().unwrap();
                self.tables.insert(format!("{}.{name}", self.schema));
            }
            "DROP" => {
                let name = rest.rsplit(' ').next().unwrap();
                let name = format!("{}.{name}", self.schema);
                answer.error = (!self.tables.remove(&name)).then_some(1051);
            }
            "CALL" => {
                self.users.insert("hidden".to_owned(), "5".to_owned());
            }
            _ => answer.error = Some(1064),
        }
        if answer.error.is_some() {
            self.warnings = vec![format!("error in {text}")];
        }
        answer.warnings = self.warnings.len() as u16;
        let autocommit = self.variables["autocommit"] == "ON";
        answer.status = status(self.in_transaction, autocommit);
        answer
    }

    fn begin(&mut self) {
        self.in_transaction = true;
    }

    fn end(&mut self) {
        self.in_transaction = false;
        self.next = None;
    }

    fn touches(&mut self) {
        if self.variables["autocommit"] == "OFF" {
            self.in_transaction = true;
        }
    }

    fn insert(&mut self, what: &str, answer: &mut Answer) {
        self.touches();
        let number = |part: &str| part.trim_matches(|c: char| !c.is_ascii_digit()).parse();
        if let Some(value) = what.strip_prefix("INTO generated VALUES ") {
            self.insert_id = number(value).unwrap();
            answer.insert_id = self.insert_id;
        } else if let Some(value) = what.strip_prefix("INTO explicit VALUES ") {
            answer.insert_id = number(value).unwrap();
        } else if let Some(value) = what.strip_prefix("INTO warned VALUES ") {
            self.warnings.push(value.to_owned());
        } else {
            answer.error = Some(1062);
        }
    }

    fn select(&mut self, what: &str, answer: &mut Answer) {
        let before = std::mem::replace(&mut self.found_rows, 1);
        if let Some(rest) = what.strip_prefix("GET_LOCK('") {
            let name = rest.split('\'').next().unwrap().to_ascii_lowercase();
            *self.locks.entry(name).or_default() += 1;
            return;
        }
        if let Some(rest) = what.strip_prefix("RELEASE_LOCK('") {
            let name = rest.split('\'').next().unwrap().to_ascii_lowercase();
            if let Some(count) = self.locks.get_mut(&name) {
                *count -= 1;
            }
            self.locks.retain(|_, count| *count > 0);
            return;
        }
        let row = match what {
            "RELEASE_ALL_LOCKS()" => {
                self.locks.clear();
                String::new()
            }
            "0 LIMIT 0" => {
                self.found_rows = 0;
                return;
            }
            "LAST_INSERT_ID()" => self.insert_id.to_string(),
            "FOUND_ROWS()" => before.to_string(),
            "state" => self.state(),
            "@a" => self
                .users
                .get("a")
                .map_or("NULL", String::as_str)
                .to_owned(),
            _ if what.contains(":=") => {
                self.users.insert("a".to_owned(), "computed".to_owned());
                "computed".to_owned()
            }
            _ if what.starts_with("LAST_INSERT_ID(") => {
                self.insert_id = 77;
                "77".to_owned()
            }
            _ if what.starts_with("SQL_CALC_FOUND_ROWS") => {
                self.touches();
                self.found_rows = 9;
                return answer.rows.push("calculated".to_owned());
            }
            _ => {
                self.touches();
                what.to_owned()
            }
        };
        answer.rows.push(row);
    }

    fn set(&mut self, list: &str, answer: &mut Answer) {
        for one in split(list) {
            if let Some(names) = one.strip_prefix("NAMES ") {
                self.names(names, answer);
                continue;
            }
            let (target, value) = one.split_once('=').unwrap();
            if let Some(name) = target.trim().strip_prefix("@@session.").or_else(|| {
                let plain = !target.trim().starts_with('@');
                plain.then(|| target.trim())
            }) {
                let next = target.trim().starts_with("@@tx_");
                assert!(!next);
                self.variable(name, value.trim(), answer);
                continue;
            }
            let name = target.trim().trim_start_matches('@').trim_matches('`');
            let value = self.literal(value.trim());
            self.users.insert(name.to_ascii_lowercase(), value);
        }
    }

    /// Returns the value of a literal; a string has its own collation or that of the connection.
    fn literal(&self, written: &str) -> String {
        if let Some(rest) = written.strip_prefix('_') {
            let (_, rest) = rest.split_once('\'').unwrap();
            let (text, collation) = rest.split_once("' COLLATE ").unwrap();
            return format!("{text}:{collation}");
        }
        match written.strip_prefix('\'') {
            Some(rest) => {
                let collation = &self.variables["collation_connection"];
                format!("{}:{collation}", rest.strip_suffix('\'').unwrap())
            }
            None => written.to_owned(),
        }
    }

    fn names(&mut self, names: &str, answer: &mut Answer) {
        let (charset, collation) = match names.split_once(" COLLATE ") {
            Some((charset, collation)) => (charset, collation.to_owned()),
            None => (names, format!("{names}_general_ci")),
        };
        for name in ["character_set_client", "character_set_results"] {
            self.variables.insert(name.to_owned(), charset.to_owned());
            answer.variables.push((name.to_owned(), charset.to_owned()));
        }
        let reported = ("character_set_connection".to_owned(), charset.to_owned());
        answer.variables.push(reported);
        let name = "collation_connection".to_owned();
        self.variables.insert(name, collation);
    }

    fn variable(&mut self, name: &str, value: &str, answer: &mut Answer) {
        let name = name.to_ascii_lowercase();
        if name == "last_insert_id" {
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            if let Some(inner) = value.strip_prefix("(SELECT ") {
                let value = inner.split(' ').next().unwrap();
                self.insert_id = value.parse().unwrap_or(self.insert_id);
                self.found_rows = 0;
            } else if value != "LAST_INSERT_ID()" {
                self.insert_id = digits.parse().unwrap();
            }
            answer.variables.push((name, self.insert_id.to_string()));
            return;
        }
        let begun = BEGUN.iter().find(|(begun, _)| *begun == name);
        let value = match value {
            "DEFAULT" => begun.map_or("", |(_, value)| value).to_owned(),
            "@@session.collation_connection" => self.variables[&name].clone(),
            "0" if name == "autocommit" => "OFF".to_owned(),
            "1" if name == "autocommit" => "ON".to_owned(),
            "x''" => String::new(),
            value => value.trim_matches('\'').to_owned(),
        };
        if value == "nonsense" {
            answer.error = Some(1231);
            return;
        }
        if name == "autocommit" && value == "ON" {
            self.in_transaction = false;
        }
        answer.variables.push((name.clone(), value.clone()));
        self.variables.insert(name, value);
    }
}

/// Splits a list at commas outside of quotes and parentheses.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut quoted) = (Vec::new(), 0, 0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[begin..].trim());
    parts
}
