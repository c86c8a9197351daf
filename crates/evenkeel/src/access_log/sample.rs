//! A finished request for tests.

use evenkeel_proxy::access_log::{
    AccessLogFormat, ClientVersion, RequestEnd, RequestFacts, RequestPhase, RequestTexts,
};

/// Returns the properties of a request that was answered.
pub(super) fn facts() -> RequestFacts {
    RequestFacts {
        format: AccessLogFormat::Json,
        version: ClientVersion::Http11,
        status: 200,
        end: RequestEnd::Complete,
        phase: RequestPhase::Body,
        retries: 1,
        ended_us: 5_000,
        waited_us: Some(20),
        first_byte_us: Some(900),
        total_us: 1_000,
        from_client: 120,
        to_client: 1_200,
        body_to_client: 1_024,
    }
}

/// Returns its texts.
pub(super) fn texts() -> RequestTexts<'static> {
    RequestTexts {
        method: b"GET",
        host: b"shop.example",
        target: b"/a?b=1",
        referer: b"https://x/",
        user_agent: b"curl/8",
        request_id: b"r-1",
        service: b"web",
        route: b"/a",
        user: b"ann",
        client: b"192.0.2.1",
        server: b"10.0.0.1:8080",
        reason: b"",
    }
}
