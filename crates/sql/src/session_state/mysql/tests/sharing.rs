//! Tests that clients on shared connections see what each would see on a connection of its own.

use super::model::Model;
use super::*;

const CLIENTS: usize = 3;

const TEXTS: [&str; 42] = [
    "SELECT state",
    "SELECT state",
    "SELECT 1",
    "SELECT c FROM t",
    "SELECT LAST_INSERT_ID()",
    "SELECT LAST_INSERT_ID()",
    "SELECT LAST_INSERT_ID(77)",
    "SELECT FOUND_ROWS()",
    "SELECT FOUND_ROWS()",
    "SELECT SQL_CALC_FOUND_ROWS c FROM t LIMIT 1",
    "SHOW WARNINGS",
    "SHOW WARNINGS",
    "SELECT @a",
    "SELECT @a",
    "SELECT @a := 1",
    "SELECT GET_LOCK('L', 1)",
    "DO RELEASE_LOCK('l')",
    "SELECT RELEASE_ALL_LOCKS()",
    "INSERT INTO generated VALUES (#)",
    "INSERT INTO generated VALUES (#)",
    "INSERT INTO explicit VALUES (#)",
    "INSERT INTO warned VALUES (#)",
    "INSERT INTO twice VALUES (#)",
    "SET @a = #",
    "SET @a = 'x#'",
    "SET @A = NULL",
    "SET @b = 'it is #', sql_mode = 'ANSI#'",
    "SET sql_mode = DEFAULT",
    "SET time_zone = '+0#:00'",
    "SET time_zone = 'nonsense'",
    "SET wait_timeout = 1#",
    "SET wait_timeout = DEFAULT",
    "SET NAMES latin#",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET autocommit = 0",
    "SET autocommit = 1",
    "USE s#",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "CREATE TEMPORARY TABLE x#",
    "DROP TEMPORARY TABLE x#",
];

/// Pseudorandom numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// Fails without the code of `settings_diff` for the schema, `SET … = DEFAULT` or the insert id,
/// without `StatementResults::hold`, or without `SessionState::state_query`.
#[test]
fn clients_that_share_connections_see_what_they_would_see_on_their_own() {
    let count = std::env::var("EVENKEEL_TEST_SEEDS").map_or(300, |count| count.parse().unwrap());
    for seed in 1..=count {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let mut scene = Scene::new(CLIENTS, CLIENTS + 1);
        scene.observed_reads.note(ResultReads::ALL);
        let mut own: Vec<Model> = vec![Model::default(); CLIENTS];
        for model in &mut own {
            model.run("USE app");
        }
        let mut story = Vec::new();
        for _ in 0..60 {
            let client = dice.below(CLIENTS);
            let digit = char::from_digit(1 + dice.below(3) as u32, 10).unwrap();
            let text = TEXTS[dice.below(TEXTS.len())].replace('#', &digit.to_string());
            let direct = own[client].run(&text);
            let any = dice.below(CLIENTS + 1);
            if dice.below(4) == 0 {
                let other = dice.below(CLIENTS);
                scene.give_up(other, dice.below(CLIENTS + 1));
                let at = scene.clients[other].at;
                story.push(format!("{other} on {at}: nothing"));
            }
            let through = scene.run(client, &text, any);
            let at = scene.clients[client].at;
            story.push(format!("{client} on {at}: {text} [{}]", scene.pins(client)));
            assert_eq!(
                through.seen(),
                direct.seen(),
                "seed {seed}\n{}",
                story.join("\n")
            );
        }
    }
}

/// Information that no client has read yet costs nothing, but the first answer must be correct.
#[test]
fn the_first_who_asks_gets_nothing_of_anybody_elses() {
    let mut scene = Scene::new(2, 1);
    scene.run(0, "INSERT INTO generated VALUES (5)", 0);
    assert!(!scene.is_bound(0) && !scene.clients[0].is_held);
    scene.run(1, "INSERT INTO generated VALUES (6)", 0);
    assert_eq!(scene.run(0, "SELECT LAST_INSERT_ID()", 0).rows, ["5"]);
    assert_eq!(scene.run(1, "SELECT LAST_INSERT_ID()", 0).rows, ["6"]);
    scene.clients[0].is_held = false;
    scene.run(0, "INSERT INTO warned VALUES (7)", 0);
    scene.clients[0].is_held = false;
    assert_eq!(scene.run(1, "SHOW WARNINGS", 0).rows, [""; 0]);
}

#[test]
fn what_a_statement_leaves_alone_is_not_taken_for_ones_own() {
    let mut scene = Scene::new(2, 1);
    scene.run(0, "INSERT INTO generated VALUES (5)", 0);
    scene.run(0, "INSERT INTO warned VALUES (5)", 0);
    scene.clients[0].is_held = false;
    // This statement neither clears nor sets any such results.
    scene.run(1, "SET @a = 1", 0);
    assert_eq!(scene.run(1, "SELECT LAST_INSERT_ID()", 0).rows, ["0"]);
    assert_eq!(scene.run(1, "SHOW WARNINGS", 0).rows, [""; 0]);
    scene.clients[1].is_held = false;
    scene.run(0, "SELECT SQL_CALC_FOUND_ROWS c FROM t LIMIT 1", 0);
    scene.clients[0].is_held = false;
    scene.run(1, "SET @a = 2", 0);
    assert_eq!(scene.run(1, "SELECT FOUND_ROWS()", 0).rows, ["0"]);
    scene.clients[1].is_held = false;
    // The client is pinned to a connection that has another client's results.
    scene.run(0, "BEGIN", 0);
    assert_eq!(scene.run(0, "SELECT LAST_INSERT_ID()", 0).rows, ["5"]);
}

#[test]
fn warnings_of_another_are_gone_though_nothing_has_cleared_them() {
    let mut scene = Scene::new(2, 1);
    scene.run(0, "INSERT INTO warned VALUES (5)", 0);
    scene.clients[0].is_held = false;
    scene.run(1, "SET @a = 1", 0);
    scene.clients[1].is_held = true;
    assert_eq!(scene.run(1, "SHOW WARNINGS", 0).rows, [""; 0]);
}

/// Fails if `SessionState::restored` does not set the holder.
#[test]
fn a_connection_that_was_made_anothers_is_no_longer_as_it_was_left() {
    let mut scene = Scene::new(2, 2);
    scene.run(0, "SET @a = 1", 0);
    scene.run(1, "SET @a = 2", 1);
    assert_eq!((scene.clients[0].at, scene.clients[1].at), (0, 1));
    scene.give_up(1, 0);
    assert_eq!(scene.run(0, "SELECT @a", 0).rows, ["1"]);
}
