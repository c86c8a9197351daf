//! Decides whether a request may be sent to a server again after an attempt failed.
//!
//! A proxy must not repeat a request that is not idempotent, unless it knows that the server did
//! not process it (RFC 9110 §9.2.2, RFC 9112 §9.3.1).

/// Requests that a service sends again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplaySettings {
    /// True if requests of which no server has processed anything are sent again.
    pub unsent: bool,
    /// True if GET, HEAD and OPTIONS are sent again.
    pub idempotent: bool,
    /// True if PUT is sent again. Idempotent by its definition, but not in each application.
    pub put: bool,
    /// True if DELETE is sent again. Idempotent by its definition, but not in each application.
    pub delete: bool,
    /// Maximum number of further attempts for a request.
    pub retries: u32,
}

impl Default for ReplaySettings {
    fn default() -> ReplaySettings {
        ReplaySettings {
            unsent: true,
            idempotent: true,
            put: false,
            delete: false,
            retries: 3,
        }
    }
}

/// Facts about a request and its last attempt. If a value is uncertain, the caller must assume the
/// worse one, which is the later one in each list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Method.
    pub method: &'a [u8],
    /// Progress of the request at the server.
    pub progress: Progress,
    /// Body, as far as it is needed for another attempt.
    pub body: Body,
    /// True if a byte of the final answer was passed on to the client.
    pub answer_begun: bool,
    /// Number of further attempts so far.
    pub retries: u32,
}

/// Progress of a request at a server that did not answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// No byte of it was handed to a socket.
    Unsent,
    /// The server has declared that it did not process it: REFUSED_STREAM, or a stream above the
    /// last one of GOAWAY (RFC 9113 §8.7).
    Unprocessed,
    /// The server may have processed it.
    Sent,
}

/// Body of a request, as far as it is needed for another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// No body.
    None,
    /// Each byte that was received of it is still held, so that it can be sent from its begin.
    Held,
    /// Bytes of it were sent and are no longer held.
    Gone,
}

/// Decision whether a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Send it again, if the retry budget permits.
    Yes,
    /// Answer the client with an error, or end its answer.
    No(NoReplay),
}

/// Reason why a request is not sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReplay {
    /// The client has received a part of an answer.
    AnswerBegun,
    /// All further attempts are used.
    RetriesUsed,
    /// A part of the body is no longer held.
    BodyGone,
    /// Retries of requests that no server has processed are off.
    UnsentOff,
    /// Retries of this method are off, although it is idempotent.
    MethodOff,
    /// The method is not idempotent, and the server may have processed the request.
    NotIdempotent,
}

impl NoReplay {
    /// Returns the reason for the log.
    pub const fn text(self) -> &'static str {
        match self {
            NoReplay::AnswerBegun => "the answer had begun",
            NoReplay::RetriesUsed => "all retries were used",
            NoReplay::BodyGone => "the body was no longer held",
            NoReplay::UnsentOff => "retries of unsent requests are off",
            NoReplay::MethodOff => "retries of the method are off",
            NoReplay::NotIdempotent => "the server may have processed the request",
        }
    }
}

/// Decides whether a request may be sent again.
pub fn replay(settings: &ReplaySettings, facts: &Facts<'_>) -> Replay {
    if facts.answer_begun {
        return Replay::No(NoReplay::AnswerBegun);
    }
    if facts.body == Body::Gone {
        return Replay::No(NoReplay::BodyGone);
    }
    if let Err(why) = permitted(settings, facts) {
        return Replay::No(why);
    }
    if facts.retries >= settings.retries {
        return Replay::No(NoReplay::RetriesUsed);
    }
    Replay::Yes
}

/// Returns whether a request with this method may be sent over a connection that the server may be
/// about to close: it is sent again if that happens.
pub fn may_race(settings: &ReplaySettings, method: &[u8], body: Body) -> bool {
    let facts = Facts {
        method,
        progress: Progress::Sent,
        body,
        answer_begun: false,
        retries: 0,
    };
    replay(settings, &facts) == Replay::Yes
}

