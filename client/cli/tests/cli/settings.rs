//! Nodes and settings, and which source overrides which.

use crate::program::{Launcher, NO_QUORUM, USAGE};
use redlock_tests::{Certs, ClientCertificate, Fleet, Sentinel, Server, skip};
use std::fs;

/// The names of the nodes that status shows.
fn nodes(redlock: &Launcher, arguments: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let mut command = redlock.command(&["--json", "status"]);
    command.args(arguments).envs(variables.iter().copied());
    let status = redlock.finish(command).json();
    let nodes = status["nodes"].as_array().expect("nodes").iter();
    nodes.map(|node| node["node"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn options_override_the_environment_and_the_environment_overrides_files() {
    let redlock = Launcher::without_nodes();
    let write = |path: &str, port: u16| {
        let path = redlock.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, format!("nodes = [\"redis://127.0.0.1:{port}\"]\n")).expect("a file");
    };
    let said = redlock.run(&["status"]).exits(USAGE);
    assert!(said.stderr.contains("no nodes are configured"), "{said:?}");
    write("config/redlock/redlock.toml", 1);
    assert_eq!(nodes(&redlock, &[], &[]), ["127.0.0.1:1"]);
    write("redlock.toml", 2);
    assert_eq!(nodes(&redlock, &[], &[]), ["127.0.0.1:2"]);
    write("other.toml", 3);
    assert_eq!(nodes(&redlock, &[], &[("REDLOCK_CONFIG", "other.toml")]), ["127.0.0.1:3"]);
    write("named.toml", 4);
    assert_eq!(
        nodes(&redlock, &["--config", "named.toml"], &[("REDLOCK_CONFIG", "other.toml")]),
        ["127.0.0.1:4"]
    );
    let variable = [("REDLOCK_NODES", "redis://127.0.0.1:5,redis://127.0.0.1:6")];
    assert_eq!(nodes(&redlock, &[], &variable), ["127.0.0.1:5", "127.0.0.1:6"]);
    let options = ["--nodes", "redis://127.0.0.1:7,redis://127.0.0.1:8", "--nodes", "redis://127.0.0.1:9"];
    assert_eq!(nodes(&redlock, &options, &variable), ["127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9"]);
}

#[test]
fn settings_come_from_the_file() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::without_nodes();
    let urls: Vec<String> = fleet.urls().iter().map(|url| format!("{url:?}")).collect();
    let text = format!(
        "nodes = [{}]\nprefix = \"app:\"\nttl = \"90s\"\nlabel = \"from the file\"\nnode-timeout = \"2s\"\n",
        urls.join(", ")
    );
    fs::write(redlock.path().join("redlock.toml"), text).expect("a file");
    let lock = redlock.run(&["--json", "acquire", "job"]).succeeds().json();
    assert_eq!(lock["ttl_ms"], 90_000);
    let held = fleet.locks("app:job");
    assert_eq!(held.iter().flatten().count(), 3);
    assert_eq!(
        redlock.run(&["--json", "inspect", "job"]).succeeds().json()["lock"]["label"],
        "from the file"
    );
    // An option overrides the file.
    redlock.run(&["--prefix", "other:", "run", "job", "--", "true"]).succeeds();
    let lock = redlock.run(&["--json", "acquire", "--ttl", "5s", "short"]).succeeds().json();
    assert_eq!(lock["ttl_ms"], 5_000);
}

#[test]
fn an_error_in_the_file_is_named() {
    let redlock = Launcher::without_nodes();
    let table = [
        ("nodes = [\"redis://127.0.0.1:1\"]\nnode-timout = \"1s\"\n", "node-timout"),
        ("nodes = []\n[tls]\nauthority = \"x\"\n", "authority"),
        ("nodes = [\"redis://127.0.0.1:1\"]\nttl = \"soon\"\n", "soon"),
        ("nodes = \n", "redlock.toml"),
        ("nodes = [\"redis://127.0.0.1:1\"]\nusername = \"me\"\n", "password"),
        ("nodes = [\"redis://127.0.0.1:1\"]\npassword = \"a\"\npassword-env = \"B\"\n", "password-env"),
    ];
    for (text, word) in table {
        fs::write(redlock.path().join("redlock.toml"), text).expect("a file");
        let said = redlock.run(&["status"]).exits(USAGE);
        assert!(said.stderr.contains(word), "{text}: {said:?}");
    }
    let said = redlock.run(&["--config", "no-such-file", "status"]).exits(USAGE);
    assert!(said.stderr.contains("no-such-file"), "{said:?}");
}

#[test]
fn a_password_comes_from_a_file_or_the_environment() {
    let server = Server::builder().tcp().password("hush-hush").start();
    let redlock = Launcher::at(&[server.url()]);
    redlock.run(&["status"]).exits(113);
    fs::write(redlock.path().join("password"), "hush-hush\n").expect("a file");
    redlock.run(&["--password-file", "password", "status"]).succeeds();
    let mut command = redlock.command(&["status"]);
    command.env("REDLOCK_PASSWORD", "hush-hush");
    redlock.finish(command).succeeds();
    for line in ["password = \"hush-hush\"", "password-file = \"password\"", "password-env = \"SECRET\""] {
        fs::write(redlock.path().join("redlock.toml"), format!("{line}\n")).expect("a file");
        let mut command = redlock.command(&["status"]);
        command.env("SECRET", "hush-hush");
        redlock.finish(command).succeeds();
    }
}

#[test]
fn certificates_come_from_files() {
    let certs = Certs::new();
    let server = match Server::builder().tls(&certs, ClientCertificate::Required).try_start() {
        Ok(server) => server,
        Err(failure) if failure.lacks_tls() => return skip("this server was built without TLS"),
        Err(failure) => panic!("{failure}"),
    };
    let port = server.tls_port().expect("a port for TLS");
    let redlock = Launcher::at(&[format!("rediss://127.0.0.1:{port}")]);
    for (name, pem) in [("cert.pem", certs.client_cert_pem()), ("key.pem", certs.client_key_pem())] {
        fs::write(redlock.path().join(name), pem).expect("a file");
    }
    let ca = certs.ca_cert().display().to_string();
    redlock.run(&["--tls-ca", &ca, "status"]).exits(NO_QUORUM);
    redlock.run(&["--tls-ca", &ca, "--tls-cert", "cert.pem", "status"]).exits(USAGE);
    redlock
        .run(&["--tls-ca", &ca, "--tls-cert", "cert.pem", "--tls-key", "key.pem", "run", "job", "--", "true"])
        .succeeds();
    let text = format!("[tls]\nca = {ca:?}\ncert = \"cert.pem\"\nkey = \"key.pem\"\n");
    fs::write(redlock.path().join("redlock.toml"), text).expect("a file");
    redlock.run(&["doctor"]).exits(crate::program::DOCTOR_WARNINGS);
    redlock.run(&["top", "--once"]).succeeds();
}

#[test]
fn a_sentinel_url_names_the_remedy() {
    let said =
        Launcher::at(&["redis-sentinel://10.0.0.1:26379/locks".to_owned()]).run(&["status"]).exits(USAGE);
    assert!(said.stderr.contains("[[sentinel]]") && !said.stderr.contains("10.0.0.1"), "{said:?}");
}

#[test]
fn sentinel_can_name_a_node() {
    let master = Server::builder().tcp().start();
    let sentinel = Sentinel::start();
    sentinel.watch("locks", &master);
    let redlock = Launcher::without_nodes();
    let text = format!("[[sentinel]]\nmaster = \"locks\"\nurls = [{:?}]\n", sentinel.url());
    fs::write(redlock.path().join("redlock.toml"), text).expect("a file");
    let address = sentinel.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    assert_eq!(nodes(&redlock, &[], &[]), [format!("sentinel locks of {address}")]);
    redlock.run(&["run", "job", "--", "true"]).succeeds();
}
