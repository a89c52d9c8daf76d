//! The layers of tests that can detect a planted bug, from the fastest to the slowest.

use crate::mutant::SourceCrate;
use crate::source_copy::{BuildOutcome, SourceCopy};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A layer of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// The unit tests of the crate that has the bug.
    Unit,
    /// The table of contract cases of a node, on the core alone.
    Contract,
    /// Random histories of the simulator.
    Simulation,
    /// The model checker: all histories within small bounds.
    Model,
}

/// The verdict of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Detection {
    /// A test failed; the text says what.
    Caught(String),
    /// All tests passed.
    Quiet,
    /// The layer does not run the code with the bug.
    Blind,
    /// The layer did not run.
    NotAsked,
}

/// Why a layer has no verdict.
#[derive(Debug)]
pub(crate) enum LayerError {
    /// The code does not compile.
    Uncompiled(String),
    /// Another error, of the machine or of this program.
    Other(String),
}

/// A test program that runs longer is treated as hung.
const LONGEST_RUN: Duration = Duration::from_secs(1_800);

const MODEL: &str = "tests/sim/tests/model.rs";

impl Layer {
    pub(crate) const ALL: [Self; 4] = [Self::Unit, Self::Contract, Self::Simulation, Self::Model];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Contract => "contract",
            Self::Simulation => "simulation",
            Self::Model => "model",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// Whether the layer exists and runs code of this crate.
    pub(crate) fn sees(self, home: SourceCrate, workshop: &SourceCopy) -> bool {
        match self {
            Self::Unit | Self::Simulation => true,
            Self::Contract => home == SourceCrate::Core,
            Self::Model => workshop.has(MODEL),
        }
    }

    /// Builds and runs the layer's tests on the current state of the copy.
    pub(crate) fn run_tests(
        self,
        workshop: &SourceCopy,
        home: SourceCrate,
        histories: u64,
    ) -> Result<Detection, LayerError> {
        let count = histories.to_string();
        let (built, words): (_, &[&str]) = match self {
            Self::Unit => (workshop.build_tests(&["--package", home.package(), "--lib"]), &[]),
            Self::Contract => {
                (workshop.build_tests(&["--package", "redlock-mutants", "--test", "contract"]), &[])
            }
            Self::Simulation => (workshop.build_program("redlock-sim", "sim"), &["--count", &count]),
            Self::Model => (workshop.build_tests(&["--package", "redlock-sim", "--test", "model"]), &[]),
        };
        let programs = match built.map_err(LayerError::Other)? {
            BuildOutcome::Programs(programs) => programs,
            BuildOutcome::Not(why) => return Err(LayerError::Uncompiled(why)),
        };
        for program in programs {
            let (code, said) = run(&program, words).map_err(LayerError::Other)?;
            match code {
                Some(0) => {}
                // A broken rule of a history (1) or a panic (101): a test failed.
                Some(1 | 101) => return Ok(Detection::Caught(self.evidence(&said))),
                _ => {
                    return Err(LayerError::Other(format!(
                        "{} ended with an unknown exit code:\n{said}",
                        program.display()
                    )));
                }
            }
        }
        Ok(Detection::Quiet)
    }

    /// A few words about the failure.
    fn evidence(self, said: &str) -> String {
        let count = |wanted: fn(&str) -> bool| said.lines().filter(|line| wanted(line)).count();
        let counted = |count: usize, what: &str| match count {
            0 => "a panic".to_owned(),
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        match self {
            Self::Unit | Self::Model => {
                counted(count(|line| line.starts_with("test ") && line.ends_with(" FAILED")), "test")
            }
            Self::Contract => counted(count(|line| line.starts_with("BROKEN: ")), "case"),
            Self::Simulation => {
                let broken = said.lines().find_map(|line| line.strip_prefix("BROKEN: "));
                let rule = broken.and_then(|line| line.split([' ', '{']).next());
                let seed = said.lines().find_map(|line| line.strip_prefix("seed ")?.split_once(':'));
                match (rule, seed) {
                    (Some(rule), Some((seed, _))) => format!("{rule}, history {seed}"),
                    _ => "a panic".to_owned(),
                }
            }
        }
    }
}

/// Runs a program to its end. Returns its exit code and its output.
fn run(program: &Path, words: &[&str]) -> Result<(Option<i32>, String), String> {
    let told = |error| format!("{}: {error}", program.display());
    let mut child = Command::new(program)
        .args(words)
        .env("RUST_BACKTRACE", "0")
        // Property tests must not store failures of one bug for the next, and must be repeatable.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env("PROPTEST_RNG_SEED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(told)?;
    let (done, is_done) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut said = Vec::new();
            let read = stdout.read_to_end(&mut said);
            // After a timeout the channel is closed.
            let _ = done.send(read.map(|_| String::from_utf8_lossy(&said).into_owned()));
        });
    }
    let Ok(said) = is_done.recv_timeout(LONGEST_RUN) else {
        child.kill().map_err(told)?;
        child.wait().map_err(told)?;
        return Err(format!("{} did not end within {} s", program.display(), LONGEST_RUN.as_secs()));
    };
    let status = child.wait().map_err(told)?;
    Ok((status.code(), said.map_err(told)?))
}
