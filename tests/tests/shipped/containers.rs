//! `docker/`: what can be known of the image and the compose file without an engine to run them.
//!
//! The file that compose reads is read here too, and the server is started with the very arguments that it has
//! there, through the image's own entrypoint. `scripts/images` builds and runs the image where an engine is.

use crate::page::{read, root};
use crate::program::{find, run, told};
use redlock_tests::{Answer, SOON, Server, module_path, skip};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use yaml_rust2::{Yaml, YamlLoader};

/// Reads a file that holds one YAML document, with `<<` resolved one level deep, as deep as the file uses it.
fn yaml(path: &str) -> Yaml {
    let mut documents =
        YamlLoader::load_from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

/// A field of a service, its own or one that it takes over with `<<`.
fn field<'a>(service: &'a Yaml, name: &str) -> &'a Yaml {
    match &service[name] {
        Yaml::BadValue => &service["<<"][name],
        own => own,
    }
}

fn texts(list: &Yaml) -> Vec<String> {
    let members = list.as_vec().unwrap_or_else(|| panic!("no list: {list:?}"));
    let text = |one: &Yaml| one.as_str().unwrap_or_else(|| panic!("no text: {one:?}")).to_string();
    members.iter().map(text).collect()
}

/// The services of the compose file that are nodes, with their names.
fn nodes(compose: &Yaml) -> Vec<(String, &Yaml)> {
    let services = compose["services"].as_hash().expect("services");
    let named = services.iter().map(|(name, service)| (name.as_str().expect("a name").to_string(), service));
    named.filter(|(name, _)| name.starts_with("node-")).collect()
}

/// `160mb` as the server reads it, `256m` as compose does.
fn bytes(size: &str) -> u64 {
    let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("no size: {size}"));
    match &size[digits.len()..] {
        "mb" | "m" => number << 20,
        "gb" | "g" => number << 30,
        unit => panic!("a unit that this test does not know: {unit}"),
    }
}

/// The default of a build argument.
fn argument(dockerfile: &str, name: &str) -> String {
    let prefix = format!("ARG {name}=");
    let mut values = dockerfile.lines().filter_map(|line| line.strip_prefix(&prefix));
    let value = values.next().unwrap_or_else(|| panic!("no default for {name}"));
    assert_eq!(values.next(), None, "one default for {name}");
    value.to_string()
}

#[test]
fn the_image_is_built_with_the_oldest_compiler_that_is_promised() {
    let manifest = read("Cargo.toml");
    let promised = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let promised = promised.expect("a promise in Cargo.toml").trim_matches('"');
    let image = argument(&read("docker/Dockerfile"), "RUST_IMAGE");
    assert!(
        image.starts_with(&format!("docker.io/library/rust:{promised}-")),
        "{image}, and rust-version is {promised}"
    );
}

#[test]
fn image_and_compose_file_name_the_same_images_below() {
    let dockerfile = read("docker/Dockerfile");
    let server = argument(&dockerfile, "SERVER_IMAGE");
    assert!(!server.contains("alpine"), "the module is built for another C library");
    let compose = yaml("docker/compose.yml");
    let services = &compose["services"];
    for (name, stage) in [("node-1", "node"), ("exporter", "command"), ("redlock", "command")] {
        let build = field(&services[name], "build");
        assert_eq!(build["target"].as_str(), Some(stage));
        // Whoever builds upon other images says so once, to docker or to compose.
        let below = if stage == "node" { "SERVER_IMAGE" } else { "COMMAND_IMAGE" };
        let given = build["args"].as_hash().expect("arguments");
        let given: BTreeSet<_> = given.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let variable = |name| format!("${{{name}:-{}}}", argument(&dockerfile, name));
        let (rust, other) = (variable("RUST_IMAGE"), variable(below));
        assert_eq!(
            given,
            [(Some("RUST_IMAGE"), Some(&*rust)), (Some(below), Some(&*other))].into(),
            "{name}"
        );
        assert!(
            dockerfile
                .lines()
                .any(|line| line.starts_with("FROM ") && line.ends_with(&format!(" AS {stage}")))
        );
    }
}

