//! Tests of a service of `protocol = "mysql"` with a real MariaDB: clients of a pool see the same
//! as on their own server.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

#[path = "mysql/address_reuse.rs"]
mod address_reuse;
#[path = "mysql/ahead.rs"]
mod ahead;
#[path = "mysql/applications.rs"]
mod applications;
#[path = "mysql/asked.rs"]
mod asked;
#[path = "mysql/baked.rs"]
mod baked;
#[path = "mysql/bulk.rs"]
mod bulk;
#[path = "mysql/causal.rs"]
mod causal;
#[path = "mysql/causes.rs"]
mod causes;
#[path = "mysql/client.rs"]
mod client;
#[path = "mysql/commands.rs"]
mod commands;
#[path = "mysql/console.rs"]
mod console;
#[path = "mysql/departed.rs"]
mod departed;
#[path = "mysql/digests.rs"]
mod digests;
#[path = "mysql/encryption.rs"]
mod encryption;
#[path = "mysql/first_command.rs"]
mod first_command;
#[path = "mysql/full.rs"]
mod full;
#[path = "mysql/globals.rs"]
mod globals;
#[path = "mysql/habits.rs"]
mod habits;
#[path = "mysql/handover.rs"]
mod handover;
#[path = "mysql/held_up.rs"]
mod held_up;
#[path = "mysql/ids.rs"]
mod ids;
#[path = "mysql/killed.rs"]
mod killed;
#[path = "mysql/large.rs"]
mod large;
#[path = "mysql/leftover_state.rs"]
mod leftover_state;
#[path = "mysql/limits.rs"]
mod limits;
#[path = "mysql/lines.rs"]
mod lines;
#[path = "mysql/login_limits.rs"]
mod login_limits;
#[path = "mysql/login_source.rs"]
mod login_source;
#[path = "mysql/logins.rs"]
mod logins;
#[path = "mysql/lost.rs"]
mod lost;
#[path = "mysql/mariadb_11.rs"]
mod mariadb_11;
#[path = "mysql/pins.rs"]
mod pins;
#[path = "mysql/pools.rs"]
mod pools;
#[path = "mysql/random.rs"]
mod random;
#[path = "mysql/replication.rs"]
mod replication;
#[path = "mysql/results.rs"]
mod results;
#[path = "mysql/routines.rs"]
mod routines;
#[path = "mysql/row_counts.rs"]
mod row_counts;
#[path = "mysql/rules.rs"]
mod rules;
#[path = "mysql/semisync.rs"]
mod semisync;
#[path = "mysql/settings.rs"]
mod settings;
#[path = "mysql/sha2.rs"]
mod sha2;
#[path = "mysql/shutdown.rs"]
mod shutdown;
#[path = "mysql/split.rs"]
mod split;
#[path = "mysql/stage.rs"]
mod stage;
#[path = "mysql/statements.rs"]
mod statements;
#[path = "mysql/trackers.rs"]
mod trackers;
#[path = "mysql/triggers.rs"]
mod triggers;
#[path = "mysql/types.rs"]
mod types;
#[path = "mysql/upgrade.rs"]
mod upgrade;
