//! Tests of pipelined requests, large requests, COPY and function calls: all replies arrive
//! complete and in order.

use evenkeel_lab::eventually;

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{Setup, TestBed, same_as_direct};
use crate::harness::{DRIVERS, LIMIT};

const FEW: Setup<'static> = Setup {
    pool: "size = 2\nstatements_max = 2",
    service: "",
    tables: "",
    workers: 2,
};

#[test]
fn an_error_in_a_pipeline_ends_its_batch_and_no_other() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        for number in 0..5 {
            // The division takes place during execution, not during planning.
            let by = "case when random() < 2 then $1::int end";
            let (name, text) = (format!("s{number}"), format!("select {number} / {by}"));
            received.extend(client.exchange(&prepare(&name, &text), 1));
        }
        let mut script = Script::new();
        for round in 0..20 {
            for step in 0..4 {
                let divisor = if step == round % 7 { "0" } else { "1" };
                let name = format!("s{}", (round + step) % 5);
                script = script.bind(&name, &[divisor]).describe_portal("").execute();
            }
            script = script.sync();
        }
        received.extend(client.exchange(&script, 20));
        for number in 0..5 {
            received.extend(client.exchange(&execute(&format!("s{number}"), &["1"]), 1));
        }
        received
    });
}

#[test]
fn what_an_error_undoes_is_not_taken_for_done_by_the_batch_behind_it() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("old", "select 'old'"), 1);
        let script = Script::new()
            .parse("bad", "selekt")
            .parse("a", "select 1")
            .sync()
            .parse("b", "select 1")
            .bind("b", &[])
            .execute()
            .sync()
            .parse("a", "select 2")
            .bind("a", &[])
            .execute()
            .sync()
            .bind("bad", &[])
            .execute()
            .bind("old", &[])
            .sync()
            .bind("old", &[])
            .execute()
            .sync();
        received.extend(client.exchange(&script, 5));
        received
    });
}

#[test]
fn a_batch_of_tens_of_thousands_of_requests_is_answered() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut script = Script::new().parse("many", "select $1::int");
        for number in 0..25_000 {
            script = script.bind("many", &[&number.to_string()]).execute();
        }
        let script = script.sync();
        let mut hearing = client.another_end();
        let telling = std::thread::spawn(move || hearing.send_script(&script));
        let reply = client.reply();
        telling.join().unwrap();
        assert_eq!(reply.len(), 1 + 3 * 25_000 + 1);
        reply
    });
}

#[test]
fn thousands_of_queries_at_once_are_answered_one_by_one() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        let mut script = Script::new();
        for number in 0..3_000 {
            script = script.parse(&format!("s{number}"), "select 1").sync();
        }
        received.extend(client.exchange(&script, 3_000));
        let script = (0..3_000).fold(Script::new(), |script, number| {
            script.query(&format!("deallocate s{number}"))
        });
        received.extend(client.exchange(&script, 3_000));
        let script = (0..3_000).fold(Script::new(), |script, number| {
            script.close(&format!("s{number}")).sync()
        });
        received.extend(client.exchange(&script, 3_000));
        let script = (0..3_000).fold(Script::new(), |script, number| {
            script.query(&format!("select {number}"))
        });
        received.extend(client.exchange(&script, 3_000));
        received
    });
}

#[test]
fn flush_brings_answers_before_the_end_of_a_batch() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("known", "select 7"), 1);
        client.send_script(&Script::new().parse("s", "select 1").describe("s").flush());
        received.extend((0..3).map(|_| client.receive_message()));
        client.send_script(&Script::new().parse("t", "select 1").close("s").flush());
        received.extend((0..2).map(|_| client.receive_message()));
        client.send_script(&Script::new().bind("t", &[]).execute().flush());
        received.extend((0..3).map(|_| client.receive_message()));
        client.send_script(&Script::new().bind("known", &[]).execute().flush());
        received.extend((0..3).map(|_| client.receive_message()));
        received.extend(client.exchange(&Script::new().sync(), 1));
        client.send_script(&Script::new().bind("nothing", &[]).execute().flush());
        received.push(client.receive_message());
        received.extend(client.exchange(&Script::new().bind("t", &[]).sync(), 1));
        received.extend(client.query("select 2"));
        received
    });
}

