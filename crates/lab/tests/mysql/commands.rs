//! Tests of every command, in the clients' dialects: the answers equal the server's.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frontend::Code;

use super::client::{Client, Login, USUAL};
use super::stage::{ONE, Setup, TestBed, same_as_direct};
use crate::harness::{DRIVERS, printed};

/// A pool of two, one of which may be pinned.
const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    ..ONE
};

/// Capabilities of clients of different ages.
fn dialects() -> [(&'static str, Capabilities); 4] {
    [
        ("usual", USUAL),
        ("with EOF", USUAL.without(Capabilities::DEPRECATE_EOF)),
        ("tracking", USUAL.with(Capabilities::SESSION_TRACK)),
        (
            "counting what is found",
            USUAL
                .without(Capabilities::LONG_PASSWORD)
                .with(Capabilities::FOUND_ROWS),
        ),
    ]
}

/// Runs the same conversation in each dialect.
fn in_each_dialect(
    address: SocketAddr,
    talk: impl Fn(&mut Client, &mut Client) -> Vec<String>,
) -> Vec<String> {
    let mut received = Vec::new();
    for (name, capabilities) in dialects() {
        let login = Login {
            capabilities,
            ..Login::default()
        };
        received.push(format!("--- {name}"));
        let mut client = Client::with(address, &login);
        let mut other = Client::connect(address);
        received.extend(talk(&mut client, &mut other));
    }
    received
}

#[test]
fn plain_commands_are_answered_as_at_the_server() {
    same_as_direct(ONE, |address| {
        in_each_dialect(address, |client, other| {
            let mut received = client.ping();
            received.extend(client.init_db("other"));
            received.extend(other.all(&["select database()"]));
            received.extend(client.all(&["select database()", "use sbtest", "select database()"]));
            received.extend(client.init_db("there_is_none"));
            received.extend(client.all(&[
                "select database()",
                "use nor_this",
                "select database()",
            ]));
            received.extend(client.statistics());
            received.extend(client.command(Code::SetOption, &[1, 0]));
            received.extend(client.all(&["select 1; select 2", "select 3"]));
            received.extend(client.command(Code::SetOption, &[0, 0]));
            received.extend(client.all(&["select 1; select 2"]));
            received.extend(client.command(Code::SetOption, &[7, 0]));
            received.extend(client.command(Code::Debug, &[]));
            received.extend(client.command(Code::Shutdown, &[]));
            received.extend(client.all(&["set @a = 5, time_zone = '+03:00'", "select @a"]));
            received.extend(client.reset());
            received.extend(client.all(&["select @a, @@time_zone, database()"]));
            received.extend(other.all(&["select @@time_zone"]));
            received
        })
    });
}

#[test]
fn results_of_texts_come_as_at_the_server() {
    same_as_direct(TWO, |address| {
        in_each_dialect(address, |client, other| {
            let mut received = client.all(&[
                "drop table if exists results",
                "create table results (id int auto_increment primary key, a int, b varchar(20))",
                "insert into results (a, b) values (1, 'one'), (2, null), (3, '')",
                "select * from results",
                "select * from results where a > 9",
                "update results set b = 'two' where a = 2",
                "update results set b = 'two' where a = 2",
                "update results set a = a",
                "delete from results where a > 2",
                "select 1; select 2; select 3",
                "select 1; selekt 2; select 3",
                "insert into results (a) values (7); select last_insert_id(); select row_count()",
                "set @x = 1; select @x; set @x = 2; select @x",
                "select cast('abc' as signed)",
                "show warnings",
                "do 1",
                "",
                ";",
                "-- nothing but a comment",
                "select",
                "select a b c from results",
                "select * from there_is_none",
                "selekt '€'",
                "explain select * from results",
                "show columns from results",
                "show variables like 'version_comment'",
                "select '€', _latin1 x'e4', x'00ff'",
            ]);
            received.extend(other.all(&["select count(*) from results"]));
            received.extend(client.field_list("results"));
            received.extend(client.field_list("there_is_none"));
            received
        })
    });
}

/// TO SEE THIS RED: query the server's status immediately after an error.
#[test]
fn what_went_wrong_in_one_of_several_statements_can_be_asked_for() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        // From the second time on, Evenkeel knows that clients of the service query it.
        client.all(&["selekt", "show warnings", "select last_insert_id()"]);
        let mut received = client.all(&[
            "drop table if exists wrong",
            "create table wrong (a int primary key)",
            "insert into wrong values (1); insert into wrong values (1); select 1",
            "show warnings",
            "insert into wrong values (2); select * from there_is_none",
            "get diagnostics condition 1 @told = message_text",
            "select @told",
        ]);
        received.extend(client.all(&["select cast('x' as signed)"]));
        received.extend(client.prepare("asks", "show warnings"));
        // The connection is kept for the query, even if it arrives a little later.
        std::thread::sleep(Duration::from_millis(20));
        received.extend(client.execute("asks", &[]));
        received
    });
}

