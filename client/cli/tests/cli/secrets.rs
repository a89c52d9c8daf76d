//! What is never shown: passwords, and owners but where they are asked for.

use crate::program::Launcher;
use redlock_tests::{Fleet, Server};

#[test]
fn no_password_is_ever_shown() {
    let server = Server::builder().tcp().password("hush-hush").start();
    let port = server.port().expect("a port");
    let urls = [
        // The right password, a wrong one, and addresses that cannot be read or reached.
        format!("redis://:hush-hush@127.0.0.1:{port}"),
        format!("redis://:hush-hush-not@127.0.0.1:{port}"),
        "redis://:hush-hush@127.0.0.1:1".to_owned(),
        "redis://:hush-hush@:bad:port".to_owned(),
        "redis://:hush#hush-hush@host".to_owned(),
        "hush-hush".to_owned(),
    ];
    let commands: [&[&str]; 9] = [
        &["status"],
        &["status", "--prometheus"],
        &["inspect", "job"],
        &["run", "job", "--", "true"],
        &["acquire", "job"],
        &["doctor"],
        &["top", "--once"],
        &["bench", "--duration", "10ms"],
        &["--help"],
    ];
    for url in urls {
        let redlock = Launcher::at(&[url]);
        for arguments in commands {
            for format in [&["--json"][..], &[]] {
                let arguments = [format, arguments].concat();
                let said = redlock.run(&arguments);
                assert!(!said.all().contains("hush-hush"), "{arguments:?}: {said:?}");
            }
        }
    }
}

#[test]
fn no_owner_is_shown_but_by_acquire() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock = redlock.run(&["--json", "acquire", "--ttl", "10m", "job"]).succeeds().json();
    let owner = lock["owner"].as_str().expect("an owner").to_owned();
    let look = |arguments: &[&str]| {
        for format in [&["--json"][..], &[]] {
            let mut command = redlock.command(&[format, arguments].concat());
            command.env("REDLOCK_OWNER", &owner).env("REDLOCK_FENCE", "1");
            let said = redlock.finish(command);
            assert!(!said.all().contains(&owner), "{arguments:?}: {said:?}");
        }
    };
    let commands: [&[&str]; 9] = [
        &["extend", "job"],
        &["extend", "--help"],
        &["inspect", "job"],
        &["top", "--once"],
        &["status"],
        &["run", "job", "--", "true"],
        &["acquire", "job"],
        &["release", "other"],
        &["release", "job"],
    ];
    commands.iter().for_each(|arguments| look(arguments));
    assert!(fleet.is_free("job"), "the last of them has freed it");
    // One that is wrong by a letter may be a real one.
    let said = redlock.run(&["release", "--owner", &owner[1..], "job"]);
    assert!(!said.all().contains(&owner[1..]), "{said:?}");
}