/// Several builds of one name at the same time fail on a machine that has no such image yet.
#[test]
fn services_that_start_together_build_no_image_twice() {
    let compose = yaml("docker/compose.yml");
    let mut built = BTreeSet::new();
    for (name, service) in compose["services"].as_hash().expect("services") {
        let name = name.as_str().expect("a name");
        let profiles = field(service, "profiles");
        let profile = if profiles.is_badvalue() { String::new() } else { texts(profiles).join(",") };
        let image = field(service, "image").as_str().expect("an image").to_string();
        let builds = !field(service, "build").is_badvalue();
        assert!(!builds || built.insert((profile, image)), "{name} builds what another one builds");
        // What is not built by itself is not to be had from a registry either.
        let policy = field(service, "pull_policy").as_str();
        assert_eq!(policy == Some("never"), name.starts_with("node-") && !builds, "{name}");
        for limit in ["cpus", "mem_limit"] {
            assert!(!field(service, limit).is_badvalue(), "{name} has no {limit}");
        }
    }
    let nodes = nodes(&compose);
    let images: BTreeSet<_> = nodes.iter().map(|(_, node)| field(node, "image").as_str()).collect();
    assert_eq!(images.len(), 1, "all nodes run the same image");
    assert_eq!(nodes.iter().filter(|(_, node)| !field(node, "build").is_badvalue()).count(), 1);
}

#[test]
fn everything_that_the_image_takes_from_the_checkout_is_there_and_sent_along() {
    let ignored = read(".dockerignore");
    let mut taken = 0;
    for line in read("docker/Dockerfile").lines().filter(|line| line.starts_with("COPY ")) {
        let words: Vec<&str> =
            line.split_whitespace().skip(1).filter(|word| !word.starts_with("--")).collect();
        if line.contains("--from=") || words == [".", "."] {
            continue;
        }
        for source in &words[..words.len() - 1] {
            taken += 1;
            assert!(root().join(source).is_file(), "{line}");
            assert!(ignored.lines().any(|kept| kept == format!("!{source}")), "{source} is not sent along");
        }
    }
    assert_eq!(taken, 3);
    // The crates compile these pages into their documentation.
    assert!(ignored.lines().any(|line| line == "!client/*.md"));
}

#[test]
fn the_module_is_loaded_from_where_it_was_put() {
    let dockerfile = read("docker/Dockerfile");
    let put =
        dockerfile.lines().find(|line| line.contains("/out/libredlock.so /")).expect("a COPY of the module");
    let place = put.split_whitespace().last().expect("a destination");
    let conf = read("docker/redlock.conf");
    assert!(conf.lines().any(|line| line == format!("loadmodule {place}")), "{conf}");
    assert!(!place.starts_with("/usr/local/lib/redis/modules"), "Redis 8 would load it a second time");
}

