//! Builder for the messages that a client sends.

use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::frontend::Target;

use super::client::Login;

/// Messages in the order in which they are sent.
#[derive(Clone, Default)]
pub(crate) struct Script(pub(crate) Vec<u8>);

impl Script {
    pub(crate) fn new() -> Script {
        Script::default()
    }

    pub(crate) fn startup(login: &Login<'_>) -> Script {
        let mut script = Script::new();
        let own = [("user", login.user), ("database", login.database)];
        let all = own.iter().chain(login.settings);
        let all = all.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        build::startup(&mut script.0, login.minor, all);
        script
    }

    pub(crate) fn query(mut self, text: &str) -> Script {
        build::query(&mut self.0, text.as_bytes());
        self
    }

    pub(crate) fn parse(mut self, name: &str, text: &str) -> Script {
        build::parse(&mut self.0, name.as_bytes(), text.as_bytes(), b"");
        self
    }

    /// Appends a Bind of the unnamed portal.
    pub(crate) fn bind(self, name: &str, values: &[&str]) -> Script {
        self.bind_to("", name, values)
    }

    pub(crate) fn bind_to(mut self, portal: &str, name: &str, values: &[&str]) -> Script {
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|value| Some(value.as_bytes())).collect();
        build::bind(&mut self.0, portal.as_bytes(), name.as_bytes(), &values);
        self
    }

    pub(crate) fn describe(mut self, name: &str) -> Script {
        build::describe(&mut self.0, Target::Statement(name.as_bytes()));
        self
    }

    pub(crate) fn describe_portal(mut self, portal: &str) -> Script {
        build::describe(&mut self.0, Target::Portal(portal.as_bytes()));
        self
    }

    /// Appends an Execute of the unnamed portal without a row limit.
    pub(crate) fn execute(self) -> Script {
        self.execute_of("", 0)
    }

    pub(crate) fn execute_of(mut self, portal: &str, rows_max: u32) -> Script {
        build::execute(&mut self.0, portal.as_bytes(), rows_max);
        self
    }

    pub(crate) fn close(mut self, name: &str) -> Script {
        build::close(&mut self.0, Target::Statement(name.as_bytes()));
        self
    }

    pub(crate) fn close_portal(mut self, portal: &str) -> Script {
        build::close(&mut self.0, Target::Portal(portal.as_bytes()));
        self
    }

    pub(crate) fn flush(mut self) -> Script {
        build::flush(&mut self.0);
        self
    }

    pub(crate) fn sync(mut self) -> Script {
        build::sync(&mut self.0);
        self
    }

    pub(crate) fn copy_data(self, data: &[u8]) -> Script {
        self.message(b'd', data)
    }

    pub(crate) fn copy_done(self) -> Script {
        self.message(b'c', b"")
    }

    pub(crate) fn copy_fail(mut self) -> Script {
        build::copy_fail(&mut self.0, b"no more");
        self
    }

    /// Removes the last `by` bytes.
    pub(crate) fn cut_short(mut self, by: usize) -> Script {
        self.0.truncate(self.0.len() - by);
        self
    }

    pub(crate) fn terminate(mut self) -> Script {
        build::terminate(&mut self.0);
        self
    }

    pub(crate) fn message(mut self, tag: u8, body: &[u8]) -> Script {
        let length = u32::try_from(body.len() + 4).unwrap();
        self.0.push(tag);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(body);
        self
    }
}

/// Prepares a statement of this name in a separate batch.
pub(crate) fn prepare(name: &str, text: &str) -> Script {
    Script::new().parse(name, text).sync()
}

/// Executes a prepared statement with these values in a separate batch.
pub(crate) fn execute(name: &str, values: &[&str]) -> Script {
    Script::new().bind(name, values).execute().sync()
}
