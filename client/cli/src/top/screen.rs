//! Draws the board on the terminal, and restores the terminal at the end.

use super::board::{Board, BoardView};
use crate::args::Sort;
use crate::duration::show;
use crate::exit::ExitError;
use crate::output::Tone;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

/// The terminal in full-screen mode. Dropping this restores it; a panic restores it, too, before it prints its message.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    is_colored: bool,
}

impl Screen {
    pub(super) fn open(is_colored: bool) -> Result<Self, ExitError> {
        let terminal = ratatui::try_init();
        let terminal =
            terminal.map_err(|error| ExitError::internal(format!("cannot use the terminal: {error}")))?;
        Ok(Self { terminal, is_colored })
    }

    pub(super) fn draw(&mut self, board: &Board, view: &mut BoardView) -> Result<(), ExitError> {
        let is_colored = self.is_colored;
        let drawn = self.terminal.draw(|frame| paint(frame, board, view, is_colored));
        drawn.map_err(|error| ExitError::internal(format!("cannot write to the terminal: {error}")))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn paint(frame: &mut Frame<'_>, board: &Board, view: &mut BoardView, is_colored: bool) {
    let nodes = u16::try_from(board.size()).unwrap_or(u16::MAX).min(frame.area().height / 3);
    let areas = Layout::vertical([
        Constraint::Length(nodes + 1),
        Constraint::Min(1),
        Constraint::Length(u16::from(board.look.omission().is_some())),
        Constraint::Length(1),
    ]);
    let [head, list, omission, foot] = areas.areas(frame.area());
    let tint = |tone: Tone| if is_colored { Style::new().fg(color(tone)) } else { Style::new() };
    let mut lines: Vec<Line<'_>> = board
        .node_lines()
        .into_iter()
        .map(|(line, tone)| Line::from(Span::styled(line, tint(tone))))
        .collect();
    lines.truncate(usize::from(nodes));
    lines.push(Line::from(board.rate_line()));
    frame.render_widget(Paragraph::new(lines), head);
    paint_locks(frame, list, board, view, &tint);
    if let Some(text) = board.look.omission() {
        frame.render_widget(Paragraph::new(Span::styled(text, tint(Tone::Doubtful))), omission);
    }
    frame.render_widget(Paragraph::new(footer(view)), foot);
}

fn paint_locks(
    frame: &mut Frame<'_>,
    area: Rect,
    board: &Board,
    view: &mut BoardView,
    tint: &dyn Fn(Tone) -> Style,
) {
    let rows = board.rows(view);
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    // Do not scroll past the end.
    view.first = view.first.min(rows.len().saturating_sub(room));
    let shown = rows.iter().skip(view.first).take(room).map(|row| {
        let style = if row.is_held { Style::new() } else { tint(Tone::Doubtful) };
        let cells = [
            row.key.clone(),
            row.fence.to_string(),
            format!("{}/{}", row.holders, board.size()),
            show(row.left),
            show(row.age),
            row.waiters.to_string(),
            row.label.clone(),
        ];
        Row::new(cells).style(style)
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(12),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Fill(1),
    ];
    let heading = Row::new(["key", "fence", "nodes", "left", "age", "waiters", "label"])
        .style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(shown, widths).header(heading), area);
}

fn footer(view: &BoardView) -> String {
    if view.is_typing {
        return format!("filter: {}_   Enter keeps it, Esc clears it", view.filter);
    }
    let by = match view.sort {
        Sort::Name => "name",
        Sort::Left => "time left",
        Sort::Age => "age",
        Sort::Waiters => "waiters",
        Sort::Holders => "holders",
    };
    let order = if view.is_reversed { ", reversed" } else { "" };
    let filter = if view.filter.is_empty() { String::new() } else { format!(", filter {:?}", view.filter) };
    let paused = if view.is_paused { " PAUSED" } else { "" };
    format!("by {by}{order}{filter}{paused}   n l a w h sort, r reverses, / filters, p pauses, q quits")
}

fn color(tone: Tone) -> Color {
    match tone {
        Tone::Good => Color::Green,
        Tone::Bad => Color::Red,
        Tone::Doubtful => Color::Yellow,
        Tone::Strong | Tone::Faint => Color::Reset,
    }
}