#[test]
fn five_nodes_share_nothing() {
    let compose = yaml("docker/compose.yml");
    let nodes = nodes(&compose);
    assert_eq!(nodes.len(), 5);
    let (mut ports, mut volumes, mut networks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (number, (name, service)) in (1..).zip(&nodes) {
        let port = texts(field(service, "ports"));
        assert_eq!(port, [format!("127.0.0.1:640{number}:6379")], "{name} is published on loopback only");
        let volume = texts(field(service, "volumes"));
        assert!(
            volume.len() == 1 && volume[0].ends_with(":/data"),
            "{name} keeps what it must remember: {volume:?}"
        );
        let declared = volume[0].trim_end_matches(":/data");
        assert!(compose["volumes"].as_hash().expect("volumes").contains_key(&Yaml::String(declared.into())));
        let own = texts(field(service, "networks"));
        assert_eq!(own.len(), 1);
        assert!(ports.insert(port) && volumes.insert(volume) && networks.insert(own[0].clone()), "{name}");

        assert_eq!(field(service, "restart").as_str(), Some("unless-stopped"));
        assert_eq!(texts(&field(service, "healthcheck")["test"]), ["CMD", "redlock-healthcheck"]);
        let command = texts(field(service, "command"));
        let setting = |name: &str| {
            let place = command.iter().position(|word| word == name).unwrap_or_else(|| panic!("no {name}"));
            command[place + 1].as_str()
        };
        assert_eq!(setting("--maxmemory-policy"), "noeviction");
        let (limit, used) = (field(service, "mem_limit").as_str().expect("a limit"), setting("--maxmemory"));
        assert!(bytes(used) * 3 / 2 <= bytes(limit), "{used} leaves no room in {limit} for a rewrite");
    }
    for service in ["exporter", "redlock"] {
        let service = &compose["services"][service];
        let watched: BTreeSet<String> = texts(&service["networks"]).into_iter().collect();
        let addresses = field(service, "environment")["REDLOCK_NODES"].as_str().expect("addresses");
        for (name, _) in &nodes {
            assert!(watched.contains(name), "{service:?} reaches {name}");
            assert!(addresses.split(',').any(|url| url == format!("redis://{name}:6379")), "{addresses}");
        }
    }
}

#[test]
fn compose_takes_the_file() {
    let compose = |arguments: &[&str]| run(Command::new("docker").arg("compose").args(arguments), SOON);
    if find("docker").is_none() || !compose(&["version"]).status.success() {
        skip("no docker with compose here");
        return;
    }
    let file = root().join("docker/compose.yml").display().to_string();
    let output = compose(&["-f", &file, "--profile", "monitoring", "config", "--quiet"]);
    assert!(output.status.success(), "{}", told(&output));
}

/// Writes an executable script.
fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("a script can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a file of one's own");
}

/// A stand-in for the image: its configuration with the module under test, and an entrypoint below ours that
/// puts the server in front of what looks like a file or an option, as those of Redis and Valkey do.
fn image(home: &Path, arguments: &[String]) -> std::path::PathBuf {
    let conf = read("docker/redlock.conf");
    let module = format!("loadmodule {}", module_path().display());
    let adapted: Vec<&str> =
        conf.lines().map(|line| if line.starts_with("loadmodule ") { &module } else { line }).collect();
    fs::write(home.join("redlock.conf"), adapted.join("\n") + "\n").expect("a configuration");
    let server = std::env::var("REDLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
    script(
        &home.join("docker-entrypoint.sh"),
        &format!(
            "#!/bin/sh\nset -e\ncase $1 in -* | *.conf) set -- '{server}' \"$@\" ;; esac\nexec \"$@\"\n"
        ),
    );
    let quoted: String = arguments.iter().map(|word| format!(" '{word}'")).collect();
    let start = home.join("start");
    // The harness hands over a file with a folder and a socket of the test's own; what the container is
    // given comes after it and wins.
    script(
        &start,
        &format!(
            "#!/bin/sh\nexport PATH='{}':\"$PATH\" REDLOCK_CONF='{}'\nexec '{}' --include \"$1\"{quoted}\n",
            home.display(),
            home.join("redlock.conf").display(),
            root().join("docker/redlock-entrypoint").display(),
        ),
    );
    start
}

#[test]
fn a_server_takes_the_arguments_that_compose_gives() {
    let compose = yaml("docker/compose.yml");
    let command = texts(field(nodes(&compose)[0].1, "command"));
    let home = tempfile::tempdir().expect("a folder");
    let server = Server::builder().without_module().binary(image(home.path(), &command)).start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(1..)));
    for pair in command.chunks_exact(2) {
        let name = pair[0].trim_start_matches('-');
        let answer = wire.call(&["CONFIG", "GET", name]);
        let value = answer.field(name).map(Answer::string).unwrap_or_default();
        let expected = if name == "maxmemory" { bytes(&pair[1]).to_string() } else { pair[1].clone() };
        assert_eq!(value, expected, "{name}");
    }
}