#[test]
fn procedures_give_several_results_and_their_parameters() {
    same_as_direct(TWO, |address| {
        in_each_dialect(address, |client, other| {
            let mut received = client.all(&[
                "drop procedure if exists several",
                "create procedure several(in a int, out b int) \
                 begin select a; select a + 1, 'x'; set b = a * 2; end",
                "call several(4, @b)",
                "select @b",
            ]);
            received.extend(other.all(&["select @b"]));
            received.extend(client.all(&["call several(5, @b); select @b"]));
            received
        })
    });
}

#[test]
fn a_procedure_may_have_cursors_of_its_own_open_while_it_gives_results() {
    same_as_direct(TWO, |address| {
        in_each_dialect(address, |client, other| {
            let mut received = client.all(&[
                "drop procedure if exists walking",
                "create procedure walking() begin declare n int; declare gone bool default 0; \
                 declare rows cursor for select 1 union select 2; \
                 declare continue handler for not found set gone = 1; open rows; \
                 steps: loop fetch rows into n; if gone then leave steps; end if; \
                 select n; select n from dual where n > 5; end loop; close rows; end",
            ]);
            received.extend(client.prepare("walk", "call walking()"));
            received.extend(client.execute("walk", &[]));
            received.extend(client.open("walk", &[]));
            received.extend(client.all(&["call walking()", "select 'mine'"]));
            received.extend(other.all(&["select 'other'"]));
            received
        })
    });
}

#[test]
fn transactions_are_what_they_are_at_the_server() {
    same_as_direct(
        Setup {
            pool: "size = 2",
            ..ONE
        },
        |address| {
            in_each_dialect(address, |client, other| {
                let mut received = client.all(&[
                    "drop table if exists work",
                    "create table work (a int)",
                    "begin",
                    "insert into work values (1)",
                    "select * from work",
                ]);
                received.extend(other.all(&["select * from work"]));
                received.extend(client.all(&[
                    "savepoint s",
                    "insert into work values (2)",
                    "rollback to s",
                    "release savepoint s",
                    "commit",
                    "start transaction read only",
                    "insert into work values (3)",
                    "commit",
                    "start transaction with consistent snapshot",
                    "rollback",
                    "commit and chain",
                    "insert into work values (4)",
                    "rollback and no chain",
                    "set autocommit = 0",
                    "insert into work values (5)",
                ]));
                received.extend(other.all(&["select * from work"]));
                received.extend(client.all(&[
                    "commit",
                    "select * from work",
                    "set autocommit = 1",
                    "begin; insert into work values (6); commit",
                    "begin; selekt",
                    "rollback",
                    "begin",
                    "create table if not exists work (a int)",
                    "set transaction isolation level serializable",
                    "begin",
                    "select @@tx_isolation",
                    "commit",
                ]));
                received.extend(other.all(&["select * from work"]));
                received
            })
        },
    );
}

