//! Lists and sets of GTIDs: the forms that servers write, and every truncation of them.

use super::*;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "4E11FA47-71CA-11E1-9E33-C80AA9429563";

type Spans<'a> = Vec<(&'a str, &'a str, u64, u64)>;

fn positions(text: &str) -> Result<Vec<(u32, u32, u64)>, ParseError> {
    mariadb(text.as_bytes())
        .map(|read| read.map(|at| (at.domain, at.server, at.sequence)))
        .collect()
}

fn spans(text: &str) -> Result<Spans<'_>, ParseError> {
    mysql(text.as_bytes())
        .map(|read| read.map(|got| (got.uuid, got.tag, got.first, got.last)))
        .collect()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(read: Result<T, ParseError>, offset: usize, expected: Expected) {
    assert_eq!(read.unwrap_err(), ParseError { offset, expected });
}

#[test]
fn a_mariadb_list_is_read_position_by_position() {
    assert_eq!(positions(""), Ok(vec![]));
    assert_eq!(positions(" \n"), Ok(vec![]));
    assert_eq!(positions("0-1-100"), Ok(vec![(0, 1, 100)]));
    let two = vec![(0, 1, 100), (1, 2, 7)];
    assert_eq!(positions("0-1-100,1-2-7"), Ok(two.clone()));
    assert_eq!(positions(" 0-1-100 ,\n1-2-7 "), Ok(two));
    let largest = "4294967295-4294967295-18446744073709551615";
    assert_eq!(positions(largest), Ok(vec![(u32::MAX, u32::MAX, u64::MAX)]));
}

#[test]
fn a_malformed_mariadb_list_is_refused_where_it_goes_wrong() {
    refused(positions("x"), 0, Expected::Id);
    refused(positions("0"), 1, Expected::Dash);
    refused(positions("0-"), 2, Expected::Id);
    refused(positions("0-1"), 3, Expected::Dash);
    refused(positions("0-1-"), 4, Expected::Sequence);
    refused(positions("0-1-2,"), 6, Expected::Id);
    refused(positions("0-1-2;"), 5, Expected::CommaOrEnd);
    refused(positions("0-1-2-3"), 5, Expected::CommaOrEnd);
    refused(positions("0-4294967296-1"), 2, Expected::Id);
    refused(positions("0-1-18446744073709551616"), 4, Expected::Sequence);
    refused(positions("-1-1"), 0, Expected::Id);
    refused(positions("0-1-2,,0-1-3"), 6, Expected::Id);
}

#[test]
fn a_mysql_set_is_read_interval_by_interval() {
    assert_eq!(spans(""), Ok(vec![]));
    assert_eq!(spans(&format!("{A}:5")), Ok(vec![(A, "", 5, 5)]));
    let text = format!("{A}:1-5:7,\n{B}:2 - 3 : 9,");
    let expect = vec![(A, "", 1, 5), (A, "", 7, 7), (B, "", 2, 3), (B, "", 9, 9)];
    assert_eq!(spans(&text), Ok(expect));
}

#[test]
fn a_tag_holds_until_the_next_one() {
    let text = format!("{A}:1-3:day_1:4:6-7:_n:9,{B}:10");
    let expect = vec![
        (A, "", 1, 3),
        (A, "day_1", 4, 4),
        (A, "day_1", 6, 7),
        (A, "_n", 9, 9),
        (B, "", 10, 10),
    ];
    assert_eq!(spans(&text), Ok(expect));
}

#[test]
fn a_malformed_mysql_set_is_refused_where_it_goes_wrong() {
    refused(spans("3e11fa47"), 0, Expected::Uuid);
    refused(spans(&A.replace('-', "0")), 0, Expected::Uuid);
    refused(spans(A), 36, Expected::Colon);
    refused(spans(&format!("{A}:")), 37, Expected::Sequence);
    refused(spans(&format!("{A}:0")), 37, Expected::Sequence);
    refused(spans(&format!("{A}:1-")), 39, Expected::Sequence);
    refused(spans(&format!("{A}:3-2")), 39, Expected::HigherLast);
    refused(spans(&format!("{A}:tag")), 40, Expected::Colon);
    refused(spans(&format!("{A}:tag:")), 41, Expected::Sequence);
    refused(spans(&format!("{A}:tag:tug:1")), 41, Expected::Sequence);
    refused(spans(&format!("{A}:1 2")), 39, Expected::CommaOrEnd);
    refused(spans(&format!("{A}:*")), 37, Expected::TagOrSequence);
    refused(
        spans(&format!("{A}:18446744073709551616")),
        37,
        Expected::Sequence,
    );
    let long = "t".repeat(33);
    refused(spans(&format!("{A}:{long}:1")), 37, Expected::TagOrSequence);
}

/// No truncation of a correct text panics, returns elements that are not in the text, or continues
/// after an error.
#[test]
fn every_beginning_reads_as_a_beginning_or_is_refused_within_it() {
    let whole = format!("{A}:1-5:7:tag:12-13,\n {B}:2 - 3 : 9");
    let expect = spans(&whole).unwrap();
    for cut in 0..whole.len() {
        let mut read = mysql(&whole.as_bytes()[..cut]);
        let mut count = 0;
        while let Some(Ok(got)) = read.next() {
            assert!(count < expect.len(), "cut at {cut}");
            assert_eq!((got.uuid, got.tag, got.first), {
                let (uuid, tag, first, _) = expect[count];
                (uuid, tag, if got.first < first { got.first } else { first })
            });
            count += 1;
        }
        assert!(read.next().is_none(), "cut at {cut}");
        if let Some(Err(fault)) = mysql(&whole.as_bytes()[..cut]).find(Result::is_err) {
            assert!(fault.offset <= cut, "cut at {cut}: {fault}");
        }
    }
}

/// Bytes that a generator shuffles: every error is within the text, and no element follows an
/// error.
#[test]
fn any_bytes_end_in_a_set_or_in_one_fault() {
    let alphabet = [
        A, B, ":", "-", ",", " ", "\n", "0", "1", "19", "t_1", "*", "\u{e9}",
    ];
    let mut seed: u64 = 7;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(alphabet[(seed >> 33) as usize % alphabet.len()]);
        }
        check_promises(&text);
    }
}

fn check_promises(text: &str) {
    let mut ends = [Vec::new(), Vec::new()];
    ends[0].extend(mysql(text.as_bytes()).map(|read| read.err()));
    ends[1].extend(mariadb(text.as_bytes()).map(|read| read.err()));
    for end in &ends {
        for (index, fault) in end.iter().enumerate() {
            let Some(fault) = fault else { continue };
            assert!(fault.offset <= text.len(), "{text:?}: {fault}");
            assert_eq!(index + 1, end.len(), "{text:?} goes on after a fault");
        }
    }
}
