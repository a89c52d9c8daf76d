//! The results of all planted bugs.

use crate::layer::{Detection, Layer, LayerError};
use crate::mutant::Mutant;

/// The verdicts of the layers in their order, or the reason why there are none.
pub(crate) type MutantFinding = Result<Vec<Detection>, LayerError>;

/// All bugs with their results.
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<(Mutant, MutantFinding)>,
}

impl Report {
    /// Adds a result and prints it to standard error.
    pub(crate) fn enter(&mut self, mutant: Mutant, finding: MutantFinding) {
        let problem = problem(&mutant, &finding);
        eprintln!("{:36}{}", mutant.name, problem.unwrap_or_else(|| summary(&finding)));
        self.lines.push((mutant, finding));
    }

    /// Whether every bug was detected by all layers that must.
    pub(crate) fn is_good(&self) -> bool {
        self.lines.iter().all(|(mutant, finding)| problem(mutant, finding).is_none())
    }

    /// Prints the table and the problems.
    pub(crate) fn print(&self) {
        let layers = Layer::ALL.map(Layer::name).join(" | ");
        println!("| planted bug | what is wrong | {layers} |\n|---|---|{}", "---|".repeat(Layer::ALL.len()));
        for (mutant, finding) in &self.lines {
            let cells: Vec<String> = match finding {
                Ok(verdicts) => verdicts.iter().map(cell).collect(),
                Err(_) => vec!["?".to_owned(); Layer::ALL.len()],
            };
            println!("| {} | {} | {} |", mutant.name, mutant.wrong, cells.join(" | "));
        }
        let problems: Vec<_> =
            self.lines.iter().filter_map(|(mutant, finding)| problem(mutant, finding)).collect();
        println!(
            "\n{} planted bugs, {} detected as expected. \"no\": not detected; \"–\": the layer does not run \
             that code, or does not exist; empty: the layer did not run.",
            self.lines.len(),
            self.lines.len() - problems.len()
        );
        for ((mutant, finding), problem) in
            self.lines.iter().filter_map(|line| Some((line, problem(&line.0, &line.1)?)))
        {
            println!("{}: {problem}", mutant.name);
            if let Err(LayerError::Uncompiled(why) | LayerError::Other(why)) = finding {
                println!("{why}");
            }
        }
    }
}

/// What is wrong with a result, if anything.
fn problem(mutant: &Mutant, finding: &MutantFinding) -> Option<String> {
    let verdicts = match finding {
        Ok(verdicts) => verdicts,
        Err(LayerError::Uncompiled(_)) => return Some("DOES NOT COMPILE".to_owned()),
        Err(LayerError::Other(_)) => return Some("NO VERDICT".to_owned()),
    };
    let missed = |layer: &&Layer| {
        let verdict = Layer::ALL.iter().zip(verdicts).find(|(asked, _)| asked == layer);
        matches!(verdict, Some((_, Detection::Quiet | Detection::Blind)))
    };
    let missed: Vec<_> = mutant.caught_by.iter().filter(missed).map(|layer| layer.name()).collect();
    if !missed.is_empty() {
        return Some(format!("NOT DETECTED by {}", missed.join(", ")));
    }
    let is_caught = verdicts.iter().any(|verdict| matches!(verdict, Detection::Caught(_)));
    (!is_caught).then(|| "NOT DETECTED".to_owned())
}

fn summary(finding: &MutantFinding) -> String {
    let verdicts = finding.as_deref().unwrap_or_default();
    let said = Layer::ALL.iter().zip(verdicts).filter_map(|(layer, verdict)| match verdict {
        Detection::Caught(what) => Some(format!("{}: {what}", layer.name())),
        _ => None,
    });
    said.collect::<Vec<_>>().join("; ")
}

fn cell(verdict: &Detection) -> String {
    match verdict {
        Detection::Caught(what) => what.clone(),
        Detection::Quiet => "no".to_owned(),
        Detection::Blind => "–".to_owned(),
        Detection::NotAsked => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Detection::{Blind, NotAsked, Quiet};

    #[test]
    fn a_bug_that_an_expected_layer_misses_is_reported() {
        let text =
            "file: module/core/src/a.rs\nwrong: All.\ncaught by: unit, model\n--- before\na\n--- after\nb\n";
        let mutant = Mutant::parse("name", text).unwrap();
        let caught = || Detection::Caught("1 test".to_owned());
        let table: [([Detection; 4], Option<&str>); 6] = [
            ([caught(), Quiet, Quiet, caught()], None),
            ([caught(), caught(), Quiet, NotAsked], None),
            ([caught(), Quiet, Quiet, Quiet], Some("NOT DETECTED by model")),
            ([Quiet, caught(), caught(), caught()], Some("NOT DETECTED by unit")),
            ([caught(), Quiet, Quiet, Blind], Some("NOT DETECTED by model")),
            ([NotAsked, NotAsked, NotAsked, NotAsked], Some("NOT DETECTED")),
        ];
        for (verdicts, expected) in table {
            assert_eq!(problem(&mutant, &Ok(verdicts.to_vec())).as_deref(), expected, "{verdicts:?}");
        }
        let broken = Err(LayerError::Uncompiled(String::new()));
        assert_eq!(problem(&mutant, &broken).as_deref(), Some("DOES NOT COMPILE"));
    }
}
