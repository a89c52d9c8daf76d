//! Handles key presses.

use super::board::BoardView;
use crate::args::Sort;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// How many rows a Page key moves.
const PAGE: usize = 20;

/// What a key press does to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPress {
    Go,
    Quit,
}

pub(super) fn press(key: KeyEvent, view: &mut BoardView) -> KeyPress {
    if key.kind == KeyEventKind::Release {
        return KeyPress::Go;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') { KeyPress::Quit } else { KeyPress::Go };
    }
    if view.is_typing {
        type_filter(key.code, view);
        return KeyPress::Go;
    }
    match key.code {
        KeyCode::Char('q') => return KeyPress::Quit,
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
    KeyPress::Go
}

fn type_filter(code: KeyCode, view: &mut BoardView) {
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

    fn type_in(keys: &str, view: &mut BoardView) -> KeyPress {
        let press = |letter| {
            let code = if letter == '\n' { KeyCode::Enter } else { KeyCode::Char(letter) };
            super::press(KeyEvent::new(code, KeyModifiers::NONE), view)
        };
        keys.chars().map(press).last().unwrap_or(KeyPress::Go)
    }

    #[test]
    fn letters_are_commands_unless_the_user_types_a_filter() {
        let mut view = BoardView::new(Sort::Left, String::new());
        assert_eq!(type_in("w", &mut view), KeyPress::Go);
        assert_eq!(view.sort, Sort::Waiters);
        assert_eq!(type_in("/queue", &mut view), KeyPress::Go);
        assert_eq!((view.filter.as_str(), view.is_typing), ("queue", true));
        assert_eq!(type_in("\nq", &mut view), KeyPress::Quit);
        assert_eq!(view.filter, "queue");
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(press(interrupt, &mut view), KeyPress::Quit);
    }
}
