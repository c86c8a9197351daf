//! Outcomes of the server's messages, and local replies.

use super::*;

/// Returns the outcome of each server message, after these requests of the client with the tokens
/// 0, 1, 2…
fn outcomes(requests: &[Request], replies: &[u8]) -> Vec<ReplyOutcome> {
    let mut conversation = Conversation::new();
    for (at, request) in requests.iter().enumerate() {
        let _ = conversation.sent(*request, Origin::Client, RequestToken(at as u64));
    }
    let (mut boundaries, mut at, mut found) = (ServerScanner::new(), 0, Vec::new());
    while let Step::Event {
        passed,
        event,
        length,
    } = boundaries.next(&replies[at..])
    {
        at += passed + length;
        found.push(conversation.reply(&event).unwrap().outcome);
    }
    found
}

#[test]
fn which_statement_of_which_request_ended_well_is_told() {
    let mut replies = Vec::new();
    let to = &mut replies;
    for tag in [&b"SET"[..], b"SET"] {
        build::command_complete(to, tag);
    }
    build::ready_for_query(to, TransactionStatus::Idle);
    build::command_complete(to, b"SELECT 1");
    build::ready_for_query(to, TransactionStatus::Idle);
    build::empty(to, b'I');
    build::ready_for_query(to, TransactionStatus::Idle);
    build::empty(to, b's');
    build::command_complete(to, b"SELECT 1");
    build::ready_for_query(to, TransactionStatus::Idle);
    let requests = [
        Request::Query,
        Request::Query,
        Request::Query,
        Request::Execute,
        Request::Execute,
        Request::Sync,
    ];
    let completed = |token, nth| ReplyOutcome::Completed {
        token: RequestToken(token),
        nth,
    };
    assert_eq!(
        outcomes(&requests, &replies),
        [
            completed(0, 0),
            completed(0, 1),
            ReplyOutcome::Ready,
            completed(1, 0),
            ReplyOutcome::Ready,
            completed(2, 0),
            ReplyOutcome::Ready,
            ReplyOutcome::Suspended(RequestToken(3)),
            completed(4, 0),
            ReplyOutcome::Ready,
        ]
    );
}

#[test]
fn which_request_failed_is_told() {
    let mut replies = Vec::new();
    build::empty(&mut replies, b'1');
    let text = build::ErrorText {
        severity: "ERROR",
        sqlstate: SqlState::FEATURE_NOT_SUPPORTED,
        message: "cached plan must not change result type",
        detail: "",
        hint: "",
    };
    build::error(&mut replies, &text);
    let found = outcomes(&[Request::Parse, Request::Bind, Request::Sync], &replies);
    let failed = ReplyOutcome::Failed {
        token: Some(RequestToken(1)),
        sqlstate: SqlState::FEATURE_NOT_SUPPORTED,
    };
    assert_eq!(found, [ReplyOutcome::Parsed(RequestToken(0)), failed]);
}

#[test]
fn answers_are_written_as_a_server_would() {
    let status = TransactionStatus::InTransaction;
    for (answer, bytes) in [
        (LocalReply::ParseComplete, &b"1\0\0\0\x04"[..]),
        (LocalReply::BindComplete, b"2\0\0\0\x04"),
        (LocalReply::CloseComplete, b"3\0\0\0\x04"),
        (LocalReply::NoData, b"n\0\0\0\x04"),
        (
            LocalReply::Command("DEALLOCATE"),
            b"C\0\0\0\x0fDEALLOCATE\0",
        ),
        (
            LocalReply::Query("DEALLOCATE"),
            b"C\0\0\0\x0fDEALLOCATE\0Z\0\0\0\x05T",
        ),
    ] {
        let mut out = Vec::new();
        answer.write(&mut out, status);
        assert_eq!(out, bytes, "{answer:?}");
    }
}

#[test]
fn an_answer_may_wait_for_a_reply_that_follows_and_for_none_else() {
    let mut conversation = Conversation::new();
    let _ = conversation.add_local_reply(LocalReply::ParseComplete, RequestToken(1));
    assert!(!conversation.is_reply_pending(), "nothing else will come");
    let _ = conversation.sent(Request::Bind, Origin::Client, RequestToken(2));
    let _ = conversation.sent(Request::Sync, Origin::Client, RequestToken(3));
    let _ = conversation.add_local_reply(LocalReply::CloseComplete, RequestToken(4));
    assert!(conversation.is_reply_pending());
    let due = DueAction::Answer(LocalReply::ParseComplete, RequestToken(1));
    assert_eq!(conversation.due(), Some(due));
    assert_eq!(conversation.due(), None);
    conversation.reply(&Event::BindComplete).unwrap();
    let ready = Event::ReadyForQuery(TransactionStatus::Idle);
    conversation.reply(&ready).unwrap();
    assert!(!conversation.is_reply_pending());
    let due = DueAction::Answer(LocalReply::CloseComplete, RequestToken(4));
    assert_eq!(conversation.due(), Some(due));
    assert!(conversation.is_idle());
}

/// TO SEE THIS RED: forget the extended requests at a Query.
#[test]
fn a_query_after_requests_without_a_sync_is_within_their_batch_until_they_are_answered() {
    let mut conversation = Conversation::new();
    let send = |conversation: &mut Conversation, requests: &[Request]| {
        for request in requests {
            let _ = conversation.sent(*request, Origin::Client, RequestToken(0));
        }
        conversation.is_between_batches()
    };
    use Request::{Bind, Query, Sync};
    assert!(send(&mut conversation, &[Query, Query]));
    assert!(!send(&mut conversation, &[Bind]));
    assert!(!send(&mut conversation, &[Query, Query]));
    assert!(send(&mut conversation, &[Sync]));
    assert!(send(&mut conversation, &[Query]));
    let mut conversation = Conversation::new();
    assert!(!send(&mut conversation, &[Bind, Query]));
    for event in [
        Event::BindComplete,
        Event::CommandComplete(crate::postgres::backend::CommandTag(b"SELECT 1")),
        Event::ReadyForQuery(TransactionStatus::Idle),
    ] {
        conversation.reply(&event).unwrap();
    }
    assert!(conversation.is_between_batches());
    assert!(send(&mut conversation, &[Query, Query]));
}
