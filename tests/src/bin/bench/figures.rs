//! Medians and tables.

/// The median of some figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// The smallest and the largest of some figures.
pub(crate) fn spread(figures: &[f64]) -> (f64, f64) {
    figures.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)))
}

/// Prints rows under a headline, columns aligned.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let gap = widths[column] - cell.chars().count();
            // Names to the left, figures to the right.
            let (before, after) = if column == 0 { (0, gap) } else { (gap, 0) };
            line += &format!("{}{cell}{}  ", " ".repeat(before), " ".repeat(after));
        }
        println!("{}", line.trim_end());
    };
    line(head.to_vec());
    line(
        widths
            .iter()
            .map(|width| "-".repeat(*width))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str)
            .collect(),
    );
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
}

/// Says whether a figure is within its target.
pub(crate) fn verdict(what: &str, figure: f64, at_most: f64) {
    let word = if figure <= at_most { "reached" } else { "MISSED" };
    println!("{word}: {what} {figure:.3}, to be at most {at_most:.2}");
}

/// As [`verdict`], for a figure that should be large.
pub(crate) fn verdict_at_least(what: &str, figure: f64, at_least: f64) {
    let word = if figure >= at_least { "reached" } else { "MISSED" };
    println!("{word}: {what} {figure:.3}, to be at least {at_least:.2}");
}
