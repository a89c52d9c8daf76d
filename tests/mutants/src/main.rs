//! Plants bugs in the pure crates, one at a time, and reports which layers of tests detect each.
//!
//! A test that has never failed may be one that cannot fail, so every layer must show that it can. The bugs are
//! plausible mistakes; each changes one place in a copy of the project. First all layers must pass without a bug, so
//! that a later failure is due to the planted one.
//!
//! | file | subject |
//! |---|---|
//! | `planted/` | the bugs |
//! | `mutant.rs` | the format of a bug's file |
//! | `source_copy.rs` | the copy of the project in which bugs are planted |
//! | `layer.rs` | the layers of tests |
//! | `report.rs` | the results |

mod layer;
mod mutant;
mod report;
mod source_copy;

use layer::{Detection, Layer, LayerError};
use mutant::{Mutant, SourceCrate};
use report::{MutantFinding, Report};
use source_copy::SourceCopy;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: scripts/mutants [--quick] [--model] [--histories N] [NAME...]
       scripts/mutants --list

Plants bugs in a copy of the pure crates, one at a time, and prints which layers of tests detect each.
Fails if a layer that a bug's file in tests/mutants/planted names does not detect it. With names: only
these bugs.

--quick          runs only the layers that a bug's file names
--model          also runs the model checker, which takes minutes for every bug
--histories N    how many histories the simulator runs for each bug (default: 20000)
--list           prints the names and descriptions of the bugs
";

/// The command line.
struct Options {
    is_quick: bool,
    wants_model: bool,
    lists: bool,
    histories: u64,
    names: Vec<String>,
}

impl Options {
    /// Whether a layer runs for a bug; `expected` are the layers that must detect it.
    fn asks(&self, layer: Layer, expected: &[Layer]) -> bool {
        (self.wants_model || layer != Layer::Model) && (!self.is_quick || expected.contains(&layer))
    }
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| ["help", "--help", "-h"].contains(&word.as_str())) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(wish) = parse_options(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&wish) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn parse_options(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut wish =
        Options { is_quick: false, wants_model: false, lists: false, histories: 20_000, names: Vec::new() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => wish.is_quick = true,
            "--model" => wish.wants_model = true,
            "--list" => wish.lists = true,
            "--histories" => wish.histories = words.next()?.parse().ok()?,
            option if option.starts_with('-') => return None,
            _ => wish.names.push(word),
        }
    }
    Some(wish)
}

/// Runs the program. Returns whether every layer that must detect a bug did.
fn run(wish: &Options) -> Result<bool, String> {
    let project = Path::new(".");
    let mut mutants = Mutant::all_in(&project.join("tests/mutants/planted"))?;
    if let Some(unknown) = wish.names.iter().find(|name| mutants.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("There is no planted bug {unknown}; scripts/mutants --list prints their names."));
    }
    mutants.retain(|mutant| wish.names.is_empty() || wish.names.contains(&mutant.name));
    if wish.lists {
        mutants.iter().for_each(|mutant| println!("{:36}{}", mutant.name, mutant.wrong));
        return Ok(true);
    }
    let begun = Instant::now();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let place = std::path::absolute(target.join("mutants")).map_err(|error| error.to_string())?;
    let workshop = SourceCopy::open(project, &place)?;
    expect_all_quiet(&workshop, wish)?;
    let mut report = Report::default();
    for mutant in mutants {
        let finding = workshop.with(&mutant, || find(&workshop, wish, mutant.home, &mutant.caught_by))?;
        report.enter(mutant, finding);
    }
    report.print();
    println!("{} s", begun.elapsed().as_secs());
    Ok(report.is_good())
}

/// Checks that every layer passes without a bug; otherwise a failure would prove nothing.
fn expect_all_quiet(workshop: &SourceCopy, wish: &Options) -> Result<(), String> {
    for layer in Layer::ALL.into_iter().filter(|layer| wish.asks(*layer, &Layer::ALL)) {
        let homes = SourceCrate::ALL.into_iter().filter(|home| layer.sees(*home, workshop));
        // Each crate has its own unit tests; the other layers are the same for all crates.
        for home in homes.take(if layer == Layer::Unit { SourceCrate::ALL.len() } else { 1 }) {
            let place = format!("{} tests of {}", layer.name(), home.package());
            match layer.run_tests(workshop, home, wish.histories) {
                Ok(Detection::Caught(what)) => return Err(format!("Without a bug, {place} fail: {what}")),
                Err(LayerError::Uncompiled(why) | LayerError::Other(why)) => {
                    return Err(format!("Without a bug, {place} give no verdict:\n{why}"));
                }
                Ok(_) => {}
            }
        }
    }
    eprintln!("Without a bug, all layers pass.");
    Ok(())
}

/// Runs the layers on the current state of the copy.
fn find(workshop: &SourceCopy, wish: &Options, home: SourceCrate, expected: &[Layer]) -> MutantFinding {
    let mut verdicts = Vec::new();
    for layer in Layer::ALL {
        verdicts.push(if !wish.asks(layer, expected) {
            Detection::NotAsked
        } else if layer.sees(home, workshop) {
            layer.run_tests(workshop, home, wish.histories)?
        } else {
            Detection::Blind
        });
    }
    Ok(verdicts)
}
