//! Finds programs that may not be installed on this machine, and runs them with a deadline.

use redlock_tests::within;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The full path of a program, if `PATH` has it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Runs a program and returns its output. A program that does not end by the deadline is killed, and the test fails.
pub(crate) fn run(command: &mut Command, deadline: Duration) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // Read while the program runs: it would block on a full pipe.
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let ended = within(deadline, || child.try_wait().expect("the child can be waited for"));
    if ended.is_none() {
        child.kill().expect("the child can be killed");
    }
    let status = child.wait().expect("the child ends");
    let [stdout, stderr] =
        [stdout, stderr].map(|reader| reader.join().expect("the reader thread does not panic"));
    let output = Output { status, stdout, stderr };
    assert!(ended.is_some(), "{command:?} did not end within {deadline:?}; {}", describe(&output));
    output
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    let mut pipe = pipe.expect("the command has this pipe");
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("the pipe can be read");
        bytes
    })
}

/// The exit status and the output of a program, for failure messages.
pub(crate) fn describe(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}, stdout:\n{}stderr:\n{}", output.status, text(&output.stdout), text(&output.stderr))
}
