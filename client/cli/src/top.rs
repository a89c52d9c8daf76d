//! `redlock top`: the locks that are held, live.
//!
//! | file | subject |
//! |---|---|
//! | `look.rs` | asks the nodes which locks they hold, in bounded steps |
//! | `board.rs` | what is to be shown: rows, order, filter, rates |
//! | `screen.rs` | draws it |
//! | `keys.rs` | what keys do |

mod board;
mod keys;
mod look;
mod screen;

use crate::args::{CommonArgs, TopArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::output::Printer;
use crate::run::signals::Interrupts;
use board::{Board, BoardView};
use crossterm::event::{self, Event};
use keys::KeyPress;
use look::Snapshot;
use redlock_client::LockManager;
use std::io::IsTerminal;
use std::pin::Pin;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;

/// No more often than this, whatever the user says.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) async fn main(common: &CommonArgs, args: &TopArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let view = BoardView::new(args.sort, args.filter.clone().unwrap_or_default());
    if args.once {
        let board = Board::new(Snapshot::take(&locks, config.prefix(), args.limit).await?, None);
        let code = if board.look.has_majority() { Code::Success } else { Code::NoQuorum };
        if output.is_json {
            output.json(&board.json(&view))?;
        } else {
            output.lines(&board.lines(&view, *output))?;
        }
        return Ok(code);
    }
    if output.is_json || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(ExitError::usage(
            "top needs a terminal; redlock top --once prints one look, also with --json",
        ));
    }
    let interval = args.interval.max(SHORTEST_INTERVAL);
    live(&locks, &config, args.limit, interval, view, *output).await
}

async fn live(
    locks: &LockManager,
    config: &Config,
    limit: usize,
    interval: Duration,
    mut view: BoardView,
    output: Printer,
) -> Result<Code, ExitError> {
    let mut interrupts = Interrupts::listen()?;
    let look = || Snapshot::take(locks, config.prefix(), limit);
    // The first look before the screen is taken: what is wrong can still be read then.
    let mut board = tokio::select! {
        look = look() => Board::new(look?, None),
        signal = interrupts.next() => return Ok(Code::Given(signal.exit_code())),
    };
    let mut screen = screen::Screen::open(output.is_colored())?;
    let mut events = listen()?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The look under way, if there is one. Nodes may take their time; keys and signals do not wait for them.
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
                None => return Err(ExitError::internal("the terminal is gone")),
            },
            signal = interrupts.next() => return Ok(Code::Given(signal.exit_code())),
        }
    }
}

/// What a look has seen, when it is over; never, if there is none under way. Cancel safe.
async fn seen<T>(looking: &mut Option<Pin<Box<impl Future<Output = T>>>>) -> T {
    match looking {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

/// What happens at the terminal. The thread waits for the next key for ever; it ends with the process.
fn listen() -> Result<mpsc::Receiver<Event>, ExitError> {
    let (tell, events) = mpsc::channel(64);
    let listener = thread::Builder::new().name("keys".into()).spawn(move || {
        while let Ok(event) = event::read() {
            if tell.blocking_send(event).is_err() {
                return;
            }
        }
    });
    listener.map_err(|error| ExitError::internal(format!("no thread: {error}")))?;
    Ok(events)
}
