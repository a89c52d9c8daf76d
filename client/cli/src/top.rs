//! `redlock top`: shows the held locks, live.
//!
//! | file | subject |
//! |---|---|
//! | `../snapshot.rs`, `../lock_row.rs` | ask the nodes which locks they hold; the row of one lock |
//! | `board.rs` | the content: rows, order, filter, rates |
//! | `screen.rs` | draws the content on the terminal |
//! | `keys.rs` | handles key presses |

mod board;
mod keys;
mod screen;

use crate::args::{CommonArgs, TopArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::output::Printer;
use crate::run::signals::Interrupts;
use crate::snapshot::{ScanScope, Snapshot};
use board::{Board, BoardView};
use crossterm::event::{self, Event};
use keys::KeyPress;
use redlock_client::LockManager;
use std::io::IsTerminal;
use std::pin::Pin;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;

/// How many steps of `SCAN` one refresh takes on each node.
const STEPS: usize = 50;

/// The shortest interval between two refreshes.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) async fn main(common: &CommonArgs, args: &TopArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let search = ScanScope::new(config.prefix(), "*", STEPS, args.limit);
    let view = BoardView::new(args.sort, args.filter.clone().unwrap_or_default());
    if args.once {
        let board = Board::new(Snapshot::take(&locks, &search).await?, None);
        if output.is_json {
            output.json(&board.json(&view))?;
        } else {
            output.lines(&board.lines(&view, *output))?;
        }
        return board.look.check_majority().map(|()| Code::Success);
    }
    if output.is_json || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(ExitError::usage(
            "top needs a terminal; redlock top --once prints one snapshot, as JSON with --json",
        ));
    }
    let interval = args.interval.max(SHORTEST_INTERVAL);
    live(&locks, &search, interval, view, *output).await
}

async fn live(
    locks: &LockManager,
    search: &ScanScope,
    interval: Duration,
    mut view: BoardView,
    output: Printer,
) -> Result<Code, ExitError> {
    let mut interrupts = Interrupts::listen()?;
    let look = || Snapshot::take(locks, search);
    // Take the first snapshot before the screen opens, so that an error stays readable.
    let mut board = tokio::select! {
        look = look() => Board::new(look?, None),
        signal = interrupts.next() => return Ok(Code::Given(signal.exit_code())),
    };
    let mut screen = screen::Screen::open(output.is_colored())?;
    let mut events = listen()?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The snapshot in progress, if any. Keys and signals do not wait for slow nodes.
    let mut looking = None;
    loop {
        screen.draw(&board, &mut view)?;
        tokio::select! {
            _ = ticks.tick(), if looking.is_none() => {
                if !view.is_paused {
                    looking = Some(Box::pin(look()));
                }
            }
            look = seen(&mut looking) => {
                looking = None;
                let look = look?;
                if !view.is_paused {
                    board = Board::new(look, Some(&board));
                }
            }
            event = events.recv() => match event {
                Some(Event::Key(key)) => match keys::press(key, &mut view) {
                    KeyPress::Go => {}
                    KeyPress::Quit => return Ok(Code::Success),
                },
                Some(_) => {}
                None => return Err(ExitError::internal("the terminal was closed")),
            },
            signal = interrupts.next() => return Ok(Code::Given(signal.exit_code())),
        }
    }
}

/// Waits for the snapshot in progress; for ever without one. Cancel safe.
async fn seen<T>(looking: &mut Option<Pin<Box<impl Future<Output = T>>>>) -> T {
    match looking {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

/// Receives the events of the terminal. A thread reads them until the process ends.
fn listen() -> Result<mpsc::Receiver<Event>, ExitError> {
    let (tell, events) = mpsc::channel(64);
    let listener = thread::Builder::new().name("keys".into()).spawn(move || {
        while let Ok(event) = event::read() {
            if tell.blocking_send(event).is_err() {
                return;
            }
        }
    });
    listener.map_err(|error| ExitError::internal(format!("cannot start a thread: {error}")))?;
    Ok(events)
}
