//! The results of a part of the bench: printed at once, and stored in files.
//!
//! | file | subject |
//! |---|---|
//! | `figures.rs` | medians |
//! | `cell.rs` | tables and their cells |
//! | `chart.rs` | charts |
//! | `machine.rs` | the machine and the versions of the libraries |
//! | `load.rs` | CPU time that other programs used meanwhile |
//! | `progress.rs` | progress bars |
//! | `page.rs` | writes the tables of a page from the files of a run |

mod cell;
mod chart;
mod figures;
mod load;
mod machine;
mod page;
mod progress;

use std::path::PathBuf;

pub(crate) use cell::{Cell, figure};
pub(crate) use chart::{Bars, Chart, Lines, Series};
pub(crate) use figures::{median, quantile, ratio_of, spread};
pub(crate) use page::fill as fill_page;
pub(crate) use progress::TerminalBar;
use redlock_tests::{Brand, Flavor};
use serde_json::{Value, json};

use load::LoadWatch;

/// The report of one part of the bench.
pub(crate) struct Report {
    name: String,
    /// The folder for its files; `None` if only some pieces of the part run.
    results: Option<PathBuf>,
    server: String,
    disturbance: LoadWatch,
    sections: Vec<Section>,
}

/// Results under one title.
#[derive(Default)]
struct Section {
    name: String,
    title: String,
    tables: Vec<Value>,
    remarks: Vec<String>,
    verdicts: Vec<Value>,
    charts: Vec<String>,
}

impl Report {
    /// Begins a part. Its files go to the folder that `REDLOCK_BENCH_RESULTS` names, but only if the part is `whole`:
    /// a file always comes from one run.
    pub(crate) fn begin(part: &str, flavor: Flavor, whole: bool) -> Self {
        let name = match flavor.brand {
            Brand::Redis => part.to_owned(),
            Brand::Valkey => format!("{part}-valkey"),
        };
        let (major, minor, patch) = flavor.version;
        let server = format!("{:?} {major}.{minor}.{patch}", flavor.brand);
        println!("\n# {part}: on {server}");
        Self {
            name,
            results: whole.then(results).flatten(),
            server,
            disturbance: LoadWatch::watch(),
            sections: Vec::new(),
        }
    }

    /// Begins a section.
    pub(crate) fn section(&mut self, name: &str, title: impl Into<String>) {
        let (name, title) = (name.to_owned(), title.into());
        println!("\n{title}\n");
        self.sections.push(Section { name, title, ..Section::default() });
    }

    /// Adds a table.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<Cell>]) {
        cell::print(head, rows);
        let row = |row: &Vec<Cell>| row.iter().map(Cell::to_json).collect::<Vec<_>>();
        self.now().tables.push(json!({ "columns": head, "rows": rows.iter().map(row).collect::<Vec<_>>() }));
    }

    /// Adds a remark.
    pub(crate) fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        println!("{remark}");
        self.now().remarks.push(remark);
    }

    /// Checks a figure against an upper bound.
    pub(crate) fn at_most(&mut self, what: impl Into<String>, figure: f64, bound: f64) {
        self.judge(what.into(), figure, "at most", bound, figure <= bound);
    }

    /// Checks a figure against a lower bound.
    pub(crate) fn at_least(&mut self, what: impl Into<String>, figure: f64, bound: f64) {
        self.judge(what.into(), figure, "at least", bound, figure >= bound);
    }

    fn judge(&mut self, what: String, figure: f64, sense: &str, bound: f64, reached: bool) {
        let word = if reached { "reached" } else { "MISSED" };
        println!("{word}: {what} {figure:.3}, to be {sense} {bound:.2}");
        let verdict =
            json!({ "what": what, "figure": figure, "aim": sense, "bound": bound, "reached": reached });
        self.now().verdicts.push(verdict);
    }

    /// Draws a chart if the report writes files.
    pub(crate) fn chart(&mut self, name: &str, chart: &Chart) {
        let Some(results) = &self.results else { return };
        let file = format!("{}-{name}.svg", self.name);
        std::fs::write(results.join(&file), chart.svg()).expect("the results folder is writable");
        self.now().charts.push(file);
    }

    fn now(&mut self) -> &mut Section {
        self.sections.last_mut().expect("a section was begun")
    }

    /// Ends the part: adds the machine and its load, and writes the file.
    pub(crate) fn finish(self) {
        let machine = machine::describe();
        let disturbance = self.disturbance.told();
        println!("\n{machine}\n{disturbance}");
        let Some(results) = self.results else {
            println!("No files are written: only some pieces ran, or REDLOCK_BENCH_RESULTS is not set.");
            return;
        };
        let section = |section: &Section| {
            json!({
                "name": section.name,
                "title": section.title,
                "tables": section.tables,
                "remarks": section.remarks,
                "verdicts": section.verdicts,
                "charts": section.charts,
            })
        };
        let all = json!({
            "part": self.name,
            "server": self.server,
            "machine": machine,
            "versions": machine::versions(),
            "disturbance": disturbance.to_string(),
            "sections": self.sections.iter().map(section).collect::<Vec<_>>(),
        });
        let file = results.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(&all).expect("JSON values");
        std::fs::write(&file, text + "\n").expect("the results folder is writable");
        println!("Written: {}.json and its charts, in {}", self.name, results.display());
    }
}

/// The folder for files; creates it if necessary. `None` if `REDLOCK_BENCH_RESULTS` is not set.
fn results() -> Option<PathBuf> {
    let results = PathBuf::from(std::env::var_os("REDLOCK_BENCH_RESULTS")?);
    std::fs::create_dir_all(&results).expect("the results folder can be created");
    Some(results)
}
