//! What must hold for any bytes given to the readers of GTIDs and log positions.

use evenkeel_wire::gtid::{ParseError, mariadb, mysql};
use evenkeel_wire::lsn;

/// Panics if reading `bytes` breaks a promise.
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
        Err(fault) => assert!(fault.at <= bytes.len(), "{fault}"),
    }
}

/// A fault lies within the text, and nothing follows it.
fn check_end<T>(bytes: &[u8], read: impl Iterator<Item = Result<T, ParseError>>) {
    let mut ended = false;
    for one in read {
        assert!(!ended, "goes on after a fault");
        if let Err(fault) = one {
            assert!(fault.at <= bytes.len(), "{fault}");
            ended = true;
        }
    }
}

/// What was read, written the way servers write it, reads the same.
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
