//! Exchanges to run: both messages, and the way in which each exchange ends.

use evenkeel_wire::http::Method;

/// Source of choices: returns a number below the given one, which is at least 1.
pub(crate) type Choices<'a> = &'a mut dyn FnMut(usize) -> usize;

/// Returns a number of any magnitude up to `max`.
pub(crate) fn magnitude(choose: Choices<'_>, max: usize) -> usize {
    let shift = choose(max.ilog2() as usize + 1);
    choose((max >> shift) + 1)
}

/// Way in which an exchange ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Both messages are sent whole.
    Complete,
    /// The client resets the stream after this number of bytes of its request.
    ClientResets(usize),
    /// The server resets the stream after this number of bytes of its response.
    ServerResets(usize),
    /// The server ends the exchange after its response, whatever of the request has arrived.
    Early,
    /// The server refuses the stream; the request is sent again.
    Refused,
}

/// Request or response without its first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) fields: Vec<(String, String)>,
    /// Length of the body.
    pub(crate) body: usize,
    /// Value of a trailer.
    pub(crate) trailer: Option<String>,
    /// An empty message ends with its head.
    pub(crate) ends_with_head: bool,
}

impl Message {
    fn draw(choose: Choices<'_>, may_have_body: bool) -> Self {
        let mut fields = Vec::new();
        for _ in 0..choose(5) {
            let length = match choose(40) {
                // More than one frame.
                0 => 17_000,
                _ => choose(60),
            };
            let value = "v".repeat(length);
            fields.push((format!("x-{}", choose(8)), value));
        }
        let body = match may_have_body && choose(4) > 0 {
            true => magnitude(choose, 150_000),
            false => 0,
        };
        let trailer = (may_have_body && choose(3) == 0).then(|| choose(1_000).to_string());
        let states_length = may_have_body && choose(2) == 0;
        if states_length {
            fields.push(("content-length".to_owned(), body.to_string()));
        }
        Message {
            fields,
            body,
            ends_with_head: body == 0 && trailer.is_none() && choose(2) == 0,
            trailer,
        }
    }

    /// Returns the lines of the fields, as they are in the text of the head.
    pub(crate) fn lines(&self) -> String {
        let lines = self
            .fields
            .iter()
            .filter(|(name, _)| name != "content-length");
        lines
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect()
    }
}

/// Exchange to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) method: Method,
    pub(crate) request: Message,
    pub(crate) response: Message,
    /// Interim responses before the final one.
    pub(crate) interim: usize,
    pub(crate) fate: Fate,
}

impl Plan {
    pub(crate) fn draw(choose: Choices<'_>) -> Self {
        let method = [Method::Get, Method::Head, Method::Post, Method::Post][choose(4)];
        let request = Message::draw(choose, method == Method::Post);
        let mut response = Message::draw(choose, method != Method::Head);
        if method == Method::Head && choose(2) == 0 {
            let length = choose(1_000).to_string();
            response.fields.push(("content-length".to_owned(), length));
        }
        let fate = match choose(12) {
            0 => Fate::ClientResets(choose(request.body + 1)),
            1 => Fate::ServerResets(choose(response.body + 1)),
            2 => Fate::Early,
            3 => Fate::Refused,
            _ => Fate::Complete,
        };
        Plan {
            method,
            interim: choose(8).saturating_sub(5),
            request,
            response,
            fate,
        }
    }

    pub(crate) fn method_text(&self) -> &'static str {
        match self.method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            _ => "POST",
        }
    }
}

/// Returns the bytes of a body from an offset on. Each body has other bytes.
pub(crate) fn bytes_of(seed: usize, from: usize, count: usize) -> Vec<u8> {
    (from..from + count)
        .map(|at| ((at * 7 + at / 251 + seed * 13) % 256) as u8)
        .collect()
}