#[test]
fn an_image_without_arguments_loads_the_module_and_evicts_nothing() {
    let home = tempfile::tempdir().expect("a folder");
    let server = Server::builder().without_module().binary(image(home.path(), &[])).start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(1..)));
    let policy = wire.call_strs("CONFIG GET maxmemory-policy");
    assert_eq!(policy.field("maxmemory-policy"), Some(&Answer::text("noeviction")));
}

#[test]
fn a_program_or_a_file_of_ones_own_is_left_as_it_is() {
    let home = tempfile::tempdir().expect("a folder");
    script(&home.path().join("docker-entrypoint.sh"), "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    let given = |arguments: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", home.path().display());
        let mut command = Command::new(root().join("docker/redlock-entrypoint"));
        let output = run(command.args(arguments).env("PATH", path).env_remove("REDLOCK_CONF"), SOON);
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8(output.stdout).expect("words").lines().map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(given(&[]), ["/etc/redlock/redlock.conf"]);
    assert_eq!(given(&["--maxmemory", "1gb"]), ["/etc/redlock/redlock.conf", "--maxmemory", "1gb"]);
    assert_eq!(given(&["/etc/mine.conf", "--port", "1"]), ["/etc/mine.conf", "--port", "1"]);
    assert_eq!(given(&["redis-cli", "-p", "1"]), ["redis-cli", "-p", "1"]);
}

fn health(socket: &Path) -> Output {
    health_with(socket, None)
}

/// The health check with a password in a variable of that name.
fn health_with(socket: &Path, password: Option<(&str, &str)>) -> Output {
    let mut command = Command::new(root().join("docker/redlock-healthcheck"));
    command.env_remove("REDISCLI_AUTH").env_remove("VALKEYCLI_AUTH").envs(password);
    run(command.env("REDLOCK_HEALTH_OPTIONS", format!("-s {}", socket.display())), SOON)
}

#[test]
fn healthy_is_a_server_with_the_module_and_nothing_else() {
    if find("redis-cli").or_else(|| find("valkey-cli")).is_none() {
        skip("no redis-cli and no valkey-cli here");
        return;
    }
    let mut server = Server::start();
    let output = health(&server.socket());
    assert!(output.status.success(), "{}", told(&output));
    server.connect().call_strs("REDLOCK.ACQUIRE lock me 600000");
    server.kill();
    assert!(!health(&server.socket()).status.success(), "nobody is there");
    server.restart();
    assert_eq!(
        server.connect().call_strs("REDLOCK.ACQUIRE other me 1000").error_word(),
        Some("REDLOCKQUARANTINE")
    );
    let output = health(&server.socket());
    assert!(output.status.success(), "a node in quarantine is well: {}", told(&output));
    let plain = Server::builder().without_module().start();
    assert!(!health(&plain.socket()).status.success(), "a server without the module is no node");
}

/// `valkey-cli` has read one name or the other, as its version is; `redis-cli` knows its own alone.
#[test]
fn the_health_check_takes_its_password_by_either_name() {
    if find("redis-cli").or_else(|| find("valkey-cli")).is_none() {
        skip("no redis-cli and no valkey-cli here");
        return;
    }
    let server = Server::builder().password("sesame").start();
    for name in ["REDISCLI_AUTH", "VALKEYCLI_AUTH"] {
        let output = health_with(&server.socket(), Some((name, "sesame")));
        assert!(output.status.success(), "{name}: {}", told(&output));
        assert!(!health_with(&server.socket(), Some((name, "mustard"))).status.success(), "{name}");
    }
    let output = health(&server.socket());
    assert!(!output.status.success() && told(&output).contains("NOAUTH"), "{}", told(&output));
}
