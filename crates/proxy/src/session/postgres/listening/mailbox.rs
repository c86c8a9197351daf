//! Passes what the shared connection receives to one session, from any worker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use evenkeel_engine::panics::lock;

/// Maximum length of the notifications that wait for one client.
pub(super) const WAITING_LENGTH_MAX: usize = 4 * 1024 * 1024;

/// Messages of the shared connection for one session.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    waker: Option<Waker>,
    /// Notifications as the server has sent them.
    notifications: VecDeque<Arc<[u8]>>,
    /// Length of the notifications.
    length: usize,
    /// Answer to a LISTEN: whether the shared connection listens.
    answer: Option<bool>,
    end: Option<ListeningEnd>,
}

/// Reason why a session receives no further notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListeningEnd {
    /// The shared connection was lost, and notifications with it.
    Lost,
    /// More than [`WAITING_LENGTH_MAX`] wait for the client.
    Overflow,
}

impl Mailbox {
    /// Forgets the answer to an earlier LISTEN.
    pub(super) fn begin(&self) {
        lock(&self.inbox).answer = None;
    }

    /// Adds a notification.
    pub(super) fn notify(&self, notification: &Arc<[u8]>) {
        let mut inbox = lock(&self.inbox);
        if inbox.end.is_some() {
            return;
        }
        inbox.length += notification.len();
        if inbox.length > WAITING_LENGTH_MAX {
            inbox.end(ListeningEnd::Overflow);
        } else {
            inbox.notifications.push_back(Arc::clone(notification));
        }
        inbox.wake();
    }

    /// Reports whether the shared connection listens on the channels of a LISTEN from now on.
    pub(super) fn answer(&self, is_listening: bool) {
        let mut inbox = lock(&self.inbox);
        inbox.answer = Some(is_listening);
        inbox.wake();
    }

    /// Reports that no notifications follow.
    pub(super) fn lose(&self) {
        let mut inbox = lock(&self.inbox);
        inbox.end.get_or_insert(ListeningEnd::Lost);
        inbox.wake();
    }

    /// Polls for the answer to the LISTEN.
    pub(super) fn poll_answer(&self, context: &Context<'_>) -> Poll<bool> {
        let mut inbox = lock(&self.inbox);
        match inbox.answer.take() {
            Some(is_listening) => Poll::Ready(is_listening),
            None => inbox.wait(context),
        }
    }

    /// Polls for notifications, and adds them to `out`. The error is reported after all that
    /// precedes it.
    pub(super) fn poll_notifications(
        &self,
        out: &mut Vec<u8>,
        context: &Context<'_>,
    ) -> Poll<Result<(), ListeningEnd>> {
        let mut inbox = lock(&self.inbox);
        if inbox.notifications.is_empty() {
            return match inbox.end {
                Some(end) => Poll::Ready(Err(end)),
                None => inbox.wait(context),
            };
        }
        inbox.length = 0;
        for notification in inbox.notifications.drain(..) {
            out.extend_from_slice(&notification);
        }
        Poll::Ready(Ok(()))
    }
}

impl Inbox {
    fn end(&mut self, end: ListeningEnd) {
        self.end = Some(end);
        self.notifications.clear();
        self.length = 0;
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            waker => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn poll(mailbox: &Mailbox) -> Poll<Result<Vec<u8>, ListeningEnd>> {
        let mut out = Vec::new();
        let polled = mailbox.poll_notifications(&mut out, &Context::from_waker(Waker::noop()));
        polled.map_ok(|()| out)
    }

    #[test]
    fn notifications_arrive_in_order_and_before_the_end() {
        let mailbox = Mailbox::default();
        assert_eq!(poll(&mailbox), Poll::Pending);
        mailbox.notify(&Arc::from(&b"first "[..]));
        mailbox.notify(&Arc::from(&b"second"[..]));
        mailbox.lose();
        assert_eq!(poll(&mailbox), Poll::Ready(Ok(b"first second".to_vec())));
        assert_eq!(poll(&mailbox), Poll::Ready(Err(ListeningEnd::Lost)));
    }

    #[test]
    fn a_client_that_reads_nothing_is_ended_at_the_limit() {
        let mailbox = Mailbox::default();
        let half: Arc<[u8]> = vec![0; WAITING_LENGTH_MAX / 2].into();
        for _ in 0..3 {
            mailbox.notify(&half);
            mailbox.notify(&half);
            assert_eq!(poll(&mailbox), Poll::Ready(Ok(vec![0; WAITING_LENGTH_MAX])));
        }
        (0..3).for_each(|_| mailbox.notify(&half));
        assert_eq!(poll(&mailbox), Poll::Ready(Err(ListeningEnd::Overflow)));
    }
}
