//! What is to be shown: rows, order, filter, rates.

use super::look::Snapshot;
use crate::args::Sort;
use crate::duration::{millis, show, show_latency};
use crate::group_report::quorum_of;
use crate::output::{Printer, Table, Tone, cell, counted, failure_json, tame, tame_bytes, toned};
use redlock_client::LockInfo;
use redlock_proto::Quorum;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// One lock, as all nodes together see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: String,
    pub(super) fence: u64,
    pub(super) label: String,
    /// For how long it has been held.
    pub(super) age: Duration,
    /// How long a majority, or as many as there are, goes on holding it.
    pub(super) left: Duration,
    /// How many nodes hold it under this fence.
    pub(super) holders: usize,
    pub(super) waiters: u64,
    /// Whether these are a majority.
    pub(super) is_held: bool,
}

/// What happens in a second, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) grants: f64,
    pub(super) refusals: f64,
    pub(super) waits: f64,
}

impl Rates {
    /// The share of requests that found the lock held, in percent.
    pub(super) fn contention(&self) -> f64 {
        let (refused, all) = (self.refusals + self.waits, self.grants + self.refusals + self.waits);
        if all > 0.0 { refused / all * 100.0 } else { 0.0 }
    }
}

/// All that is known.
#[derive(Clone, Debug)]
pub(super) struct Board {
    rows: Vec<Row>,
    pub(super) look: Snapshot,
    pub(super) rates: Option<Rates>,
}

/// What of it is to be seen.
#[derive(Clone, Debug)]
pub(super) struct BoardView {
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    /// Whether keys are letters of the filter.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    /// The first row that is seen.
    pub(super) first: usize,
}

impl BoardView {
    pub(super) fn new(sort: Sort, filter: String) -> Self {
        Self { sort, is_reversed: false, filter, is_typing: false, is_paused: false, first: 0 }
    }
}

impl Board {
    pub(super) fn new(look: Snapshot, before: Option<&Board>) -> Self {
        let quorum = quorum_of(look.nodes.len());
        let rows = look.locks.iter().filter_map(|(key, infos)| row(key, infos, quorum)).collect();
        let rates = before.and_then(|before| rates(&before.look, &look));
        Self { rows, look, rates }
    }