#[test]
fn portals_go_on_where_they_were_suspended() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut received = client.query("begin");
        let script = Script::new()
            .parse("g", "select generate_series(1, 5)")
            .bind_to("p", "g", &[])
            .execute_of("p", 2)
            .sync();
        received.extend(client.exchange(&script, 1));
        let script = Script::new().describe_portal("p").execute_of("p", 2).sync();
        received.extend(client.exchange(&script, 1));
        let script = Script::new().execute_of("p", 2).close_portal("p").sync();
        received.extend(client.exchange(&script, 1));
        received.extend(client.exchange(&Script::new().execute_of("p", 2).sync(), 1));
        received.extend(client.query("rollback"));
        // Outside a transaction the portal ends with the Sync.
        let script = Script::new().bind("g", &[]).execute_of("", 2).sync();
        received.extend(client.exchange(&script, 1));
        received.extend(client.exchange(&Script::new().execute_of("", 2).sync(), 1));
        received
    });
}

#[test]
fn values_of_every_length_around_buffer_borders_come_and_go_whole() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        client.exchange(&prepare("l", "select length($1), md5($1), $1"), 1);
        let mut received = Vec::new();
        for base in [4_096_usize, 8_192, 16_384, 32_768, 65_536, 262_144] {
            for length in base - 40..base + 8 {
                let value = "v".repeat(length);
                let reply = client.exchange(&execute("l", &[&value]), 1);
                received.extend(reply.into_iter().map(|line| line.len().to_string()));
            }
        }
        received
    });
}

#[test]
fn megabytes_in_one_value_do_not_stop_either_way() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let value = "m".repeat(30_000_000);
        let script = Script::new()
            .parse("", "select length($1), $1")
            .bind("", &[&value])
            .execute()
            .sync();
        let reply = client.exchange(&script, 1);
        let mut received: Vec<String> = reply.iter().map(|line| line.len().to_string()).collect();
        received.push(client.value("select length(repeat('x', 20000000))"));
        let long = client.query("select repeat('y', 20000000) from generate_series(1, 3)");
        received.extend(long.iter().map(|line| line.len().to_string()));
        received
    });
}

fn rows(from: u32) -> String {
    let numbers = from..from + 2_000;
    numbers.map(|n| format!("{n}\trow {n}\n")).collect()
}

#[test]
fn copy_in_and_out_in_both_protocols_ends_as_at_the_server() {
    let setup = "drop table if exists copied; create table copied (a int primary key, b text)";
    let mut server = Client::connect(super::stage::shared().address);
    server.run(setup);
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        client.run("truncate copied");
        let copy = "copy copied from stdin";
        let whole = Script::new()
            .query(copy)
            .copy_data(rows(0).as_bytes())
            .copy_data(rows(2_000).as_bytes())
            .copy_done();
        let mut received = client.exchange(&whole, 1);
        received.extend(client.query("select count(*) from copied"));
        let failing = Script::new().query(copy).copy_data(rows(9_000).as_bytes());
        received.extend(client.exchange(&failing.copy_fail(), 1));
        // The server rejects the data in the middle; the rest of the data gets no reply.
        let refused = Script::new()
            .query(copy)
            .copy_data(b"1\ttwice\n")
            .copy_data(rows(20_000).as_bytes())
            .copy_done();
        received.extend(client.exchange(&refused, 1));
        received.extend(client.query("select count(*) from copied"));
        let not_begun = Script::new()
            .query("copy nowhere from stdin")
            .copy_data(rows(0).as_bytes())
            .copy_done();
        received.extend(client.exchange(&not_begun, 1));
        received.extend(client.query("select 1"));
        // The server flushes nothing while it reads; Sync follows the data.
        let extended = Script::new()
            .parse("", copy)
            .bind("", &[])
            .execute()
            .copy_data(rows(30_000).as_bytes())
            .copy_done()
            .sync();
        received.extend(client.exchange(&extended, 1));
        let early = Script::new()
            .parse("", copy)
            .bind("", &[])
            .execute()
            .flush();
        client.send_script(&early);
        received.extend((0..3).map(|_| client.receive_message()));
        let rest = Script::new().copy_data(rows(40_000).as_bytes()).copy_done();
        received.extend(client.exchange(&rest.sync(), 1));
        received.extend(client.query("copy (select * from copied order by a) to stdout"));
        received.extend(client.query("copy copied to stdout; select 'behind'"));
        let out = Script::new()
            .parse("", "copy copied to stdout")
            .bind("", &[]);
        received.extend(client.exchange(&out.execute().sync(), 1));
        let twice = Script::new()
            .query("copy copied from stdin; copy copied from stdin; select 'end'")
            .copy_data(b"50001\ta\n")
            .copy_done()
            .copy_data(b"50002\ta\n")
            .copy_done();
        received.extend(client.exchange(&twice, 1));
        received.extend(client.query("select count(*) from copied"));
        received
    });
}

