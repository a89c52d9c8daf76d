//! A copy of the project in which bugs are planted. It has its own target folder, so that unchanged code is compiled
//! once.

use crate::mutant::Mutant;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the project.
#[derive(Debug)]
pub(crate) struct SourceCopy {
    tree: PathBuf,
    target: PathBuf,
}

/// The result of a build.
pub(crate) enum BuildOutcome {
    /// The built programs.
    Programs(Vec<PathBuf>),
    /// The code does not compile; with the output of the compiler.
    Not(String),
}

impl SourceCopy {
    /// Copies the project without hidden files and target folders.
    pub(crate) fn open(project: &Path, place: &Path) -> Result<Self, String> {
        let (tree, target) = (place.join("tree"), place.join("target"));
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
        }
        copy(project, &tree)?;
        Ok(Self { tree, target })
    }

    /// Plants a bug, calls `run`, and removes the bug again.
    pub(crate) fn with<T>(&self, mutant: &Mutant, run: impl FnOnce() -> T) -> Result<T, String> {
        let path = self.tree.join(&mutant.file);
        let told = |error| format!("{}: {error}", path.display());
        let source = fs::read_to_string(&path).map_err(told)?;
        fs::write(&path, mutant.planted_in(&source)?).map_err(told)?;
        let result = run();
        fs::write(&path, source).map_err(told)?;
        Ok(result)
    }

    /// Whether a file exists in the copy.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.tree.join(file).exists()
    }

    /// Compiles the tests that these arguments of cargo select.
    pub(crate) fn build_tests(&self, words: &[&str]) -> Result<BuildOutcome, String> {
        self.cargo(&[&["test", "--no-run"], words].concat(), |said| {
            // `  Executable unittests src/lib.rs (/…/deps/redlock_core-0123456789abcdef)`
            let lines = said.lines().filter(|line| line.trim_start().starts_with("Executable "));
            let paths = lines.filter_map(|line| Some(line.rsplit_once('(')?.1.strip_suffix(')')?.into()));
            paths.map(|path: PathBuf| self.tree.join(path)).collect()
        })
    }

    /// Compiles a program.
    pub(crate) fn build_program(&self, package: &str, name: &str) -> Result<BuildOutcome, String> {
        self.cargo(&["build", "--package", package, "--bin", name], |_| {
            vec![self.target.join("debug").join(name)]
        })
    }

    fn cargo(
        &self,
        words: &[&str],
        programs: impl FnOnce(&str) -> Vec<PathBuf>,
    ) -> Result<BuildOutcome, String> {
        let output = Command::new("cargo")
            .args(words)
            .arg("--locked")
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_TERM_COLOR", "never")
            // These programs need no debug information.
            .env("CARGO_PROFILE_DEV_DEBUG", "none")
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Ok(BuildOutcome::Not(said.into_owned()));
        }
        let programs = programs(&said);
        if programs.is_empty() {
            return Err(format!("cargo {} printed no path of a program:\n{said}", words.join(" ")));
        }
        Ok(BuildOutcome::Programs(programs))
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let told = |error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(told)?;
    for entry in fs::read_dir(from).map_err(told)? {
        let entry = entry.map_err(told)?;
        let (name, path) = (entry.file_name(), entry.path());
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name)).map_err(told)?;
        }
    }
    Ok(())
}