fn permitted(settings: &ReplaySettings, facts: &Facts<'_>) -> Result<(), NoReplay> {
    let (is_on, why) = match (facts.progress, facts.method) {
        (Progress::Unsent | Progress::Unprocessed, _) => (settings.unsent, NoReplay::UnsentOff),
        (Progress::Sent, b"GET" | b"HEAD" | b"OPTIONS") => {
            (settings.idempotent, NoReplay::MethodOff)
        }
        (Progress::Sent, b"PUT") => (settings.put, NoReplay::MethodOff),
        (Progress::Sent, b"DELETE") => (settings.delete, NoReplay::MethodOff),
        (Progress::Sent, _) => (false, NoReplay::NotIdempotent),
    };
    is_on.then_some(()).ok_or(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [&str; 9] = [
        "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH", "get", "TRACE",
    ];

    fn facts(method: &str, progress: Progress) -> Facts<'_> {
        Facts {
            method: method.as_bytes(),
            progress,
            body: Body::None,
            answer_begun: false,
            retries: 0,
        }
    }

    fn every_setting() -> impl Iterator<Item = ReplaySettings> {
        (0..16).map(|bits: u8| ReplaySettings {
            unsent: bits & 1 != 0,
            idempotent: bits & 2 != 0,
            put: bits & 4 != 0,
            delete: bits & 8 != 0,
            retries: 2,
        })
    }

    #[test]
    fn a_request_that_no_server_processed_is_sent_again_whatever_its_method() {
        for method in METHODS {
            for progress in [Progress::Unsent, Progress::Unprocessed] {
                let facts = facts(method, progress);
                for settings in every_setting() {
                    let expect = match settings.unsent {
                        true => Replay::Yes,
                        false => Replay::No(NoReplay::UnsentOff),
                    };
                    assert_eq!(replay(&settings, &facts), expect, "{method}");
                }
            }
        }
    }

    #[test]
    fn a_request_that_may_have_been_processed_is_sent_again_by_its_method() {
        for method in METHODS {
            for settings in every_setting() {
                let expect = match method {
                    "GET" | "HEAD" | "OPTIONS" if settings.idempotent => Replay::Yes,
                    "PUT" if settings.put => Replay::Yes,
                    "DELETE" if settings.delete => Replay::Yes,
                    "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" => {
                        Replay::No(NoReplay::MethodOff)
                    }
                    _ => Replay::No(NoReplay::NotIdempotent),
                };
                let facts = facts(method, Progress::Sent);
                assert_eq!(replay(&settings, &facts), expect, "{method}, {settings:?}");
                let races = may_race(&settings, method.as_bytes(), Body::None);
                assert_eq!(races, expect == Replay::Yes);
            }
        }
    }

    #[test]
    fn by_default_a_post_is_repeated_only_if_no_server_processed_it() {
        let settings = ReplaySettings::default();
        let answer = |method, progress| replay(&settings, &facts(method, progress));
        assert_eq!(answer("POST", Progress::Unsent), Replay::Yes);
        let no = Replay::No(NoReplay::NotIdempotent);
        assert_eq!(answer("POST", Progress::Sent), no);
        assert_eq!(answer("GET", Progress::Sent), Replay::Yes);
        let no = Replay::No(NoReplay::MethodOff);
        assert_eq!(answer("PUT", Progress::Sent), no);
    }

    #[test]
    fn nothing_is_repeated_after_the_answer_has_begun_or_without_the_whole_body() {
        let settings = ReplaySettings::default();
        for method in METHODS {
            for progress in [Progress::Unsent, Progress::Unprocessed, Progress::Sent] {
                let mut facts = facts(method, progress);
                facts.body = Body::Gone;
                assert_eq!(replay(&settings, &facts), Replay::No(NoReplay::BodyGone));
                facts.answer_begun = true;
                assert_eq!(replay(&settings, &facts), Replay::No(NoReplay::AnswerBegun));
            }
        }
        assert!(may_race(&settings, b"GET", Body::Held));
        assert!(!may_race(&settings, b"GET", Body::Gone));
    }

    #[test]
    fn a_request_is_repeated_as_often_as_the_settings_permit() {
        let settings = ReplaySettings {
            retries: 2,
            ..ReplaySettings::default()
        };
        let answer = |retries| {
            let facts = Facts {
                retries,
                ..facts("GET", Progress::Unsent)
            };
            replay(&settings, &facts)
        };
        assert_eq!(answer(1), Replay::Yes);
        assert_eq!(answer(2), Replay::No(NoReplay::RetriesUsed));
        let none = ReplaySettings {
            retries: 0,
            ..settings
        };
        assert!(
            !may_race(&none, b"GET", Body::None),
            "it would be answered with an error"
        );
    }
}
