//! Keeps the requests of a client on one server, by a cookie that names the server without its
//! address.

use super::keyed_hash::HashKey;
use crate::server_set::{Member, MemberSet};

/// Length of a cookie's value: 128 bits in hexadecimal digits.
const VALUE_BYTES: usize = 32;

/// Number that separates these hashes from others with the same key.
const PURPOSE: u64 = u64::from_le_bytes(*b"sticky01");

/// Values of the cookie for the servers of a snapshot.
#[derive(Debug)]
pub struct StickyServers {
    /// Values in the order of the members.
    values: Vec<u128>,
}

/// Server of a request with or without a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sticky {
    /// Index of the server that the cookie names. It may be full: the request is then queued for
    /// it.
    Server(usize),
    /// The balancing algorithm picks a server, and the answer sets the cookie.
    NewPick(NewPick),
}

/// Reason for which a cookie does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewPick {
    /// There is no cookie.
    NoCookie,
    /// The cookie names none of the servers: it was removed, the epoch or the key has changed, or
    /// the cookie is not ours.
    Unknown,
    /// The server is down, draining, or has no weight.
    Drained,
    /// The server has failed for this request.
    Failed,
}

impl StickyServers {
    /// Computes the values for the members of a snapshot. Balancers with the same key and epoch
    /// have the same values; another epoch makes all cookies unknown.
    pub fn new(key: &HashKey, members: &[Member], epoch: u64) -> StickyServers {
        let value = |member: &Member| key.hash(&[PURPOSE, member.id, epoch]);
        StickyServers {
            values: members.iter().map(value).collect(),
        }
    }

    /// Returns the cookie's value for the member of this index.
    pub fn value(&self, index: usize) -> [u8; VALUE_BYTES] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes = self.values[index].to_be_bytes();
        std::array::from_fn(|place| {
            let shift = if place % 2 == 0 { 4 } else { 0 };
            DIGITS[usize::from(bytes[place / 2] >> shift & 0xf)]
        })
    }

    /// Returns whether the cookie names one of the servers, in whatever state it is.
    pub fn knows(&self, cookie: &[u8]) -> bool {
        parsed(cookie).is_some_and(|value| self.values.contains(&value))
    }

    /// Returns the server of a request. `members` are those of the snapshot, `cookie` the value
    /// that the client sent, and `tried` the servers that have failed for the request.
    ///
    /// A server is kept while it takes clients, even if it is a backup server and others are up
    /// again.
    pub fn decide(&self, members: &[Member], cookie: Option<&[u8]>, tried: &MemberSet) -> Sticky {
        let Some(cookie) = cookie else {
            return Sticky::NewPick(NewPick::NoCookie);
        };
        let mut why = NewPick::Unknown;
        let Some(value) = parsed(cookie) else {
            return Sticky::NewPick(why);
        };
        // An address may be listed twice.
        let same = (0..members.len()).filter(|&index| self.values.get(index) == Some(&value));
        for index in same {
            if tried.contains(index) {
                why = NewPick::Failed;
            } else if members[index].takes_clients() {
                return Sticky::Server(index);
            } else {
                why = NewPick::Drained;
            }
        }
        Sticky::NewPick(why)
    }
}

/// Reads a value. Only the form that [`StickyServers::value`] writes is one.
fn parsed(cookie: &[u8]) -> Option<u128> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if cookie.len() != VALUE_BYTES || !cookie.iter().all(is_digit) {
        return None;
    }
    let text = std::str::from_utf8(cookie).ok()?;
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Load;

    fn member(id: u64) -> Member {
        Member {
            id,
            weight: 10,
            backup: false,
            accepting: true,
            load: Arc::new(Load::new(None)),
        }
    }

    fn members() -> Vec<Member> {
        [7, 8, 9].map(member).into()
    }

    fn servers(members: &[Member]) -> StickyServers {
        StickyServers::new(&HashKey::new([3; 16]), members, 1)
    }

    fn decided(members: &[Member], cookie: &[u8]) -> Sticky {
        servers(members).decide(members, Some(cookie), &MemberSet::none())
    }

    #[test]
    fn the_value_of_a_server_leads_back_to_it_whatever_its_place_in_the_list() {
        let mut members = members();
        let values: Vec<_> = (0..3).map(|index| servers(&members).value(index)).collect();
        for (index, value) in values.iter().enumerate() {
            assert_eq!(decided(&members, value), Sticky::Server(index));
        }
        members.reverse();
        assert_eq!(decided(&members, &values[0]), Sticky::Server(2));
        members.pop();
        let unknown = Sticky::NewPick(NewPick::Unknown);
        assert_eq!(decided(&members, &values[0]), unknown, "it was removed");
    }

    #[test]
    fn another_key_or_epoch_gives_other_values_and_a_value_shows_no_identity() {
        let members = members();
        let value = |key, epoch| {
            let key = HashKey::new([key; 16]);
            StickyServers::new(&key, &members, epoch).value(0)
        };
        assert_eq!(value(3, 1), value(3, 1));
        assert_ne!(value(3, 1), value(4, 1));
        assert_ne!(value(3, 1), value(3, 2));
        assert_eq!(
            decided(&members, &value(3, 2)),
            Sticky::NewPick(NewPick::Unknown)
        );
    }

    #[test]
    fn only_the_exact_form_is_a_value() {
        let members = members();
        let value = servers(&members).value(0);
        let text = String::from_utf8(value.to_vec()).expect("ASCII");
        let wrong = [
            String::new(),
            text.to_uppercase(),
            format!("{text}0"),
            text[1..].to_owned(),
            format!("+{}", &text[1..]),
            "g".repeat(32),
        ];
        for cookie in wrong {
            let decided = decided(&members, cookie.as_bytes());
            assert_eq!(decided, Sticky::NewPick(NewPick::Unknown), "{cookie}");
        }
    }

    #[test]
    fn a_server_that_takes_no_clients_or_has_failed_is_replaced() {
        let mut members = members();
        let sticky = servers(&members);
        let value = sticky.value(1);
        members[1].accepting = false;
        assert_eq!(decided(&members, &value), Sticky::NewPick(NewPick::Drained));
        members[1].accepting = true;
        members[1].weight = 0;
        assert_eq!(decided(&members, &value), Sticky::NewPick(NewPick::Drained));
        members[1].weight = 10;
        let mut tried = MemberSet::none();
        tried.insert(1);
        let decided = sticky.decide(&members, Some(&value), &tried);
        assert_eq!(decided, Sticky::NewPick(NewPick::Failed));
        let none = sticky.decide(&members, None, &tried);
        assert_eq!(none, Sticky::NewPick(NewPick::NoCookie));
    }

    #[test]
    fn a_full_server_is_kept_and_one_that_is_listed_twice_serves_under_both_entries() {
        let mut members = vec![member(7), member(7), member(8)];
        members[1].load.set_max_connections(Some(0));
        let value = servers(&members).value(0);
        assert_eq!(decided(&members, &value), Sticky::Server(0));
        members[0].accepting = false;
        assert_eq!(decided(&members, &value), Sticky::Server(1));
    }
}
