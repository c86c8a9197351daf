//! Examples of RFC 7541, appendix C.

use super::*;

/// Field block with its fields, and the table after it with its size.
struct Example {
    block: &'static str,
    fields: &'static [&'static str],
    table: &'static [&'static str],
    size: u32,
}

#[test]
fn c_1_integers() {
    for (octets, prefix_bits, value) in [("0a", 5, 10), ("1f9a0a", 5, 1337), ("2a", 8, 42)] {
        let octets = hex(octets);
        assert_eq!(integer::read(&octets, prefix_bits), Ok((value, &[][..])));
        let mut out = Vec::new();
        integer::write(&mut out, 0, prefix_bits, value);
        assert_eq!(out, octets);
    }
}

#[test]
fn c_2_single_fields() {
    let examples = [
        Example {
            block: "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            fields: &["custom-key: custom-header"],
            table: &["custom-key: custom-header"],
            size: 55,
        },
        Example {
            block: "040c 2f73 616d 706c 652f 7061 7468",
            fields: &[":path: /sample/path"],
            table: &[],
            size: 0,
        },
        Example {
            block: "1008 7061 7373 776f 7264 0673 6563 7265 74",
            fields: &["password: secret"],
            table: &[],
            size: 0,
        },
        Example {
            block: "82",
            fields: &[":method: GET"],
            table: &[],
            size: 0,
        },
    ];
    for example in examples {
        let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
        check(&mut decoder, &example);
    }
}

fn check(decoder: &mut Decoder, example: &Example) {
    let decoded = decode(decoder, &hex(example.block));
    assert_eq!(decoded, Ok(fields(example.fields)));
    assert_eq!(entries(&decoder.table), fields(example.table));
    assert_eq!(decoder.table.size(), example.size);
}

/// Decodes the examples in their order, and encodes their fields to the same octets, where they
/// are given by `encoded`.
fn check_all(table_bytes: u32, examples: &[Example], encoded: &[&str]) {
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let mut encoder = Encoder::new();
    if table_bytes != TABLE_BYTES_DEFAULT {
        encoder.set_table_max(table_bytes);
        let mut update = Vec::new();
        encoder.begin(&mut update);
        assert_eq!(decode(&mut decoder, &update), Ok(vec![]));
    }
    for example in examples {
        check(&mut decoder, example);
    }
    for (example, octets) in examples.iter().zip(encoded) {
        let block = encode(&mut encoder, &fields(example.fields), Indexing::Incremental);
        assert_eq!(block, hex(octets));
        assert_eq!(entries(&encoder.table), fields(example.table));
    }
}

const REQUESTS_HUFFMAN: [&str; 3] = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
];

fn requests(blocks: [&'static str; 3]) -> [Example; 3] {
    [
        Example {
            block: blocks[0],
            fields: &[
                ":method: GET",
                ":scheme: http",
                ":path: /",
                ":authority: www.example.com",
            ],
            table: &[":authority: www.example.com"],
            size: 57,
        },
        Example {
            block: blocks[1],
            fields: &[
                ":method: GET",
                ":scheme: http",
                ":path: /",
                ":authority: www.example.com",
                "cache-control: no-cache",
            ],
            table: &["cache-control: no-cache", ":authority: www.example.com"],
            size: 110,
        },
        Example {
            block: blocks[2],
            fields: &[
                ":method: GET",
                ":scheme: https",
                ":path: /index.html",
                ":authority: www.example.com",
                "custom-key: custom-value",
            ],
            table: &[
                "custom-key: custom-value",
                "cache-control: no-cache",
                ":authority: www.example.com",
            ],
            size: 164,
        },
    ]
}

#[test]
fn c_3_requests_without_huffman_code() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    check_all(TABLE_BYTES_DEFAULT, &requests(blocks), &REQUESTS_HUFFMAN);
}

#[test]
fn c_4_requests_with_huffman_code() {
    let examples = requests(REQUESTS_HUFFMAN);
    check_all(TABLE_BYTES_DEFAULT, &examples, &REQUESTS_HUFFMAN);
}

/// The blocks of C.6, except one: 307 is not shorter as Huffman code, and is encoded as it is.
const RESPONSES_ENCODED: [&str; 3] = [
    RESPONSES_HUFFMAN[0],
    "4803 3330 37c1 c0bf",
    RESPONSES_HUFFMAN[2],
];

const RESPONSES_HUFFMAN: [&str; 3] = [
    "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
     919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
    "4883 640e ffc1 c0bf",
    "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
     821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
     4ee5 b106 3d50 07",
];

fn responses(blocks: [&'static str; 3]) -> [Example; 3] {
    [
        Example {
            block: blocks[0],
            fields: &[
                ":status: 302",
                "cache-control: private",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "location: https://www.example.com",
            ],
            table: &[
                "location: https://www.example.com",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "cache-control: private",
                ":status: 302",
            ],
            size: 222,
        },
        Example {
            block: blocks[1],
            fields: &[
                ":status: 307",
                "cache-control: private",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "location: https://www.example.com",
            ],
            table: &[
                ":status: 307",
                "location: https://www.example.com",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "cache-control: private",
            ],
            size: 222,
        },
        Example {
            block: blocks[2],
            fields: &[
                ":status: 200",
                "cache-control: private",
                "date: Mon, 21 Oct 2013 20:13:22 GMT",
                "location: https://www.example.com",
                "content-encoding: gzip",
                "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ],
            table: &[
                "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "content-encoding: gzip",
                "date: Mon, 21 Oct 2013 20:13:22 GMT",
            ],
            size: 215,
        },
    ]
}

#[test]
fn c_5_responses_without_huffman_code() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a \
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 \
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 \
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    check_all(256, &responses(blocks), &RESPONSES_ENCODED);
}

#[test]
fn c_6_responses_with_huffman_code() {
    check_all(256, &responses(RESPONSES_HUFFMAN), &RESPONSES_ENCODED);
}
