//! SQL within SQL: bodies of routines and triggers, and statements that a statement only runs.

use std::borrow::Cow;

use crate::mysql::{
    self, LexerModes, StatementKind, Target, Token, TokenKind, Tokens, VariableScope,
};
use crate::token::Word;
use crate::token::words::{
    BACKUP, BEGIN, CALL, CHARACTER, DECLARE, DIAGNOSTICS, DO, ELSE, EXECUTE, EXPORT, FLUSH, FOR,
    FROM, IMMEDIATE, INSERT, INSTANCE, INTO, LOCK, LOOP, NEXT, NEXTVAL, PREPARE, REPEAT, REPLACE,
    ROW_COUNT, SET, SETVAL, STAGE, STATEMENT, TEMPORARY, THEN, UPDATE, USING, VALUE, VALUES, WHERE,
};
use evenkeel_policy::pins::{Pin, Pins};

use super::{ANYTHING, EffectKind, TextAnalysis, calls};
use crate::session_state::mysql::values;
use crate::session_state::mysql::variables::{self, VariableHandling};

impl TextAnalysis {
    /// All that it may leave behind, in a word: what it sets too, since nobody follows that where
    /// it is run later.
    pub(in crate::session_state::mysql) fn binds(&self) -> Pins {
        let mut pins = Pins::NONE;
        if self.read_for != 0 {
            pins.add(Pin::Unknown);
        }
        for effect in &self.effects {
            match &effect.kind {
                EffectKind::Pin(pin)
                | EffectKind::PinOnSuccess(pin)
                | EffectKind::SetPinning(_, pin) => pins.add(*pin),
                EffectKind::SetUser { .. } | EffectKind::ComputeUser(_) => pins.add(Pin::Variables),
                EffectKind::TakeLock(_) => pins.add(Pin::NamedLock),
                EffectKind::Create(thing, _) | EffectKind::CreateUnknown(thing) => {
                    pins.add(thing.pin())
                }
                EffectKind::Prepare(..) => pins.add(Pin::Prepared),
                EffectKind::SetTimestamp(_) => pins.add(Pin::Settings),
                EffectKind::SetSwitch(..) | EffectKind::SetByRoutine => pins.add(Pin::Settings),
                EffectKind::SetTracker => pins.add(Pin::Unknown),
                EffectKind::Execute(_) => ANYTHING.into_iter().for_each(|pin| pins.add(pin)),
                EffectKind::Release(_)
                | EffectKind::GiveLock(_)
                | EffectKind::SetVariable(_)
                | EffectKind::SetDefault(_)
                | EffectKind::SetCharset
                | EffectKind::NextTransaction(_)
                | EffectKind::Begin
                | EffectKind::End
                | EffectKind::Savepoint
                | EffectKind::Drop(..)
                | EffectKind::RenameTables
                | EffectKind::InsertId
                | EffectKind::InsertIdUnknown
                | EffectKind::FoundRows
                | EffectKind::SetSeveral
                | EffectKind::RestoreVariables => {}
            }
        }
        pins
    }
}

/// What running this body of a routine or trigger may leave behind in the session. It says too much
/// rather than too little. [`Pin::Settings`] stands for system variables, of which the server tells
/// unless the result ends in an EOF.
#[must_use]
pub fn bound_by_body(body: &[u8], modes: LexerModes) -> Pins {
    let mut tokens = Tokens::new(body, modes);
    let mut look = Look {
        body,
        modes,
        found: Pins::NONE,
        last: Token::default(),
        assigns: false,
        changes_rows: false,
        flushes: false,
        declares: false,
        locals: Vec::new(),
    };
    loop {
        let token = tokens.next_token();
        if token.kind == TokenKind::End {
            return look.found;
        }
        look.step(token, &tokens);
        look.last = token;
    }
}

/// A look at a body, token by token.
struct Look<'a> {
    body: &'a [u8],
    modes: LexerModes,
    found: Pins,
    last: Token,
    /// Behind SET and INTO a user variable may be assigned to.
    assigns: bool,
    /// What is set behind UPDATE and INSERT are columns.
    changes_rows: bool,
    flushes: bool,
    /// Names of local variables follow.
    declares: bool,
    locals: Vec<Cow<'a, [u8]>>,
}

