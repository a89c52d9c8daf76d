//! A planted bug, read from its file.
//!
//! ```text
//! file: client/proto/src/quorum.rs
//! wrong: Half of an even number of nodes counts as a majority.
//! caught by: unit, simulation
//!
//! --- before
//!         self.nodes.get() / 2 + 1
//! --- after
//!         self.nodes.get().div_ceil(2)
//! ```
//!
//! The lines before must occur in the source file exactly once: when the code changes, so must the bug's file.

use crate::layer::Layer;
use std::fs;
use std::path::Path;

/// The pure crates, in which bugs are planted: they make all decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceCrate {
    /// The logic of one node.
    Core,
    /// The logic of one client.
    Proto,
    /// The rules that both share.
    Contract,
}

impl SourceCrate {
    pub(crate) const ALL: [Self; 3] = [Self::Core, Self::Proto, Self::Contract];

    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Core => "redlock-core",
            Self::Proto => "redlock-proto",
            Self::Contract => "redlock-contract",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Core => "module/core/src/",
            Self::Proto => "client/proto/src/",
            Self::Contract => "module/contract/src/",
        }
    }
}

/// One planted bug.
#[derive(Debug)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) home: SourceCrate,
    /// The path of the changed file, from the root of the project.
    pub(crate) file: String,
    /// What the changed code does wrong.
    pub(crate) wrong: String,
    /// The layers that must detect the bug. Others may.
    pub(crate) caught_by: Vec<Layer>,
    before: String,
    after: String,
}

impl Mutant {
    /// Reads all bugs of a folder, ordered by crate and name.
    pub(crate) fn all_in(folder: &Path) -> Result<Vec<Self>, String> {
        let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut mutants = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            mutants.push(Self::parse(&name, &text).map_err(|why| format!("{}: {why}", path.display()))?);
        }
        // Bugs of the node come first.
        mutants.sort_by(|one, other| (one.home, &one.name).cmp(&(other.home, &other.name)));
        Ok(mutants)
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (head, change) = text.split_once("--- before\n").ok_or("there is no line \"--- before\"")?;
        let (before, after) = change.split_once("--- after\n").ok_or("there is no line \"--- after\"")?;
        let value = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            lines.next().ok_or_else(|| format!("there is no line \"{name}: …\""))
        };
        let file = value("file")?;
        let home = SourceCrate::ALL.into_iter().find(|home| file.starts_with(home.folder()));
        let layers = value("caught by")?.split(", ");
        let caught_by = layers
            .map(|layer| Layer::named(layer).ok_or_else(|| format!("there is no layer \"{layer}\"")))
            .collect::<Result<Vec<_>, _>>()?;
        if before.trim().is_empty() || before == after {
            return Err("nothing is changed".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            home: home.ok_or("only the pure crates have planted bugs")?,
            file: file.to_owned(),
            wrong: value("wrong")?.to_owned(),
            caught_by,
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    /// The source text with the bug.
    pub(crate) fn planted_in(&self, source: &str) -> Result<String, String> {
        match source.matches(&self.before).count() {
            1 => Ok(source.replacen(&self.before, &self.after, 1)),
            count => Err(format!(
                "{}: the lines to change occur {count} times in {}, not once",
                self.name, self.file
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "file: client/proto/src/quorum.rs\nwrong: All.\ncaught by: unit, simulation\n\n\
                        --- before\n    one\n    two\n--- after\n    three\n";

    #[test]
    fn a_file_describes_one_change() {
        let mutant = Mutant::parse("name", TEXT).unwrap();
        assert_eq!((mutant.home, mutant.wrong.as_str()), (SourceCrate::Proto, "All."));
        assert_eq!(mutant.caught_by, [Layer::Unit, Layer::Simulation]);
        assert_eq!(mutant.planted_in("a\n    one\n    two\nb\n").unwrap(), "a\n    three\nb\n");
        for elsewhere in ["    one\n", "    one\n    two\n    one\n    two\n"] {
            assert!(mutant.planted_in(elsewhere).is_err(), "{elsewhere:?}");
        }
    }

    #[test]
    fn an_incomplete_file_is_refused() {
        for (part, instead) in [
            ("file: client/proto/src/quorum.rs\n", ""),
            ("client/proto", "client"),
            ("wrong: All.\n", ""),
            ("unit", "chance"),
            ("--- before\n", ""),
            ("--- after\n", ""),
            ("    three\n", "    one\n    two\n"),
        ] {
            assert!(Mutant::parse("name", &TEXT.replace(part, instead)).is_err(), "without {part:?}");
        }
    }

    /// Fails as soon as the code and a bug's file differ, before any bug is planted.
    #[test]
    fn every_bug_can_be_planted() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mutants = Mutant::all_in(&here.join("planted")).unwrap();
        assert!(mutants.len() >= 16, "{}", mutants.len());
        for mutant in mutants {
            let source = fs::read_to_string(here.join("../..").join(&mutant.file)).unwrap();
            mutant.planted_in(&source).unwrap();
        }
    }
}