#[test]
fn a_copy_that_fails_behind_an_early_sync_leaves_its_session_as_it_was() {
    let mut server = Client::connect(super::stage::shared().address);
    server.run("drop table if exists early; create table early (a int primary key)");
    server.run("drop table if exists never; create table never (a int)");
    server.run(
        "create or replace function refuses() returns trigger language plpgsql as \
         $$ begin raise exception 'no'; end $$",
    );
    server.run(
        "create trigger refuses before insert on never for each statement \
         execute function refuses()",
    );
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("s0", "select 's0'"), 1);
        let copy = |table: &str| {
            let copy = Script::new().parse("", &format!("copy {table} from stdin"));
            copy.bind("", &[]).execute().sync()
        };
        let rest = |data: &[u8]| Script::new().copy_data(data).copy_done().sync();
        for data in [&b"1\nx\n"[..], b"x\n1\n2\n", b"2\n2\n"] {
            client.send_script(&copy("early"));
            received.extend((0..3).map(|_| client.receive_message()));
            received.extend(client.exchange(&rest(data), 1));
            received.extend(client.exchange(&execute("s0", &[]), 1));
            // Batches without a pause that prepare a statement and execute it.
            let script = Script::new().close("s0").parse("s0", "select 's0'").sync();
            let script = script.bind("s0", &[]).execute().sync();
            received.extend(client.exchange(&script, 2));
        }
        // A trigger rejects the data before the first Sync is read: the server replies to both.
        client.send_script(&copy("never"));
        received.extend((0..3).map(|_| client.receive_message()));
        let script = rest(b"1\n").bind("s0", &[]).execute().sync();
        received.extend(client.exchange(&script, 3));
        received.extend(client.query("select count(*) from early"));
        // In a transaction: one that succeeds, and one that fails.
        received.extend(client.query("begin"));
        client.send_script(&copy("early"));
        received.extend((0..3).map(|_| client.receive_message()));
        received.extend(client.exchange(&rest(b"7\n8\n"), 1));
        received.extend(client.exchange(&execute("s0", &[]), 1));
        client.send_script(&copy("early"));
        received.extend((0..3).map(|_| client.receive_message()));
        received.extend(client.exchange(&rest(b"7\n"), 1));
        received.extend(client.query("rollback"));
        received.extend(client.query("select count(*) from early"));
        received
    });
}

#[test]
fn a_copy_of_which_nobody_can_tell_what_is_answered_ends_its_session() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, FEW);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("drop table if exists blind; create table blind (a int)");
        // All of it is sent before the server can report that it copies.
        let script = Script::new().parse("", "copy blind from stdin");
        let script = script.bind("", &[]).execute().sync();
        client.send_script(&script.copy_data(b"x\n").copy_done().sync());
        assert_eq!(client.reply(), ["1", "2", "G", "E 22P02", "Z Idle"], "{io}");
        assert_eq!(client.reply(), ["E 08P01", "end"], "{io}");
        assert_eq!(other.value("select count(*) from blind"), "0", "{io}");
    }
}

#[test]
fn a_client_that_dies_in_a_copy_or_a_message_leaves_nothing_behind() {
    for io in DRIVERS {
        let bed = TestBed::set_up(
            io,
            Setup {
                pool: "size = 2",
                ..Setup::default()
            },
        );
        let mut other = bed.client();
        other.run("drop table if exists half");
        other.run("create table half (a text)");
        for (number, with_reset) in [(0, true), (1, false), (2, true), (3, false), (4, true)] {
            let mut client = bed.client();
            let script = match number {
                0 | 1 => Script::new()
                    .query("copy half from stdin")
                    .copy_data(&[b'x'; 100_000]),
                2 => Script::new()
                    .query("insert into half values ('cut')")
                    .cut_short(5),
                3 => Script::new()
                    .parse("", "insert into half values ($1)")
                    .bind("", &["cut"])
                    .execute(),
                _ => Script::new()
                    .parse("", "insert into half values ($1)")
                    .bind("", &[&"c".repeat(200_000)])
                    .cut_short(1_000),
            };
            client.send_script(&script);
            if number < 2 {
                assert_eq!(client.receive_message(), "G");
            }
            client.abort(with_reset);
            assert_eq!(other.value("select count(*) from half"), "0");
        }
        // Both connections of the pool are usable again.
        let stuck = "select count(*) from pg_stat_activity where datname = current_database() \
                     and query like '%half%' and state <> 'idle' and pid <> pg_backend_pid()";
        let waited = eventually(LIMIT, "servers that are rid of it", || {
            Ok((other.value(stuck) == "0").then_some(()))
        });
        waited.unwrap();
        let mut both = [bed.client(), bed.client()];
        for client in &mut both {
            client.run("begin");
        }
        for client in &mut both {
            assert_eq!(client.value("select count(*) from half"), "0");
            client.run("commit");
        }
    }
}

