//! Checks invariants of the parsers of GTIDs and log positions, for any bytes.

use evenkeel_wire::gtid::{ParseError, mariadb, mysql};
use evenkeel_wire::lsn;

/// Panics if parsing `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    check_end(bytes, mariadb(bytes));
    check_end(bytes, mysql(bytes));
    check_mariadb(bytes);
    check_mysql(bytes);
    match lsn::parse(bytes) {
        Ok(position) => {
            let text = lsn::display(position).to_string();
            assert_eq!(lsn::parse(text.as_bytes()), Ok(position), "{text}");
        }
        Err(fault) => assert!(fault.offset <= bytes.len(), "{fault}"),
    }
}

/// Checks that an error lies within the text, and that no item follows it.
fn check_end<T>(bytes: &[u8], read: impl Iterator<Item = Result<T, ParseError>>) {
    let mut ended = false;
    for one in read {
        assert!(!ended, "goes on after a fault");
        if let Err(fault) = one {
            assert!(fault.offset <= bytes.len(), "{fault}");
            ended = true;
        }
    }
}

/// Checks that a parsed value, written like servers write it, is parsed to the same value.
fn check_mariadb(bytes: &[u8]) {
    let Ok(all) = mariadb(bytes).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let texts = all
        .iter()
        .map(|one| format!("{}-{}-{}", one.domain, one.server, one.sequence));
    let text = texts.collect::<Vec<_>>().join(",");
    let again: Result<Vec<_>, _> = mariadb(text.as_bytes()).collect();
    assert_eq!(again, Ok(all), "{text}");
}

fn check_mysql(bytes: &[u8]) {
    let Ok(all) = mysql(bytes).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let texts = all.iter().map(|one| {
        assert!(0 < one.first && one.first <= one.last && one.uuid.len() == 36);
        let colon = if one.tag.is_empty() { "" } else { ":" };
        format!("{}:{}{colon}{}-{}", one.uuid, one.tag, one.first, one.last)
    });
    let text = texts.collect::<Vec<_>>().join(",\n");
    let again: Result<Vec<_>, _> = mysql(text.as_bytes()).collect();
    assert_eq!(again, Ok(all), "{text}");
}
