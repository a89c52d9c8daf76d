//! The content of the display: rows, order, filter, rates.

use crate::activity::Rates;
use crate::args::Sort;
use crate::duration::{show, show_latency};
use crate::group_report::NodeReport;
use crate::lock_row::{COLUMNS, LockRow};
use crate::output::{Printer, Table, Tone, counted, tame};
use crate::snapshot::Snapshot;
use redlock_client::NodeStanding;
use serde_json::Value;
use std::cmp::Reverse;

/// All locks and nodes of one snapshot.
#[derive(Clone, Debug)]
pub(super) struct Board {
    rows: Vec<LockRow>,
    pub(super) look: Snapshot,
    pub(super) rates: Option<Rates>,
}

/// How the user wants to see the board.
#[derive(Clone, Debug)]
pub(super) struct BoardView {
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    /// Whether key presses edit the filter.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    /// The index of the first visible row.
    pub(super) first: usize,
}

impl BoardView {
    pub(super) fn new(sort: Sort, filter: String) -> Self {
        Self { sort, is_reversed: false, filter, is_typing: false, is_paused: false, first: 0 }
    }
}

impl Board {
    pub(super) fn new(look: Snapshot, before: Option<&Board>) -> Self {
        let rows = look.rows();
        let rates = before.and_then(|before| Rates::between(&before.look.counters(), &look.counters()));
        Self { rows, look, rates }
    }

    /// The rows that match the filter, in order.
    pub(super) fn rows(&self, view: &BoardView) -> Vec<&LockRow> {
        let wanted = |row: &&LockRow| row.key.contains(&view.filter) || row.label.contains(&view.filter);
        let mut rows: Vec<&LockRow> = self.rows.iter().filter(wanted).collect();
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

    /// The number of nodes.
    pub(super) fn size(&self) -> usize {
        self.look.group.nodes.len()
    }

    /// One line for each node, with the tone for its state.
    pub(super) fn node_lines(&self) -> Vec<(String, Tone)> {
        let line = |node: &NodeReport| match &node.state {
            Ok(state) => {
                let (words, tone) = match state.standing() {
                    NodeStanding::Grants => {
                        let (locks, latency) = (counted(state.locks, "lock"), show_latency(node.latency));
                        (format!("{locks}, {} waiting, {latency}", state.waiters), Tone::Good)
                    }
                    NodeStanding::Quarantine(left) => {
                        (format!("quarantine for {}", show(left)), Tone::Doubtful)
                    }
                    standing => (format!("{}, see redlock status", standing.name()), Tone::Bad),
                };
                (format!("{}  {words}", node.node), tone)
            }
            Err(failure) => (format!("{}  {}", node.node, tame(&failure.to_string())), Tone::Bad),
        };
        self.look.group.nodes.iter().map(line).collect()
    }

    /// The rates as one line.
    pub(super) fn rate_line(&self) -> String {
        self.rates.map_or_else(
            || "rates after the next refresh".to_owned(),
            |rates| {
                format!(
                    "{:.0} grants/s, {:.0} refusals/s, {:.0} queued/s, contention {:.0} %",
                    rates.grants,
                    rates.refusals,
                    rates.waits,
                    rates.contention()
                )
            },
        )
    }

    /// The board as text, for `--once`.
    pub(super) fn lines(&self, view: &BoardView, output: Printer) -> Vec<String> {
        let mut lines: Vec<String> =
            self.node_lines().into_iter().map(|(line, tone)| output.paint(tone, &line)).collect();
        let mut table = Table::new(&COLUMNS);
        for row in self.rows(view) {
            table.row(row.cells(&row.key, self.size()));
        }
        lines.extend(table.lines(output));
        lines.extend(self.look.omission());
        lines
    }

    pub(super) fn json(&self, view: &BoardView) -> Value {
        self.look.json(self.rows(view))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_row::tests::info;
    use redlock_client::LockInfo;
    use std::collections::BTreeMap;

    fn board() -> Board {
        let mut waited_for = info(3, 20);
        waited_for.waiters = 3;
        let locks: BTreeMap<Vec<u8>, Vec<LockInfo>> = [
            (b"a".to_vec(), vec![info(1, 30)]),
            (b"b".to_vec(), vec![info(2, 10), info(2, 10)]),
            (b"c\x1b".to_vec(), vec![waited_for]),
        ]
        .into();
        Board::new(Snapshot::of(locks, vec!["one:1".into()]), None)
    }

    #[test]
    fn rows_are_sorted_by_the_chosen_column() {
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
    fn the_filter_hides_rows_and_a_cut_list_is_reported() {
        let board = board();
        assert_eq!(board.rows(&BoardView::new(Sort::Name, "a".into())).len(), 1);
        assert_eq!(
            board.rows(&BoardView::new(Sort::Name, "work".into())).len(),
            3,
            "the filter also matches labels"
        );
        assert!(board.look.omission().expect("a list that was cut").contains("one:1"));
    }
}
