//! Checks invariants for any sequence of requests and replies on a server connection.
//!
//! Each byte is one step: a request of the client or of Evenkeel, or a reply.

use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::backend::CommandTag;
use evenkeel_wire::postgres::conversation::{
    Conversation, Delivery, DueAction, LocalReply, Origin, Request, RequestToken, Sending,
};
use evenkeel_wire::postgres::server_scanner::{Event, ServerScanner, Step};

const REQUESTS: [Request; 13] = [
    Request::Query,
    Request::Parse,
    Request::Bind,
    Request::DescribeStatement,
    Request::DescribePortal,
    Request::Execute,
    Request::Close,
    Request::Flush,
    Request::Sync,
    Request::FunctionCall,
    Request::CopyData,
    Request::CopyEnd,
    Request::Terminate,
];

/// Panics if the conversation violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let mut conversation = Conversation::new();
    let mut unanswered = 0_i64;
    for (at, byte) in bytes.iter().enumerate() {
        let token = RequestToken(at as u64);
        let step = usize::from(*byte);
        match (step, REQUESTS.get(step % 16)) {
            (0..32, Some(request)) => {
                let origin = if step < 16 {
                    Origin::Client
                } else {
                    Origin::Ours
                };
                let owed = conversation.pending_count();
                if conversation.sent(*request, origin, token) == Sending::Drop {
                    assert_eq!(conversation.pending_count(), owed);
                }
                assert!(conversation.pending_count() <= owed.saturating_add(1));
            }
            (0..32, None) => {
                if conversation.add_local_reply(LocalReply::ParseComplete, token)
                    == Sending::Forward
                {
                    unanswered = unanswered.saturating_add(1);
                }
            }
            _ => {
                if !reply(&mut conversation, *byte) {
                    return;
                }
            }
        }
        while let Some(due) = conversation.due() {
            if let DueAction::Answer(..) | DueAction::AnswerDiscarded(..) = due {
                unanswered = unanswered.saturating_sub(1);
            }
        }
        assert!(unanswered >= 0, "an answer came twice");
        check_rest(&conversation, unanswered);
    }
}

fn check_rest(conversation: &Conversation, unanswered: i64) {
    assert!(!conversation.is_reply_pending() || conversation.pending_count() > 0);
    if conversation.is_quiet() {
        assert_eq!((conversation.pending_count(), unanswered), (0, 0));
        assert!(conversation.is_certain());
        assert_eq!(conversation.delivery(), Delivery::Forward);
    }
    if conversation.is_idle() {
        assert!(conversation.is_quiet());
        assert_eq!(conversation.status(), TransactionStatus::Idle);
    }
}

/// Applies one reply. Returns whether the conversation continues.
fn reply(conversation: &mut Conversation, byte: u8) -> bool {
    let error = b"E\0\0\0\x13SERROR\0C42601\0\0";
    let event = match byte % 20 {
        0 => Event::ReadyForQuery(TransactionStatus::Idle),
        1 => Event::ReadyForQuery(TransactionStatus::InTransaction),
        2 => Event::ReadyForQuery(TransactionStatus::Failed),
        3 => Event::ParseComplete,
        4 => Event::BindComplete,
        5 => Event::CloseComplete,
        6 => Event::NoData,
        7 => Event::RowDescription,
        8 => Event::ParameterDescription,
        9 => Event::CommandComplete(CommandTag(b"SELECT 1")),
        10 => Event::EmptyQuery,
        11 => Event::PortalSuspended,
        12 => Event::CopyIn,
        13 => Event::CopyOut,
        14 => Event::CopyDone,
        15 => Event::CopyBoth,
        16 => Event::FunctionResult,
        17 => Event::Notification,
        18 => Event::ParameterStatus(None),
        _ => match ServerScanner::new().next(error) {
            Step::Event { event, .. } => event,
            other => panic!("{other:?}"),
        },
    };
    conversation.reply(&event).is_ok()
}