impl<'a> Look<'a> {
    fn step(&mut self, token: Token, behind: &Tokens<'a>) {
        let ahead = behind.clone().next_token();
        let is_assigned = ahead.kind == TokenKind::Operator && ahead.word == Word::of(":=");
        if self.declares && token.is_name() {
            let name = token.span.of(self.body);
            self.locals.push(mysql::identifier(name));
            self.declares = ahead.kind == TokenKind::Comma;
            return;
        }
        if token.is_name() && ahead.kind == TokenKind::Open {
            self.call(token.span.of(self.body));
        }
        match token.kind {
            TokenKind::Broken => self.found_anything(),
            TokenKind::Semicolon => {
                (self.assigns, self.changes_rows, self.flushes) = (false, false, false);
            }
            TokenKind::UserVariable if self.assigns || is_assigned => {
                self.found.add(Pin::Variables);
            }
            TokenKind::Word => {
                // In Oracle's mode SET is left out.
                if is_assigned && !self.assigns {
                    self.found.add(Pin::Settings);
                }
                self.word(token, ahead, behind);
            }
            _ => {}
        }
    }

    fn word(&mut self, token: Token, ahead: Token, behind: &Tokens<'a>) {
        let found = &mut self.found;
        match token.word {
            SET => {
                let is_statement = !self.changes_rows && !self.last.is(CHARACTER);
                self.assigns = true;
                if is_statement {
                    self.set(token, behind);
                }
            }
            INTO | DIAGNOSTICS | CALL => self.assigns = true,
            FROM | WHERE | VALUES => self.assigns = false,
            THEN | ELSE | DO | BEGIN | LOOP | REPEAT => self.changes_rows = false,
            // REPLACE(…) is a function, and SELECT … FOR UPDATE sets nothing.
            INSERT | REPLACE | UPDATE => {
                let is_statement = ahead.kind != TokenKind::Open && !self.last.is(FOR);
                self.changes_rows |= is_statement;
            }
            DECLARE => self.declares = true,
            TEMPORARY => found.add(Pin::TemporaryTable),
            PREPARE => found.add(Pin::Prepared),
            EXECUTE => self.found_anything(),
            NEXT if ahead.is(VALUE) => found.add(Pin::Sequence),
            NEXTVAL | SETVAL => found.add(Pin::Sequence),
            FLUSH => self.flushes = true,
            LOCK | EXPORT if self.flushes => found.add(Pin::GlobalReadLock),
            LOCK if ahead.is(INSTANCE) => found.add(Pin::BackupLock),
            // GET DIAGNOSTICS tells it, too.
            ROW_COUNT => found.add(Pin::FoundRows),
            BACKUP if ahead.is(STAGE) || ahead.is(LOCK) => found.add(Pin::BackupLock),
            _ => {}
        }
    }

    /// Records code that may leave anything.
    fn found_anything(&mut self) {
        ANYTHING.into_iter().for_each(|pin| self.found.add(pin));
        self.found.add(Pin::Settings);
    }

    /// A function of the server's own; whether its name is in quotes makes no difference.
    fn call(&mut self, written: &[u8]) {
        let found = &mut self.found;
        match &*mysql::identifier(written).to_ascii_lowercase() {
            b"get_lock" => found.add(Pin::NamedLock),
            b"found_rows" | b"row_count" => found.add(Pin::FoundRows),
            b"last_insert_id" => found.add(Pin::InsertId),
            _ if calls::binds_for_ever(written) => found.add(Pin::Unknown),
            _ => {}
        }
    }

    /// What the SET that begins here may set; parameters look like system variables.
    fn set(&mut self, set: Token, behind: &Tokens<'a>) {
        let mut ahead = behind.clone();
        let mut end = ahead.next_token();
        while !super::is_end(end.kind) {
            end = ahead.next_token();
        }
        let (from, to) = (set.span.start as usize, end.span.start as usize);
        let text = self.body.get(from..to).unwrap_or_default();
        let facts = mysql::facts(text, self.modes);
        let Some(set) = facts.single() else {
            return self.found.add(Pin::Settings);
        };
        let all = match set.kind {
            StatementKind::Set => mysql::assignments(text, set, self.modes),
            StatementKind::SetTransaction { .. } => return self.found.add(Pin::Settings),
            // What it sets it takes back; what it runs comes next.
            StatementKind::Unknown if self.is_set_statement(behind) => {
                return self.found.add(Pin::Settings);
            }
            _ => None,
        };
        let Some(all) = all else {
            // A role, perhaps.
            return self.found.add(Pin::Unknown);
        };
        for one in all {
            self.assign(one.target, text);
        }
    }

