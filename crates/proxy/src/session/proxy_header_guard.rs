//! Rejects PROXY headers of clients that may not send one, because the client could choose its own
//! address at the server.

use evenkeel_engine::relay::Opening;

/// Beginnings of a PROXY header in both versions (PROXY protocol specification §2.1 and §2.2).
const BEGINNINGS: [&[u8]; 2] = [b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"];

/// Allows the first bytes when they certainly do not begin a PROXY header.
pub(super) fn check(bytes: &[u8]) -> Opening {
    if BEGINNINGS.iter().any(|one| bytes.starts_with(one)) {
        return Opening::Forbidden("peer is not listed in accept_proxy_from".to_owned());
    }
    if BEGINNINGS.iter().any(|one| one.starts_with(bytes)) {
        return Opening::Undecided;
    }
    Opening::Allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_forbidden_as_soon_as_it_cannot_be_anything_else() {
        for header in BEGINNINGS {
            for length in 1..header.len() {
                assert!(matches!(check(&header[..length]), Opening::Undecided));
            }
            assert!(matches!(check(header), Opening::Forbidden(_)));
        }
        for other in [&b"PROXYING"[..], b"GET / HTTP/1.1", b"\r\n\r\n\r"] {
            assert!(matches!(check(other), Opening::Allowed), "{other:?}");
        }
    }
}
