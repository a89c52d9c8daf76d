//! The program never shows a password, and shows an owner only in the result of `acquire`.

use crate::program::Launcher;
use redlock_tests::{Fleet, Server};

#[test]
fn no_password_is_ever_shown() {
    let server = Server::builder().tcp().password("hush-hush").start();
    let port = server.port().expect("a port");
    let urls = [
        // The right password, a wrong password, and URLs that are unreachable or malformed.
        format!("redis://:hush-hush@127.0.0.1:{port}"),
        format!("redis://:hush-hush-not@127.0.0.1:{port}"),
        "redis://:hush-hush@127.0.0.1:1".to_owned(),
        "redis://:hush-hush@:bad:port".to_owned(),
        "redis://:hush#hush-hush@host".to_owned(),
        "hush-hush".to_owned(),
    ];
    let commands: [&[&str]; 11] = [
        &["ls"],
        &["break", "--yes", "none"],
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

/// The command of `run` may be any program: it gets the fence, and no password of the nodes.
#[test]
fn the_command_of_run_inherits_no_password() {
    let server = Server::builder().tcp().password("hush-hush").start();
    let port = server.port().expect("a port");
    let plain = format!("redis://127.0.0.1:{port}");
    let with_login = format!("redis://:hush-hush@127.0.0.1:{port}");
    let run = |redlock: &Launcher, variables: &[(&str, &str)]| {
        let mut command = redlock.command(&["run", "job", "--", "env"]);
        command.envs(variables.iter().copied()).env("MINE", "kept");
        let said = redlock.finish(command).succeeds();
        assert!(!said.all().contains("hush-hush"), "{said:?}");
        let has = |word: &str| assert!(said.stdout.contains(word), "{word} is not in {said:?}");
        ["MINE=kept", "REDLOCK_FENCE=", "REDLOCK_RESOURCE=job", "REDLOCK_NODE_TIMEOUT="]
            .iter()
            .for_each(|word| has(word));
        said.stdout
    };
    run(&Launcher::at(&[&with_login]), &[]);
    let kept = run(&Launcher::at(&[&plain]), &[("REDLOCK_PASSWORD", "hush-hush")]);
    assert!(kept.contains(&format!("REDLOCK_NODES={plain}\n")), "nodes without a password: {kept}");
    let redlock = Launcher::without_nodes();
    let settings = format!("nodes = [\"{plain}\"]\npassword-env = \"LOCK_SECRET\"\n");
    std::fs::write(redlock.path().join("redlock.toml"), settings).expect("a file");
    run(&redlock, &[("LOCK_SECRET", "hush-hush")]);
    // The path of a file is not a secret.
    std::fs::write(redlock.path().join("secret"), "hush-hush\n").expect("a file");
    let path = redlock.path().join("secret").display().to_string();
    let kept = run(&Launcher::at(&[&plain]), &[("REDLOCK_PASSWORD_FILE", path.as_str())]);
    assert!(kept.contains("REDLOCK_PASSWORD_FILE="), "{kept}");
}

#[test]
fn only_acquire_shows_an_owner() {
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
    let commands: [&[&str]; 11] = [
        &["ls"],
        &["break", "job"],
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
    assert!(fleet.is_free("job"), "the last command has released the lock");
    // A malformed owner may be a real one with a typing error.
    let said = redlock.run(&["release", "--owner", &owner[1..], "job"]);
    assert!(!said.all().contains(&owner[1..]), "{said:?}");
}
