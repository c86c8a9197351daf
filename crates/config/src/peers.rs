//! Reads `[peers]`: the number of this Evenkeel instance, and the addresses of the others.

use crate::plan::{Address, INSTANCE_MAX, PeersPlan};
use crate::problem::Problems;
use crate::reader::{Entry, Table, wrong_type};
use crate::server;
use crate::setting::Settings;

const HELP: &str = "write `addresses = { \"2\" = \"10.0.0.2:5432\" }`: `instance` of the other \
                    process, and the address it listens on";

/// Reads the table.
pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> PeersPlan {
    let mut peers = PeersPlan::of(table, problems);
    for entry in table.entries("addresses", HELP, problems) {
        let number = read_number(&entry, problems);
        let address = read_address(&entry, problems);
        // All instances may have the same list, in which each ignores itself.
        if let Some((number, address)) = number.zip(address)
            && number != peers.instance
        {
            check_new(&peers, &entry, &address, problems);
            peers.addresses.insert(number, address);
        }
    }
    peers
}

fn read_number(entry: &Entry<'_>, problems: &mut Problems) -> Option<u16> {
    let number = entry.name.parse().ok();
    let number = number.filter(|number| (1..=INSTANCE_MAX).contains(&u64::from(*number)));
    if number.is_none() {
        let message = format!("`{}` is not an instance number", entry.name);
        let help = format!("a number from 1 to {INSTANCE_MAX}: `instance` of the other process");
        problems.error(&Some(entry.span.clone()), "E_RANGE", message, help);
    }
    number
}

fn read_address(entry: &Entry<'_>, problems: &mut Problems) -> Option<Address> {
    let Some(text) = entry.value.get_ref().as_str() else {
        wrong_type(entry.name, "an address", entry.value, HELP, problems);
        return None;
    };
    server::address(text, &Some(entry.value.span()), problems)
}

fn check_new(peers: &PeersPlan, entry: &Entry<'_>, address: &Address, problems: &mut Problems) {
    let other = peers.addresses.iter().find(|(_, known)| *known == address);
    if let Some((other, _)) = other {
        let message = format!(
            "instances `{other}` and `{}` have the same address",
            entry.name
        );
        let help = "each instance needs its own address";
        problems.error(
            &Some(entry.value.span()),
            "E_DUPLICATE_SERVER",
            message,
            help,
        );
    }
}
