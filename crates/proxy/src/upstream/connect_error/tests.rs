//! Tests the texts for clients.

use std::sync::Arc;

use evenkeel_policy::load::Load;

use super::*;

fn refused(number: u16, sqlstate: [u8; 5], text: &str) -> ConnectError {
    let server = Server::new(1, "db1:1".into(), Arc::new(Load::new(None)), 1);
    let code = ErrorCode { number, sqlstate };
    ConnectError::refused(&server, ConnectErrorKind::Refused, code, text)
}

/// TO SEE THIS RED: let [`ConnectError::client_message`] always return the message.
#[test]
fn a_client_reads_about_an_unknown_database_as_from_the_server() {
    let unknown = "database \"nix\" does not exist";
    let error = refused(0, *b"3D000", unknown);
    assert_eq!(error.client_message(), unknown);
    assert_eq!(error.message, format!("server db1:1: {unknown}"));
    let unknown = "Unknown database 'nix'";
    assert_eq!(refused(1049, *b"42000", unknown).client_message(), unknown);
}

#[test]
fn a_client_reads_which_server_refuses_its_account() {
    let error = refused(0, *b"28000", "no pg_hba.conf entry");
    assert_eq!(error.client_message(), "server db1:1: no pg_hba.conf entry");
}