#[test]
fn function_calls_and_large_objects_work() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        // abs(int4) is function 1397; one binary argument, binary result.
        let mut body = 1397_u32.to_be_bytes().to_vec();
        body.extend_from_slice(&[0, 1, 0, 1, 0, 1, 0, 0, 0, 4]);
        body.extend_from_slice(&(-5_i32).to_be_bytes());
        body.extend_from_slice(&[0, 1]);
        let mut received = client.exchange(&Script::new().message(b'F', &body), 1);
        let unknown = Script::new().message(b'F', &[0, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        received.extend(client.exchange(&unknown, 1));
        received.extend(client.query("begin"));
        received.extend(client.exchange(&Script::new().message(b'F', &body), 1));
        received.extend(client.query("commit"));
        received
    });
}

#[test]
fn malformed_messages_end_the_session_and_nobody_else_s() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, FEW);
        let mut other = bed.client();
        let broken: [&[u8]; 5] = [
            b"Q\0\0\0\x03",
            b"?\0\0\0\x04",
            b"P\0\0\0\x08abcd",
            b"p\0\0\0\x08abcd",
            b"B\0\0\0\x05x",
        ];
        for bytes in broken {
            let mut client = bed.client();
            client.send_script(&Script(bytes.to_vec()));
            let reply = client.reply();
            assert_eq!(reply, ["E 08P01", "end"], "{io}: {bytes:?}");
            other.run("select 1");
        }
    }
}

#[test]
fn batches_that_wait_for_the_one_before_go_on() {
    same_as_direct(FEW, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&Script::new().parse("s1", "select 1").sync(), 1);
        let script = Script::new()
            .parse("s3", "deallocate s1")
            .flush()
            .bind_to("p", "s3", &[])
            .execute_of("p", 0)
            .parse("", "select count(*) from pg_class where oid = 0");
        received.extend(client.exchange(&script.sync(), 1));
        println!("{received:?}");
        client.send_script(
            &Script::new()
                .parse("s1", "deallocate s1")
                .sync()
                .close("s3")
                .close("")
                .describe("")
                .close_portal("")
                .execute_of("p", 2)
                .sync()
                .describe("s1")
                .sync(),
        );
        client.send_script(&Script::new().sync().query("select 'end'"));
        for _ in 0..5 {
            received.extend(client.reply());
            println!("{received:?}");
        }
        received
    });
}

/// The settings that a session needs again after RESET ALL wait for the end of the text, and that
/// end waits for the data.
///
/// TO SEE THIS RED: let the data wait as well.
#[test]
fn data_is_copied_in_one_text_with_what_takes_settings_and_statements_away() {
    same_as_direct(FEW, |address| {
        let mut client = Client::with(address, &[("application_name", "copies")]);
        client.run("create temp table copied (a int)");
        let mut received = Vec::new();
        let copy = "copy copied from stdin";
        for before in ["reset all", "deallocate all"] {
            for text in [format!("{before}; {copy}"), format!("{copy}; {before}")] {
                // All in one write, and then with the data after CopyInResponse.
                let query = Script::new().query(&text);
                let data = Script::new().copy_data(b"1\n").copy_done();
                let whole = Script([query.0.clone(), data.0.clone()].concat());
                received.extend(client.exchange(&whole, 1));
                client.send_script(&query);
                assert!(!client.is_silent_for(LIMIT), "{text}");
                received.extend(client.exchange(&data, 1));
                received.extend(client.query("select count(*) from copied"));
                received.extend(client.query("show application_name"));
            }
        }
        received
    });
}
