//! Trailers of requests and responses.

use super::*;
use crate::http::chunked::ChunkEncoder;

fn trailers(list: &[(&str, &str)]) -> Result<String, HeadFault> {
    let mut trailers = TrailerText::new();
    trailers.begin(&HeadListLimits::default(), Underscores::Drop);
    write_to(&mut trailers, list);
    trailers.finish()?;
    let mut out = Vec::new();
    assert!(ChunkEncoder::new().finish(trailers.fields(), &mut out));
    Ok(String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn trailers_go_to_the_end_of_a_chunked_body() {
    let list = [
        ("grpc-status", "0"),
        ("x-checksum", "a b"),
        ("grpc-message", ""),
    ];
    assert_eq!(
        trailers(&list).as_deref(),
        Ok("0\r\ngrpc-status: 0\r\nx-checksum: a b\r\ngrpc-message: \r\n\r\n")
    );
    assert_eq!(trailers(&[]).as_deref(), Ok("0\r\n\r\n"));
}

#[test]
fn fields_that_are_no_trailers_are_dropped() {
    let list = [
        ("content-length", "5"),
        ("host", "x"),
        ("authorization", "x"),
        ("x_a", "x"),
        ("transfer_encoding", "chunked"),
        ("te", "trailers"),
        ("x-forwarded-for", "::1"),
        ("a", "b"),
        ("cookie", "c"),
    ];
    assert_eq!(trailers(&list).as_deref(), Ok("0\r\na: b\r\n\r\n"));
}

#[test]
fn malformed_trailers_are_refused() {
    for (list, why) in [
        ([("a", "b"), (":path", "/")], "a pseudo-field in trailers"),
        ([("a", "b"), ("A", "b")], "a name is no token in lower case"),
        (
            [("a", "b"), ("c", "\r\n")],
            "a control character in a value",
        ),
        ([("a", " b"), ("c", "d")], "a space around a value"),
        ([("connection", "a"), ("c", "d")], "a field of a connection"),
        (
            [("te", "gzip"), ("c", "d")],
            "TE has another value than trailers",
        ),
        (
            [("transfer-encoding", "chunked"), ("c", "d")],
            "a field of a connection",
        ),
    ] {
        assert_eq!(trailers(&list), Err(HeadFault::Malformed(why)));
    }
    let many: Vec<(&str, &str)> = std::iter::repeat_n(("a", "b"), 101).collect();
    let too_many = HeadFault::TooLarge(Limit::Fields(100));
    assert_eq!(trailers(&many), Err(too_many));
    assert!(trailers(&many[..100]).is_ok());
    let value = "v".repeat(32_736);
    let too_large = HeadFault::TooLarge(Limit::HeadBytes(32_768));
    assert_eq!(trailers(&[("a", &value)]), Err(too_large));
}

#[test]
fn trailers_of_a_response_are_a_block_without_pseudo_fields() {
    let mut encoder = Encoder::new();
    let mut out = Vec::new();
    let field = |name: &'static str, value: &'static str| (name.as_bytes(), value.as_bytes());
    let list = [
        field("Grpc-Status", "0"),
        field("Content-Length", "5"),
        field("Connection", "x"),
        field("a b", "x"),
        field("x", "a\nb"),
        field("X-Sum", "1"),
    ];
    assert!(write_trailers(&mut out, &mut encoder, list.into_iter()));
    let decoded = super::responses::decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &out);
    assert_eq!(decoded, ["grpc-status: 0", "x-sum: 1"]);
    // A change of the table's size waits for a block that is sent.
    encoder.set_table_max(0);
    out.clear();
    assert!(!write_trailers(
        &mut out,
        &mut encoder,
        list[1..5].iter().copied()
    ));
    assert!(out.is_empty());
    assert!(write_trailers(&mut out, &mut encoder, list.into_iter()));
    assert_eq!(out[0], 0x20);
}