    fn is_set_statement(&self, behind: &Tokens<'a>) -> bool {
        behind.clone().next_token().is(STATEMENT)
    }

    fn assign(&mut self, target: Target, text: &[u8]) {
        match target {
            Target::User(_) => self.found.add(Pin::Variables),
            Target::System(VariableScope::Global, _) => {}
            Target::System(VariableScope::Implicit, name) if self.is_local(name.of(text)) => {}
            Target::System(_, name) => self.set_system(name.of(text)),
            Target::Names | Target::CharacterSet => self.found.add(Pin::Settings),
        }
    }

    /// The server tells of it, but for some.
    fn set_system(&mut self, name: &[u8]) {
        let name = values::bare(name).to_ascii_lowercase();
        self.found.add(Pin::Settings);
        match variables::handling(&name) {
            VariableHandling::Pins(pin, _) if pin != Pin::Settings => self.found.add(pin),
            VariableHandling::Tracker => self.found.add(Pin::Unknown),
            _ => {}
        }
    }

    /// A variable that was declared, or a column of the row that a trigger is about.
    fn is_local(&self, name: &[u8]) -> bool {
        let first = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        let is_column = first.len() < name.len() && first.eq_ignore_ascii_case(b"new");
        let first = mysql::identifier(first);
        let is_it = |local: &Cow<'_, [u8]>| local.eq_ignore_ascii_case(&first);
        is_column || self.locals.iter().any(is_it)
    }
}

/// The statement within `SET STATEMENT a = 1 FOR …` and `EXECUTE IMMEDIATE '…' [USING …]`, and
/// whether it is the former.
pub(super) fn within(statement: &[u8], modes: LexerModes) -> Option<(Cow<'_, [u8]>, bool)> {
    let mut tokens = Tokens::new(statement, modes);
    let (first, second) = (tokens.next_token(), tokens.next_token());
    if first.is(EXECUTE) && second.is(IMMEDIATE) {
        let text = tokens.next_token();
        let next = tokens.next_token();
        let is_alone = super::is_end(next.kind) || next.is(USING) && gives_plainly(&mut tokens);
        if text.kind != TokenKind::String || !is_alone {
            return None;
        }
        let text = values::string(text.span.of(statement), modes.no_backslash_escapes)?;
        return Some((Cow::Owned(text), false));
    }
    if !(first.is(SET) && second.is(STATEMENT)) {
        return None;
    }
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End | TokenKind::Open | TokenKind::UserVariable | TokenKind::Broken => {
                return None;
            }
            TokenKind::Word if token.word == FOR => {
                let inner = statement.get(token.span.end as usize..)?;
                return Some((Cow::Borrowed(inner), true));
            }
            // What changes how the rest is read, what is logged, or whose rows are found.
            TokenKind::Word if is_refused(token.span.of(statement)) => return None,
            _ => {}
        }
    }
}

/// Whether there is nothing behind USING but what does nothing itself: literals and variables.
fn gives_plainly(tokens: &mut Tokens<'_>) -> bool {
    const PLAIN: [Word; 3] = [Word::of("null"), Word::of("default"), Word::of("ignore")];
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End | TokenKind::Semicolon => return true,
            TokenKind::Number | TokenKind::String | TokenKind::UserVariable | TokenKind::Comma => {}
            TokenKind::Word if PLAIN.contains(&token.word) => {}
            _ => return false,
        }
    }
}

fn is_refused(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let refused: [&[u8]; 3] = [b"sql_mode", b"character_set_client", b"autocommit"];
    let follows = matches!(
        variables::handling(&name),
        VariableHandling::Tracked | VariableHandling::Timestamp
    );
    !follows || refused.contains(&name.as_slice())
}