#[test]
fn a_client_s_file_is_streamed_to_the_server() {
    same_as_direct(ONE, |address| {
        in_each_dialect(address, |client, other| {
            client.file = b"1\tone\n2\ttwo\n3\tthr\xe4\xe4\n".repeat(2_000);
            let mut received = client.all(&[
                "drop table if exists files",
                "create table files (a int, b varchar(20)) character set latin1",
                "load data local infile 'mine.txt' into table files character set latin1",
                "select count(*), sum(a), max(b) from files",
                "load data local infile 'mine.txt' into table there_is_none",
            ]);
            received.extend(other.all(&["select count(*) from files"]));
            received
        })
    });
}

#[test]
fn packets_of_more_than_sixteen_megabytes_pass_both_ways() {
    let length = 17 * 1024 * 1024;
    let big = "x".repeat(length);
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        let row = client.value(&format!("select length('{big}'), '{big}'"));
        let (reply, echo) = row.split_once('|').unwrap();
        assert_eq!(reply, length.to_string(), "{io}");
        assert!(echo == big, "{io}: {} bytes", echo.len());
        // A length at which the last packet is empty.
        let edge = "y".repeat(0x00ff_ffff - "\u{3}select ''".len());
        assert!(client.value(&format!("select '{edge}'")) == edge, "{io}");
        // An unread answer pins the connection.
        drop(client);
        assert_eq!(bed.client().value("select 'after'"), "after");
    }
}

/// TO SEE THIS RED: answer before the whole text has arrived.
#[test]
fn what_stands_behind_a_question_for_the_connection_and_much_else_is_run() {
    let blanks = " ".repeat(2 * 1024 * 1024);
    let text = format!("select connection_id(){blanks}; delete from far_behind");
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.all(&[
            "drop table if exists far_behind",
            "create table far_behind (a int)",
            "insert into far_behind values (1), (2)",
        ]);
        let reply = client.query(&text);
        received.extend(reply.into_iter().filter(|line| !line.starts_with("row ")));
        received.extend(client.all(&["select count(*) from far_behind"]));
        received
    });
}

#[test]
fn many_rows_come_whole_and_in_order() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        let rows = client.query("select seq, repeat('z', seq % 300) from seq_1_to_50000");
        assert_eq!(rows.len(), 50_002, "{io}");
        for (index, row) in rows[1..=50_000].iter().enumerate() {
            let number = index + 1;
            let expected = format!("row {number}|{}", "z".repeat(number % 300));
            assert!(*row == expected, "{io}: row {number}: {row}");
        }
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_an_answer_leaves_nothing_to_the_next() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for with_reset in [true, false] {
            let mut leaver = bed.client();
            leaver.query_later("select seq, repeat('z', 300) from seq_1_to_100000");
            leaver.abort(with_reset);
            assert_eq!(bed.client().value("select 'mine'"), "mine", "{io}");
            let mut leaver = bed.client();
            leaver.run("begin");
            leaver.run("set @left = 1");
            leaver.abort(with_reset);
            let mut next = bed.client();
            assert_eq!(next.value("select @left, @@in_transaction"), "NULL|0");
        }
        bed.client().quit();
        assert_eq!(bed.client().value("select 1"), "1");
    }
}

#[test]
fn compression_is_declined_and_its_client_goes_on_without() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = Client::with(
            bed.address,
            &Login {
                capabilities: USUAL.with(Capabilities::COMPRESS),
                ..Login::default()
            },
        );
        assert!(!client.agreed.has(Capabilities::COMPRESS), "{io}");
        let long = client.value("select repeat('long', 100000)");
        assert_eq!(long.len(), 400_000, "{io}");
        let output = Command::new("mariadb")
            .args(["--no-defaults", "--compress", "-h127.0.0.1", "-N", "-B"])
            .arg(format!("-P{}", bed.address.port()))
            .args([
                "-usbtest",
                "-psbtest",
                "-e",
                "show status like 'Compression'",
            ])
            .output()
            .unwrap();
        assert_eq!(printed(&output), "Compression\tOFF\n", "{io}");
    }
}
