//! The layers of tests that can notice a planted bug, from the cheapest to the dearest.

use crate::mutant::SourceCrate;
use crate::source_copy::{BuildOutcome, SourceCopy};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// One kind of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// The tests beside the code, of the crate in which the bug is.
    Unit,
    /// The case table of one node, on the core alone.
    Contract,
    /// Histories on virtual time.
    Simulation,
    /// All histories within small bounds.
    Model,
}

/// What a layer has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Detection {
    /// It has noticed, and this is what.
    Caught(String),
    /// All its tests passed.
    Quiet,
    /// It never sees the code in question.
    Blind,
    /// It was not asked.
    NotAsked,
}

/// Why there is no verdict.
#[derive(Debug)]
pub(crate) enum LayerError {
    /// The code does not compile.
    Uncompiled(String),
    /// Something else is wrong, with the machine or with this program.
    Other(String),
}

/// No test takes as long. Whatever does would take for ever.
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

    /// Whether the layer runs code of this crate, and is there.
    pub(crate) fn sees(self, home: SourceCrate, workshop: &SourceCopy) -> bool {
        match self {
            Self::Unit | Self::Simulation => true,
            Self::Contract => home == SourceCrate::Core,
            Self::Model => workshop.has(MODEL),
        }
    }

    /// Builds the layer's tests as the code is now and runs them.
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
                // A broken rule of a history, or a panic: a test has failed.
                Some(1 | 101) => return Ok(Detection::Caught(self.evidence(&said))),
                _ => {
                    return Err(LayerError::Other(format!("{} ended strangely:\n{said}", program.display())));
                }
            }
        }
        Ok(Detection::Quiet)
    }

    /// What was noticed, in a few words.
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

/// Runs a program to its end; its exit code and what it printed.
fn run(program: &Path, words: &[&str]) -> Result<(Option<i32>, String), String> {
    let told = |error| format!("{}: {error}", program.display());
    let mut child = Command::new(program)
        .args(words)
        .env("RUST_BACKTRACE", "0")
        // Random tests shall not learn from one bug how to find the next, and shall find it every time.
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
            // Nobody listens any more if it took too long.
            let _ = done.send(read.map(|_| String::from_utf8_lossy(&said).into_owned()));
        });
    }
    let Ok(said) = is_done.recv_timeout(LONGEST_RUN) else {
        child.kill().map_err(told)?;
        child.wait().map_err(told)?;
        return Err(format!("{} does not end", program.display()));
    };
    let status = child.wait().map_err(told)?;
    Ok((status.code(), said.map_err(told)?))
}
