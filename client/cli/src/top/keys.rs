//! What keys do.

use super::board::View;
use crate::args::Sort;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// How far Page keys move.
const PAGE: usize = 20;

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Go,
    Quit,
}

pub(super) fn press(key: KeyEvent, view: &mut View) -> Outcome {
    if key.kind == KeyEventKind::Release {
        return Outcome::Go;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') { Outcome::Quit } else { Outcome::Go };
    }
    if view.is_typing {
        type_filter(key.code, view);
        return Outcome::Go;
    }
    match key.code {
        KeyCode::Char('q') => return Outcome::Quit,
        KeyCode::Char('n') => view.sort = Sort::Name,
        KeyCode::Char('l') => view.sort = Sort::Left,
        KeyCode::Char('a') => view.sort = Sort::Age,
        KeyCode::Char('w') => view.sort = Sort::Waiters,
        KeyCode::Char('h') => view.sort = Sort::Holders,
        KeyCode::Char('r') => view.is_reversed = !view.is_reversed,
        KeyCode::Char('p' | ' ') => view.is_paused = !view.is_paused,
        KeyCode::Char('/') => view.is_typing = true,
        KeyCode::Esc => view.filter.clear(),
        KeyCode::Down => view.first = view.first.saturating_add(1),
        KeyCode::Up => view.first = view.first.saturating_sub(1),
        KeyCode::PageDown => view.first = view.first.saturating_add(PAGE),
        KeyCode::PageUp => view.first = view.first.saturating_sub(PAGE),
        KeyCode::Home => view.first = 0,
        _ => {}
    }
    Outcome::Go
}

fn type_filter(code: KeyCode, view: &mut View) {
    match code {
        KeyCode::Enter => view.is_typing = false,
        KeyCode::Esc => {
            view.filter.clear();
            view.is_typing = false;
        }
        KeyCode::Backspace => {
            view.filter.pop();
        }
        KeyCode::Char(letter) => view.filter.push(letter),
        _ => {}
    }
    view.first = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_in(keys: &str, view: &mut View) -> Outcome {
        let press = |letter| {
            let code = if letter == '\n' { KeyCode::Enter } else { KeyCode::Char(letter) };
            super::press(KeyEvent::new(code, KeyModifiers::NONE), view)
        };
        keys.chars().map(press).last().unwrap_or(Outcome::Go)
    }

    #[test]
    fn letters_sort_and_quit_unless_they_are_typed() {
        let mut view = View::new(Sort::Left, String::new());
        assert_eq!(type_in("w", &mut view), Outcome::Go);
        assert_eq!(view.sort, Sort::Waiters);
        assert_eq!(type_in("/queue", &mut view), Outcome::Go);
        assert_eq!((view.filter.as_str(), view.is_typing), ("queue", true));
        assert_eq!(type_in("\nq", &mut view), Outcome::Quit);
        assert_eq!(view.filter, "queue");
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(press(interrupt, &mut view), Outcome::Quit);
    }
}
