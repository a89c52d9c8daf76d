//! What a part of the bench has found: printed as it comes, and kept in files for whoever reads them later.
//!
//! | file | subject |
//! |---|---|
//! | `figures.rs` | medians |
//! | `cell.rs` | a table and what stands in it |
//! | `chart.rs` | pictures of figures |
//! | `machine.rs` | where it was measured, and with what |
//! | `load.rs` | what others did with the machine meanwhile |
//! | `progress.rs` | how far it has come |
//! | `page.rs` | the tables of a page, written from the files of a run |

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

/// One part of the bench, from its first figure to its files.
pub(crate) struct Report {
    name: String,
    /// Where its files go; nowhere if only some of it was measured.
    results: Option<PathBuf>,
    server: String,
    disturbance: LoadWatch,
    sections: Vec<Section>,
}

/// Figures that belong together.
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
    /// Begins a part. Its files are written to the folder that `REDLOCK_BENCH_RESULTS` names, unless it is not
    /// `whole`: what is in the folder is always from one run.
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

    /// Begins figures that belong together.
    pub(crate) fn section(&mut self, name: &str, title: impl Into<String>) {
        let (name, title) = (name.to_owned(), title.into());
        println!("\n{title}\n");
        self.sections.push(Section { name, title, ..Section::default() });
    }

    /// Shows rows under a headline.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<Cell>]) {
        cell::print(head, rows);
        let row = |row: &Vec<Cell>| row.iter().map(Cell::to_json).collect::<Vec<_>>();
        self.now().tables.push(json!({ "columns": head, "rows": rows.iter().map(row).collect::<Vec<_>>() }));
    }

    /// Says what the figures do not.
    pub(crate) fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        println!("{remark}");
        self.now().remarks.push(remark);
    }

    /// Judges a figure that should be small.
    pub(crate) fn at_most(&mut self, what: impl Into<String>, figure: f64, bound: f64) {
        self.judge(what.into(), figure, "at most", bound, figure <= bound);
    }

    /// Judges a figure that should be large.
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

    /// Draws a picture, if files are written.
    pub(crate) fn chart(&mut self, name: &str, chart: &Chart) {
        let Some(results) = &self.results else { return };
        let file = format!("{}-{name}.svg", self.name);
        std::fs::write(results.join(&file), chart.svg()).expect("the folder of results can be written");
        self.now().charts.push(file);
    }

    fn now(&mut self) -> &mut Section {
        self.sections.last_mut().expect("a section was begun")
    }

    /// Ends the part: says where and how undisturbed it was, and writes its file.
    pub(crate) fn finish(self) {
        let machine = machine::describe();
        let disturbance = self.disturbance.told();
        println!("\n{machine}\n{disturbance}");
        let Some(results) = self.results else {
            println!("Only whole parts are kept in files.");
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
        let text = serde_json::to_string_pretty(&all).expect("figures and texts only");
        std::fs::write(&file, text + "\n").expect("the folder of results can be written");
        println!("Written: {}.json and its charts, in {}", self.name, results.display());
    }
}

/// The folder for files, made if need be.
fn results() -> Option<PathBuf> {
    let results = PathBuf::from(std::env::var_os("REDLOCK_BENCH_RESULTS")?);
    std::fs::create_dir_all(&results).expect("the folder of results can be made");
    Some(results)
}
