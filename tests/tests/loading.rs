//! Loading the module, and every case in which it must refuse to load.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{Answer, Brand, Server, Wire, module_path, skip};

/// Bad argument lists, each with the word that the log must contain.
const BAD: [(&[&str], &str); 6] = [
    (&["nonsense", "1"], "nonsense"),
    (&["max-ttl"], "max-ttl"),
    (&["max-ttl", "abc"], "max-ttl"),
    (&["max-ttl", "0"], "max-ttl"),
    (&["max-ttl", "60000", "late-window", "-1"], "late-window"),
    (&["max-ttl", "60000", "max-ttl-ms", "1"], "max-ttl-ms"),
];

fn loadable() -> Server {
    Server::builder().without_module().arg("enable-module-command", "yes").start()
}

fn load(wire: &mut Wire, arguments: &[&str]) -> Answer {
    let path = module_path();
    let path = path.to_str().expect("a UTF-8 path");
    wire.call(&[&["MODULE", "LOAD", path], arguments].concat())
}

fn loaded(wire: &mut Wire) -> Vec<String> {
    let modules = wire.call_strs("MODULE LIST");
    let name = |module: &Answer| module.field("name").expect("a module has a name").string();
    modules.list().iter().map(name).collect()
}

#[test]
fn the_module_is_listed_under_its_name() {
    let server = Server::start();
    assert!(loaded(&mut server.connect()).contains(&"redlock".into()));
}

#[test]
fn bad_arguments_prevent_a_server_from_starting() {
    for (arguments, word) in BAD {
        let failure = Server::builder()
            .module_args(arguments.iter().copied())
            .try_start()
            .expect_err("a server does not start with bad module arguments");
        let named = failure.log.lines().any(|line| line.contains("redlock") && line.contains(word));
        assert!(named, "{arguments:?}: no line names {word:?}: {failure}");
    }
}

#[test]
fn bad_arguments_do_not_change_a_running_server() {
    let mut server = loadable();
    let pid = server.pid();
    let mut wire = server.connect();
    let before = loaded(&mut wire);
    for (arguments, word) in BAD {
        let answer = load(&mut wire, arguments);
        assert!(matches!(answer, Answer::Error(_)), "{arguments:?}: {answer:?}");
        assert!(server.log().contains(word), "{arguments:?}: {}", server.log());
        assert_eq!(loaded(&mut wire), before, "{arguments:?}");
        assert!(matches!(wire.call_strs("REDLOCK.NODE"), Answer::Error(_)), "{arguments:?}");
    }
    // After all those refusals, the module still loads completely with good arguments.
    assert_eq!(load(&mut wire, &["max-ttl", "60000"]), Answer::ok());
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE b me 60001").error_word(), Some("REDLOCKTTL"));
    assert_eq!(wire.call_strs("INFO redlock").string().matches("redlock_grants:1").count(), 1);
    assert!(server.is_running() && server.pid() == pid);
}

#[test]
fn loading_twice_is_refused() {
    let mut server = loadable();
    let mut wire = server.connect();
    assert_eq!(load(&mut wire, &[]), Answer::ok());
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a me 60000"), Answer::Int(1..)));
    let answer = load(&mut wire, &["max-ttl", "1000"]);
    assert!(matches!(answer, Answer::Error(_)), "{answer:?}");
    assert!(
        matches!(wire.call_strs("REDLOCK.EXTEND a me 60000"), Answer::Int(1..)),
        "the loaded module still works"
    );
    assert!(server.is_running());
}

#[test]
fn unloading_is_refused() {
    let server = Server::start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a me 60000"), Answer::Int(1..)));
    let answer = wire.call_strs("MODULE UNLOAD redlock");
    assert!(matches!(answer, Answer::Error(_)), "{answer:?}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE a me"), Answer::Int(1));
}

/// `REDLOCK_SERVER_62` is the path of a server that is too old for the module: Redis 6.2.
#[test]
fn an_old_server_is_refused_clearly() {
    let Some(binary) = std::env::var_os("REDLOCK_SERVER_62") else {
        skip("REDLOCK_SERVER_62 does not name a server older than 7.0");
        return;
    };
    let mut plain = Server::builder().binary(&binary).without_module().start();
    let flavor = plain.flavor();
    assert!(flavor.brand == Brand::Redis && !flavor.at_least(7, 0), "REDLOCK_SERVER_62 is {flavor}");

    let failure = Server::builder().binary(&binary).try_start().expect_err("the module refuses to load");
    let is_clear = |line: &str| line.contains("redlock") && line.contains("7.0");
    assert!(failure.log.lines().any(is_clear), "{failure}");

    let mut wire = plain.connect();
    assert!(matches!(load(&mut wire, &[]), Answer::Error(_)));
    assert_eq!(wire.call_strs("PING"), Answer::Status("PONG".into()));
    assert!(plain.log().lines().any(is_clear), "{}", plain.log());
    assert!(plain.is_running());
}
