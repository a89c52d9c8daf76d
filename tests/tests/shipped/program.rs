//! Programs that may or may not be installed here, run with a deadline.

use redlock_tests::within;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The whole path of a program, if it is installed.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Runs a program to its end, and kills it if it does not come to one.
pub(crate) fn run(command: &mut Command, deadline: Duration) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // Read while it runs: a full pipe would stop it.
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let ended = within(deadline, || child.try_wait().expect("a child can be waited for"));
    if ended.is_none() {
        child.kill().expect("a child can be killed");
    }
    let status = child.wait().expect("a child ends");
    let [stdout, stderr] = [stdout, stderr].map(|reader| reader.join().expect("a reader ends with its pipe"));
    let output = Output { status, stdout, stderr };
    assert!(ended.is_some(), "{command:?} did not end within {deadline:?}; {}", told(&output));
    output
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    let mut pipe = pipe.expect("a pipe was asked for");
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}

/// Everything that a program said, for the message of a failure.
pub(crate) fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}, stdout:\n{}stderr:\n{}", output.status, text(&output.stdout), text(&output.stderr))
}
