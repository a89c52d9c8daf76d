//! What a node is owed: releases that it did not get, or could not do, until it can or they are pointless.

use super::entry::Owed;
use redlock_proto::Moment;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a node that could not do what it was asked is left alone before it is asked again to free a lock.
const PAY_AGAIN: Duration = Duration::from_millis(100);
/// How many releases are kept for a node that is away. The rest runs out by itself.
const MOST_OWED: usize = 65_536;

/// The releases that a node still has to get, oldest first.
#[derive(Default)]
pub(super) struct Debt {
    owed: VecDeque<Box<Owed>>,
    /// How many of them, from the front, are to be sent as fast as the connection takes them.
    due: usize,
    /// When all of them fall due over a connection that is up.
    pay_at: Option<Moment>,
}

impl Debt {
    /// Keeps one more, if there is room.
    pub(super) fn add(&mut self, owed: Box<Owed>, now: Moment) {
        if self.owed.len() >= MOST_OWED {
            self.owed.retain(|owed| !now.has_reached(owed.pointless_from));
            self.due = self.due.min(self.owed.len());
        }
        if self.owed.len() < MOST_OWED {
            self.owed.push_back(owed);
            self.pay_at.get_or_insert(now.plus(PAY_AGAIN));
        }
    }

    /// What is owed by now is to be sent. What is added later waits for the next time.
    pub(super) fn fall_due(&mut self) {
        self.pay_at = None;
        self.due = self.owed.len();
    }

    /// Nothing can be sent for now: the connection is gone.
    pub(super) fn wait(&mut self) {
        self.due = 0;
    }

    /// The next that is to be sent now and is not pointless by now.
    pub(super) fn next(&mut self, now: Moment) -> Option<Box<Owed>> {
        while self.due > 0 {
            self.due -= 1;
            let owed = self.owed.pop_front()?;
            if !now.has_reached(owed.pointless_from) {
                return Some(owed);
            }
        }
        None
    }

    pub(super) fn pay_at(&self) -> Option<Moment> {
        self.pay_at
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Owed> {
        self.owed.iter().map(|owed| &**owed)
    }

    /// The one that was added last.
    pub(super) fn newest(&self) -> Option<&Owed> {
        self.owed.back().map(|owed| &**owed)
    }
}
