//! Collects the results of a scan of a server's output.

use evenkeel_policy::route::retry::FailureKind;
use evenkeel_wire::postgres::conversation::RequestToken;

/// Results of one scan of a server's output.
#[derive(Default)]
pub(super) struct ScanResult {
    pub(super) is_ready: bool,
    pub(super) ours_ended: bool,
    /// Failure that may permit a retry on another server.
    pub(super) failure: Option<FailureKind>,
    pub(super) broken: Option<String>,
    /// True if it ended after its last reply, which does not affect the client.
    pub(super) has_left: bool,
    /// True if replies can no longer be matched to requests.
    pub(super) is_undecidable: bool,
    /// Bytes of warnings that the server shuts down: they reply to no request.
    pub(super) warning: usize,
    pub(super) has_committed: bool,
    /// Parse by Evenkeel whose error makes the server skip the client's query.
    pub(super) unnamed_query: Option<RequestToken>,
}

impl ScanResult {
    /// Records a failure for a retry, which repeats everything: no part may have completed.
    pub(super) fn fails(&mut self, failure: FailureKind) {
        if !self.is_ready {
            self.failure = Some(failure);
        }
    }
}
