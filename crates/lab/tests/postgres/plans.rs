//! Tests that a text prepared after a change of its table uses the new table on any server
//! connection.

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{ONE, Setup, TestBed, same_as_direct};
use crate::harness::DRIVERS;

const THREE: Setup<'static> = Setup {
    pool: "size = 3",
    service: "",
    tables: "",
    workers: 2,
};

/// Starts this number of clients, each with its own server connection.
fn together(bed: &TestBed, many: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..many).map(|_| bed.client()).collect();
    clients.iter_mut().for_each(|client| client.run("begin"));
    clients
}

fn end(clients: Vec<Client>) {
    for mut client in clients {
        client.run("commit");
    }
}

#[test]
fn who_prepares_a_text_behind_a_change_of_its_table_never_meets_the_plan_of_before() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, THREE);
        let mut changing = bed.client();
        changing.run("drop table if exists planned; create table planned (a int, b int)");
        changing.run("insert into planned values (1, 2)");
        let (all, one) = (
            "select * from planned",
            "select b from planned where a = $1",
        );
        let mut before = together(&bed, 3);
        for client in &mut before {
            for text in [all, one] {
                client.exchange(&prepare(text, text), 1);
            }
            client.exchange(&execute(all, &[]), 1);
        }
        end(before);
        changing.run("alter table planned add column c int, alter column a type bigint");
        let mut behind = together(&bed, 3);
        for client in &mut behind {
            assert_eq!(
                client.exchange(&prepare("s", all), 1),
                ["1", "Z InTransaction"],
                "{io}"
            );
            let received = client.exchange(&execute("s", &[]), 1);
            assert_eq!(received[1], "D 1|2|NULL", "{io}: {received:?}");
            client.exchange(&prepare("t", one), 1);
            let types = "select parameter_types from pg_prepared_statements \
                         where statement like 'select b from planned%' \
                         order by prepare_time desc limit 1";
            assert_eq!(client.value(types), "{bigint}", "{io}");
        }
        end(behind);
    }
}

#[test]
fn who_changes_a_table_prepares_of_it_what_it_is_now_in_the_same_transaction() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, THREE);
        let mut client = bed.client();
        client.run("drop table if exists planned_here; create table planned_here (a int)");
        client.run("insert into planned_here values (1)");
        let text = "select * from planned_here";
        let mut before = together(&bed, 3);
        for one in &mut before {
            one.exchange(&prepare("s", text), 1);
            one.exchange(&execute("s", &[]), 1);
        }
        end(before);
        client.run("begin; alter table planned_here add column b int");
        client.exchange(&prepare("s", text), 1);
        let received = client.exchange(&execute("s", &[]), 1);
        assert_eq!(received[1], "D 1|NULL", "{io}: {received:?}");
        client.run("rollback");
        let received = bed.client().exchange(&Script::new().query(text), 1);
        assert_eq!(received[1], "D 1", "{io}: {received:?}");
    }
}

#[test]
fn a_temporary_table_hides_the_one_of_its_name_from_whoever_prepares_behind_it() {
    let text = "select a from hidden";
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        let mut other = Client::connect(address);
        other.run("drop table if exists hidden; create table hidden (a int)");
        other.run("insert into hidden values (1)");
        // After the end of a temporary table, its connection keeps an empty schema.
        other.run("create temp table gone (a int)");
        other.run("discard temp");
        received.extend(other.exchange(&prepare("o", text), 1));
        received.extend(other.exchange(&execute("o", &[]), 1));
        for makes in [
            "create temp table hidden (a int)",
            "begin; create temp table hidden (a int) on commit drop",
            "begin; select 2 as a into temp hidden",
        ] {
            let mut client = Client::connect(address);
            received.extend(client.exchange(&prepare("before", text), 1));
            received.extend(client.exchange(&execute("before", &[]), 1));
            client.run(makes);
            client.run("insert into hidden values (3)");
            received.extend(client.exchange(&prepare("behind", text), 1));
            for name in ["behind", "before"] {
                received.extend(client.exchange(&execute(name, &[]), 1));
            }
            client.run("commit");
            for name in ["behind", "before"] {
                received.extend(client.exchange(&execute(name, &[]), 1));
            }
            client.abort(false);
        }
        received
    });
}
