//! Tests of a service of `protocol = "postgres"` with a real PostgreSQL: clients of a pool see the
//! same as on their own server.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

#[path = "postgres/applications.rs"]
mod applications;
#[path = "postgres/batches.rs"]
mod batches;
#[path = "postgres/before_login.rs"]
mod before_login;
#[path = "postgres/cancels.rs"]
mod cancels;
#[path = "postgres/causes.rs"]
mod causes;
#[path = "postgres/client.rs"]
mod client;
#[path = "postgres/databases.rs"]
mod databases;
#[path = "postgres/deallocations.rs"]
mod deallocations;
#[path = "postgres/encryption.rs"]
mod encryption;
#[path = "postgres/executes.rs"]
mod executes;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/first_command.rs"]
mod first_command;
#[path = "postgres/functions.rs"]
mod functions;
#[path = "postgres/habits.rs"]
mod habits;
#[path = "postgres/leftover_state.rs"]
mod leftover_state;
#[path = "postgres/limits.rs"]
mod limits;
#[path = "postgres/listening.rs"]
mod listening;
#[path = "postgres/literals.rs"]
mod literals;
#[path = "postgres/local_parse.rs"]
mod local_parse;
#[path = "postgres/login_source.rs"]
mod login_source;
#[path = "postgres/logins.rs"]
mod logins;
#[path = "postgres/names.rs"]
mod names;
#[path = "postgres/pins.rs"]
mod pins;
#[path = "postgres/pipelines.rs"]
mod pipelines;
#[path = "postgres/plans.rs"]
mod plans;
#[path = "postgres/procedures.rs"]
mod procedures;
#[path = "postgres/process_ids.rs"]
mod process_ids;
#[path = "postgres/random.rs"]
mod random;
#[path = "postgres/replicating.rs"]
mod replicating;
#[path = "postgres/replication.rs"]
mod replication;
#[path = "postgres/rescues.rs"]
mod rescues;
#[path = "postgres/rules.rs"]
mod rules;
#[path = "postgres/script.rs"]
mod script;
#[path = "postgres/sequences.rs"]
mod sequences;
#[path = "postgres/settings.rs"]
mod settings;
#[path = "postgres/sizes.rs"]
mod sizes;
#[path = "postgres/sql_names.rs"]
mod sql_names;
#[path = "postgres/stage.rs"]
mod stage;
#[path = "postgres/statements.rs"]
mod statements;
#[path = "postgres/termination.rs"]
mod termination;
#[path = "postgres/uncertain.rs"]
mod uncertain;
#[path = "postgres/unnamed.rs"]
mod unnamed;
#[path = "postgres/unnamed_statement.rs"]
mod unnamed_statement;
#[path = "postgres/unseen.rs"]
mod unseen;
