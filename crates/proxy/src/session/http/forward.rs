//! Writes the head of a request for a server: what the client's proxy, the route and the cookie of
//! the service change in it.

use std::net::IpAddr;

use evenkeel_policy::http::path::normalised;
use evenkeel_policy::http::rewrite::Rewrite;
use evenkeel_wire::http::cookie;
use evenkeel_wire::http::forwarded::append_address;
use evenkeel_wire::http::{
    KnownName, PathEdit, RequestEdit, RequestHead, WebSocketKey, write_request,
};

use super::Session;
use crate::service::http::HttpSnapshot;

/// Fields by which strangers could pose as proxies, besides those that are set.
const OF_PROXIES: [&[u8]; 4] = [
    b"X-Real-IP",
    b"Forwarded",
    b"X-Forwarded-Port",
    b"X-Forwarded-Prefix",
];

impl Session<'_> {
    /// Writes the head for a server.
    pub(super) fn write_request(
        &mut self,
        head: &RequestHead,
        bytes: &[u8],
        client: Option<IpAddr>,
    ) {
        let peer = self.peer.address.map(|peer| peer.ip().to_canonical());
        let is_proxy = client.is_some() && client != peer;
        let chain = peer
            .filter(|_| is_proxy)
            .map(|peer| addresses(head, bytes, peer));
        let host = head.authority(bytes);
        let new = [
            (
                &b"X-Forwarded-For"[..],
                chain.as_deref().unwrap_or(self.peer.text.as_bytes()),
            ),
            (b"X-Forwarded-Proto", self.scheme()),
            (b"X-Forwarded-Host", host.unwrap_or_default()),
        ];
        // A trusted proxy knows the scheme and the host that the client used.
        let is_reported = is_proxy && head.has(KnownName::XForwardedProto);
        let forwarded = if is_reported { &new[..1] } else { &new[..] };
        let action = self.exchange.action();
        let path = action
            .filter(|action| action.rewrite != Rewrite::Keep)
            .map(|action| {
                let path = head.path(bytes);
                action.rewrite.apply(path, &normalised(path)).concat()
            });
        let cookies = self.other_cookies(head, bytes);
        let mut set: Vec<_> = action.map_or(Vec::new(), |action| pairs(&action.set_request));
        let others = cookies.as_deref().filter(|cookies| !cookies.is_empty());
        set.extend(others.map(|cookies| (&b"Cookie"[..], cookies)));
        let conditions = self.original_conditions(head, bytes);
        set.extend(conditions.iter().map(|(name, value)| (*name, &**value)));
        let key = self.new_key();
        set.extend((key.iter()).map(|key| (&b"Sec-WebSocket-Key"[..], &key.text()[..])));
        let id = self.exchange.request_id.as_deref();
        set.extend(id.map(|id| (&b"X-Request-ID"[..], id.as_bytes())));
        let of_proxies = if is_proxy { &[][..] } else { &OF_PROXIES };
        let mut remove: Vec<&[u8]> = of_proxies.to_vec();
        remove.extend(cookies.as_ref().map(|_| &b"Cookie"[..]));
        // The password is Evenkeel's to verify, and not for servers.
        let auth = action.and_then(|action| action.basic_auth.as_ref());
        remove.extend(auth.map(|_| &b"Authorization"[..]));
        let removed = action.iter().flat_map(|action| &action.remove_request);
        remove.extend(removed.map(|name| name.as_bytes()));
        let edit = RequestEdit {
            path: path.as_deref().map_or(PathEdit::Keep, PathEdit::Replace),
            // RFC 9112 §3.2: a request of HTTP/1.1 has the field, even if the host is unknown.
            host: host
                .is_none()
                .then_some(self.target().service.name.as_bytes()),
            remove: &remove,
            set: &set,
            forwarded,
            upgrade: true,
            ..RequestEdit::default()
        };
        let mut out = self.worker.take_spare();
        write_request(&mut out, head, bytes, &edit);
        self.exchange.outgoing = out;
    }

    /// Returns the client's cookies without the one that names a server, which is not meant for the
    /// server. `None`: the client has sent none of that name.
    fn other_cookies(&self, head: &RequestHead, bytes: &[u8]) -> Option<Vec<u8>> {
        self.exchange.sticky.as_ref()?;
        let name = self.sticky_name()?;
        let mut cookies = Vec::new();
        let values = head.get_all(bytes, KnownName::Cookie);
        cookie::write_without(&mut cookies, values, name.as_bytes());
        Some(cookies)
    }

    /// Returns the key for an extended CONNECT, which has none (RFC 8441 §5).
    fn new_key(&self) -> Option<WebSocketKey> {
        let key = self.exchange.websocket;
        key.filter(|_| !self.client.serves_more())
    }

    fn sticky_name(&self) -> Option<String> {
        let view = self.target().service.snapshot();
        Some(view.http()?.sticky.as_ref()?.name.clone())
    }

    fn scheme(&self) -> &'static [u8] {
        match self.client.is_encrypted() {
            true => b"https",
            false => b"http",
        }
    }
}

/// Returns the value of the cookie that names a server. `None`: the service has no such cookie, or
/// the client has sent none.
pub(super) fn sticky_cookie(
    target: &HttpSnapshot,
    head: &RequestHead,
    bytes: &[u8],
) -> Option<Vec<u8>> {
    let sticky = target.sticky.as_ref()?;
    let cookies = head.get_all(bytes, KnownName::Cookie);
    cookie::find(cookies, sticky.name.as_bytes()).map(<[u8]>::to_vec)
}

/// Returns the addresses that proxies have reported, and that of the last one.
fn addresses(head: &RequestHead, bytes: &[u8], peer: IpAddr) -> Vec<u8> {
    let mut addresses = Vec::new();
    let reported = head.get_all(bytes, KnownName::XForwardedFor);
    append_address(&mut addresses, reported, peer);
    addresses
}

pub(super) fn pairs(fields: &[(String, String)]) -> Vec<(&[u8], &[u8])> {
    let pairs = fields.iter();
    pairs
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect()
}
