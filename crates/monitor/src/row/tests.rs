//! Tests the reading of values.

use super::*;

/// Returns a row as a server sends it.
pub(crate) fn row(cells: &[(&str, Option<&str>)]) -> Row {
    let owned =
        |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), (*value).map(str::to_owned));
    Row::new(cells.iter().map(owned))
}

#[test]
fn a_value_is_read_by_its_column_and_says_what_is_wrong_with_it() {
    let row = row(&[
        ("new", Some("7")),
        ("null", None),
        ("word", Some("x")),
        ("empty", Some("")),
    ]);
    assert_eq!(row.number::<u32>(&["old", "new"]), Ok(7));
    assert_eq!(row.number_or_null::<u32>(&["null"]), Ok(None));
    let wrong = |reported: Result<u32, UnexpectedValue>| reported.unwrap_err().to_string();
    assert!(wrong(row.number(&["word"])).ends_with("word is \"x\""));
    assert!(wrong(row.number(&["null"])).ends_with("null is NULL"));
    assert!(wrong(row.number(&["gone", "lost"])).ends_with("column gone or lost is missing"));
    assert!(row.flag(&["empty"]).is_err());
}

#[test]
fn a_switch_is_on_however_the_server_writes_that() {
    for (text, on) in [
        ("0", false),
        ("OFF", false),
        ("1", true),
        ("ON", true),
        ("NO_LOCK", true),
    ] {
        assert_eq!(
            row(&[("switch", Some(text))]).flag(&["switch"]),
            Ok(on),
            "{text}"
        );
    }
}

#[test]
fn a_lag_query_gives_milliseconds_or_null_and_nothing_else() {
    let lag = |value| row(&[("lag", value)]).lag_ms();
    assert_eq!(lag(Some("1234.5")), Ok(Some(1234)));
    assert_eq!(lag(Some("-3")), Ok(Some(0)));
    assert_eq!(lag(None), Ok(None));
    assert!(lag(Some("soon")).is_err());
    assert!(lag(Some("inf")).is_err());
    assert!(row(&[("a", None), ("b", None)]).lag_ms().is_err());
    assert!(only(vec![row(&[]), row(&[])]).is_err());
}
