//! `redlock ls`: lists the held locks.

use crate::args::{CommonArgs, LsArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::lock_row::{COLUMNS, LockRow};
use crate::output::{Printer, Table, counted};
use crate::snapshot::{ScanScope, Snapshot};

/// How many steps of `SCAN` to take on each node: for a million keys.
const STEPS: usize = 1_000;

pub(crate) async fn main(common: &CommonArgs, args: &LsArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let search = ScanScope::new(config.prefix(), &args.pattern, STEPS, args.limit);
    let snapshot = Snapshot::take(&locks, &search).await?;
    let rows = snapshot.rows();
    if output.is_json {
        output.json(&snapshot.json(&rows))?;
    } else {
        text(&snapshot, &rows, *output)?;
    }
    snapshot.check_majority().map(|()| Code::Success)
}

fn text(snapshot: &Snapshot, rows: &[LockRow], output: Printer) -> Result<(), ExitError> {
    let mut headings = COLUMNS;
    headings[0] = "resource";
    let mut table = Table::new(&headings);
    for row in rows {
        table.row(row.cells(&row.resource, snapshot.group.nodes.len()));
    }
    if !rows.is_empty() {
        output.lines(&table.lines(output))?;
    }
    let held = rows.iter().map(|row| u64::from(row.is_held)).sum::<u64>();
    let on_few = u64::try_from(rows.len()).unwrap_or(u64::MAX) - held;
    let mut summary = format!("{} held", counted(held, "lock"));
    if on_few > 0 {
        summary += &format!(
            "; {on_few} on fewer than a majority of the nodes (being acquired, expiring, or left over)"
        );
    }
    output.note(&summary);
    if let Some(omission) = snapshot.omission() {
        output.note(&omission);
    }
    Ok(())
}