    /// The rows that are to be seen, in order.
    pub(super) fn rows(&self, view: &BoardView) -> Vec<&Row> {
        let wanted = |row: &&Row| row.key.contains(&view.filter) || row.label.contains(&view.filter);
        let mut rows: Vec<&Row> = self.rows.iter().filter(wanted).collect();
        match view.sort {
            Sort::Name => rows.sort_by(|one, other| one.key.cmp(&other.key)),
            Sort::Left => rows.sort_by_key(|row| row.left),
            Sort::Age => rows.sort_by_key(|row| Reverse(row.age)),
            Sort::Waiters => rows.sort_by_key(|row| Reverse(row.waiters)),
            Sort::Holders => rows.sort_by_key(|row| row.holders),
        }
        if view.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// How many nodes there are.
    pub(super) fn size(&self) -> usize {
        self.look.nodes.len()
    }

    /// What was left out, if anything, and why.
    pub(super) fn omission(&self) -> Option<String> {
        if let Some((node, words)) = self.look.refusals.first() {
            return Some(format!("not all locks are shown: {} ({node})", tame(words)));
        }
        let cut = &self.look.cut;
        (!cut.is_empty()).then(|| format!("not all locks are shown: the list of {} was cut", cut.join(", ")))
    }

    /// One line of each node, and whether it is well.
    pub(super) fn node_lines(&self) -> Vec<(String, Tone)> {
        let line = |node: &crate::group_report::NodeReport| match &node.state {
            Ok(state) if state.is_replica => (format!("{}  replica", node.node), Tone::Bad),
            Ok(state) if !state.votes() => {
                (format!("{}  non-voting, see redlock status", node.node), Tone::Bad)
            }
            Ok(state) if state.quarantine.is_zero() => {
                let latency = show_latency(node.latency);
                let locks = counted(state.locks, "lock");
                (format!("{}  {locks}, {} waiting, {latency}", node.node, state.waiters), Tone::Good)
            }
            Ok(state) => {
                (format!("{}  quarantine for {}", node.node, show(state.quarantine)), Tone::Doubtful)
            }
            Err(failure) => (format!("{}  {}", node.node, tame(&failure.to_string())), Tone::Bad),
        };
        self.look.nodes.iter().map(line).collect()
    }

    /// Rates in one line.
    pub(super) fn rate_line(&self) -> String {
        self.rates.map_or_else(
            || "rates after the next look".to_owned(),
            |rates| {
                format!(
                    "{:.0} grants/s, {:.0} refusals/s, {:.0} put in line/s, contention {:.0} %",
                    rates.grants,
                    rates.refusals,
                    rates.waits,
                    rates.contention()
                )
            },
        )
    }

    /// As text, for one look.
    pub(super) fn lines(&self, view: &BoardView, output: Printer) -> Vec<String> {
        let mut lines: Vec<String> =
            self.node_lines().into_iter().map(|(line, tone)| output.paint(tone, &line)).collect();
        let mut table = Table::new(&["key", "fence", "nodes", "left", "age", "waiters", "label"]);
        for row in self.rows(view) {
            let holders = format!("{}/{}", row.holders, self.size());
            table.row(vec![
                cell(&row.key),
                cell(row.fence.to_string()),
                if row.is_held { cell(holders) } else { toned(Tone::Doubtful, holders) },
                cell(show(row.left)),
                cell(show(row.age)),
                cell(row.waiters.to_string()),
                cell(&row.label),
            ]);
        }
        lines.extend(table.lines(output));
        lines.extend(self.omission());
        lines
    }

    pub(super) fn json(&self, view: &BoardView) -> Value {
        let row = |row: &&Row| {
            json!({
                "key": row.key,
                "fence": row.fence,
                "label": row.label,
                "held_ms": millis(row.age),
                "left_ms": millis(row.left),
                "holders": row.holders,
                "held": row.is_held,
                "waiters": row.waiters,
            })
        };
        let node = |node: &crate::group_report::NodeReport| match &node.state {
            Ok(state) => json!({
                "node": &*node.node,
                "up": true,
                "locks": state.locks,
                "waiters": state.waiters,
                "quarantine_ms": node.quarantine_ms(),
                "latency_ms": node.latency_ms(),
            }),
            Err(failure) => json!({"node": &*node.node, "up": false, "error": failure_json(failure)}),
        };
        let refusal = |(node, words): &(String, String)| json!({"node": node, "error": words});
        json!({
            "nodes": self.look.nodes.iter().map(node).collect::<Vec<_>>(),
            "locks": self.rows(view).iter().map(row).collect::<Vec<_>>(),
            "cut": self.look.cut,
            "refused": self.look.refusals.iter().map(refusal).collect::<Vec<_>>(),
        })
    }
}

/// A lock, under the fence that most nodes have it under.
fn row(key: &[u8], infos: &[LockInfo], quorum: Quorum) -> Option<Row> {
    let count = |fence: u64| infos.iter().filter(|info| info.fence == fence).count();
    let fence = infos.iter().map(|info| info.fence).max_by_key(|fence| (count(*fence), *fence))?;
    let mut alike: Vec<&LockInfo> = infos.iter().filter(|info| info.fence == fence).collect();
    alike.sort_by_key(|info| Reverse(info.left));
    let is_held = quorum.is_reached_by(alike.len());
    let left = alike.get(quorum.needed().min(alike.len()) - 1)?.left;
    Some(Row {
        key: tame_bytes(key),
        fence,
        label: alike.iter().map(|info| tame(&info.label)).find(|label| !label.is_empty()).unwrap_or_default(),
        age: alike.iter().map(|info| info.held).max().unwrap_or_default(),
        left,
        holders: alike.len(),
        waiters: infos.iter().map(|info| info.waiters).max().unwrap_or(0),
        is_held,
    })
}

/// What has happened between two looks, on the nodes that answered both.
fn rates(before: &Snapshot, now: &Snapshot) -> Option<Rates> {
    let seconds = since(before.taken, now.taken);
    let sum = |name: &str| {
        let each = before.nodes.iter().zip(&now.nodes).filter_map(|(before, now)| {
            let (before, now) = (before.numbers.get(name)?, now.numbers.get(name)?);
            // A node that has restarted counts anew.
            Some(now.checked_sub(*before).unwrap_or(*now))
        });
        each.sum::<u64>()
    };
    (seconds > 0.0).then(|| Rates {
        grants: per_second(sum("grants"), seconds),
        refusals: per_second(sum("refusals"), seconds),
        waits: per_second(sum("waits"), seconds),
    })
}

fn since(before: Instant, now: Instant) -> f64 {
    now.saturating_duration_since(before).as_secs_f64()
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn info(fence: u64, left: u64) -> LockInfo {
        let mut info = LockInfo::new(fence, "worker".into(), Duration::from_secs(left));
        info.held = Duration::from_secs(60 - left);
        info
    }

    #[test]
    fn a_lock_is_what_most_nodes_say() {
        let of_three = quorum_of(3);
        let row = row(b"job", &[info(7, 10), info(7, 20), info(9, 50)], of_three).expect("a lock");
        assert_eq!((row.fence, row.holders, row.is_held), (7, 2, true));
        assert_eq!(row.left, Duration::from_secs(10), "for as long as two hold it");
        let row = super::row(b"job", &[info(7, 10)], of_three).expect("a lock");
        assert!(!row.is_held);
        assert_eq!(super::row(b"job", &[], of_three), None);
    }

    fn board() -> Board {
        let mut waited_for = info(3, 20);
        waited_for.waiters = 3;
        let locks: BTreeMap<Vec<u8>, Vec<LockInfo>> = [
            (b"a".to_vec(), vec![info(1, 30)]),
            (b"b".to_vec(), vec![info(2, 10), info(2, 10)]),
            (b"c\x1b".to_vec(), vec![waited_for]),
        ]
        .into();
        let (nodes, cut, refusals) = (Vec::new(), vec!["one:1".into()], Vec::new());
        Board::new(Snapshot { nodes, locks, cut, refusals, taken: Instant::now() }, None)
    }

    #[test]
    fn rows_come_in_the_order_that_was_asked_for() {
        let board = board();
        let order = |sort, is_reversed| {
            let view = BoardView { is_reversed, ..BoardView::new(sort, String::new()) };
            board.rows(&view).iter().map(|row| row.key.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(Sort::Name, false), "a b c\\x1b");
        assert_eq!(order(Sort::Name, true), "c\\x1b b a");
        assert_eq!(order(Sort::Left, false), "b c\\x1b a");
        assert_eq!(order(Sort::Age, false), "b c\\x1b a");
        assert_eq!(order(Sort::Waiters, false), "c\\x1b a b");
        assert_eq!(order(Sort::Holders, false), "a c\\x1b b");
    }

    #[test]
    fn what_is_not_asked_for_is_not_shown_and_what_is_left_out_is_said() {
        let board = board();
        assert_eq!(board.rows(&BoardView::new(Sort::Name, "a".into())).len(), 1);
        assert_eq!(board.rows(&BoardView::new(Sort::Name, "work".into())).len(), 3, "labels count as well");
        assert!(board.omission().expect("it was cut").contains("one:1"));
    }

    #[test]
    fn contention_is_a_share() {
        let rates = Rates { grants: 60.0, refusals: 30.0, waits: 10.0 };
        assert!((rates.contention() - 40.0).abs() < 1e-9);
        assert!(Rates { grants: 0.0, refusals: 0.0, waits: 0.0 }.contention().abs() < 1e-9);
    }
}
