//! Tables and their cells.

use serde_json::{Value, json};

/// One cell of a table.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Name(String),
    Figure { value: f64, decimals: usize },
}

/// A figure, shown with this number of decimals.
pub(crate) fn figure(value: f64, decimals: usize) -> Cell {
    Cell::Figure { value, decimals }
}

impl From<&str> for Cell {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for Cell {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        figure(count as f64, 0)
    }
}

impl Cell {
    /// The text of the cell.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Figure { value, decimals } => shown(*value, *decimals),
        }
    }

    /// The cell as JSON; a figure has its exact value and its text.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Name(name) => json!(name),
            Self::Figure { value, decimals } => json!({ "value": value, "text": shown(*value, *decimals) }),
        }
    }
}

/// A figure with commas between thousands.
pub(super) fn shown(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{text}{rest}")
}

/// Prints a table with aligned columns.
pub(super) fn print(head: &[&str], rows: &[Vec<Cell>]) {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let gap = " ".repeat(widths[column] - cell.chars().count());
            // The first column is aligned left, the others right.
            line += &if column == 0 { format!("{cell}{gap}  ") } else { format!("{gap}{cell}  ") };
        }
        println!("{}", line.trim_end());
    };
    line(&head.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    line(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>());
    rows.iter().for_each(|row| line(row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_commas_between_thousands() {
        let texts =
            [(0.0, 0, "0"), (999.0, 0, "999"), (1_000.0, 0, "1,000"), (1_234_567.891, 2, "1,234,567.89")];
        for (value, decimals, text) in texts {
            assert_eq!(shown(value, decimals), text);
        }
        assert_eq!(shown(-12_345.0, 0), "-12,345");
        assert_eq!(shown(f64::NAN, 1), "–");
    }
}
