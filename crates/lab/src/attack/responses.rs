//! Reads responses strictly, and compares them with the requests of their connection.

use super::reference::{self, Request};

/// Response in the strict reading.
struct Response<'a> {
    status: u16,
    body: Vec<u8>,
    is_last: bool,
    rest: &'a [u8],
}

impl Response<'_> {
    /// Returns whether a server that answers with the target has answered another request.
    fn is_wrong_for(&self, request: &Request) -> bool {
        let has_target = request.method != "HEAD" && self.status == 200;
        has_target && self.body != request.target.as_bytes()
    }
}

/// Returns why the bytes are not the responses to these requests, of servers that answer with the
/// target. A last response may be cut off, and one more may refuse what follows the requests.
pub(super) fn mismatch(requests: &[Request], mut bytes: &[u8]) -> Option<String> {
    let mut waiting = requests.iter();
    loop {
        let request = waiting.next();
        let is_head = request.is_some_and(|request| request.method == "HEAD");
        let response = loop {
            if bytes.is_empty() {
                return None;
            }
            match read(bytes, is_head) {
                Err(why) => return Some(why),
                // The connection has ended within a response.
                Ok(None) => return None,
                Ok(Some(interim)) if interim.status < 200 => bytes = interim.rest,
                Ok(Some(response)) => break response,
            }
        };
        bytes = response.rest;
        match request {
            None if response.status < 400 => {
                return Some("a response without a request".to_owned());
            }
            Some(request) if response.is_wrong_for(request) => {
                let body = String::from_utf8_lossy(&response.body).into_owned();
                return Some(format!("{body:?} is the answer to {request:?}"));
            }
            _ => {}
        }
        if response.is_last && !bytes.is_empty() {
            return Some("bytes after the last response".to_owned());
        }
    }
}

/// Reads one response; `None` if it is not complete.
fn read(bytes: &[u8], is_head: bool) -> Result<Option<Response<'_>>, String> {
    let Some(end) = reference::find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    let status = status.and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
    let status = status.ok_or_else(|| format!("no status line: {head:?}"))?;
    let fields: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let value = |name: &str| {
        let found = fields.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| *value)
    };
    let rest = &bytes[end + 4..];
    let has_body = !is_head && status >= 200 && !matches!(status, 204 | 304);
    let (body, length) = match (value("content-length"), value("transfer-encoding")) {
        (Some(_), Some(_)) => return Err(format!("two framings: {head:?}")),
        _ if !has_body => (Vec::new(), 0),
        (Some(length), None) => {
            let length: usize = length.parse().map_err(|_| format!("no length: {head:?}"))?;
            match rest.get(..length) {
                Some(body) => (body.to_vec(), length),
                None => return Ok(None),
            }
        }
        (None, Some(_)) => match reference::chunked(rest) {
            Some(body) => body,
            None => return Ok(None),
        },
        (None, None) => (rest.to_vec(), rest.len()),
    };
    let is_last = value("connection").is_some_and(|value| value.contains("close"));
    Ok(Some(Response {
        status,
        body,
        is_last,
        rest: &rest[length..],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(text: &str) -> Vec<Request> {
        reference::read(text.as_bytes())
    }

    const TWO: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\nHEAD /b HTTP/1.1\r\nHost: a\r\n\r\n";
    const FIRST: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n/a";
    const SECOND: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    const REFUSAL: &str =
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";

    #[test]
    fn responses_in_the_order_of_their_requests_match() {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
        for bytes in [
            String::new(),
            FIRST.to_owned(),
            format!("{interim}{FIRST}{SECOND}{REFUSAL}"),
            format!("{FIRST}{}", &SECOND[..20]),
        ] {
            assert_eq!(mismatch(&requests(TWO), bytes.as_bytes()), None, "{bytes}");
        }
    }

    #[test]
    fn a_response_of_another_request_is_a_mismatch() {
        for bytes in [
            FIRST.replace("/a", "/b"),
            format!("{FIRST}{SECOND}{FIRST}"),
            format!("{FIRST}{SECOND}x{FIRST}\r\n\r\n"),
            format!("{REFUSAL}{FIRST}"),
        ] {
            assert!(
                mismatch(&requests(TWO), bytes.as_bytes()).is_some(),
                "{bytes}"
            );
        }
    }
}
