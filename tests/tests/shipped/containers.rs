//! `docker/`: checks of the image and the compose file that need no container engine.
//!
//! The tests read the compose file and start a server with its arguments, through the entrypoint of the image.
//! `scripts/images` builds and runs the image on a machine with an engine.

use crate::page::{read, root};
use crate::program::{describe, find, run};
use redlock_tests::{Answer, SOON, Server, StartFailure, module_path, skip};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use yaml_rust2::{Yaml, YamlLoader};

/// Reads a file with one YAML document. [`field`] resolves `<<`, one level deep: the file uses no more.
fn yaml(path: &str) -> Yaml {
    let mut documents =
        YamlLoader::load_from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

/// A field of a service, either its own or one merged with `<<`.
fn field<'a>(service: &'a Yaml, name: &str) -> &'a Yaml {
    match &service[name] {
        Yaml::BadValue => &service["<<"][name],
        own => own,
    }
}

pub(crate) fn texts(list: &Yaml) -> Vec<String> {
    let members = list.as_vec().unwrap_or_else(|| panic!("not a list: {list:?}"));
    let text = |one: &Yaml| one.as_str().unwrap_or_else(|| panic!("not a text: {one:?}")).to_string();
    members.iter().map(text).collect()
}

/// The names and definitions of the services that are nodes.
fn nodes(compose: &Yaml) -> Vec<(String, &Yaml)> {
    let services = compose["services"].as_hash().expect("services");
    let named = services.iter().map(|(name, service)| (name.as_str().expect("a name").to_string(), service));
    named.filter(|(name, _)| name.starts_with("node-")).collect()
}

/// A size in bytes: `160mb` as the server writes it, `256m` as compose does, or `512Mi` as Kubernetes does.
pub(crate) fn bytes(size: &str) -> u64 {
    let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("not a size: {size}"));
    match &size[digits.len()..] {
        "mb" | "m" | "Mi" => number << 20,
        "gb" | "g" | "Gi" => number << 30,
        unit => panic!("a unit that this test does not know: {unit}"),
    }
}

/// The default of a build argument in the Dockerfile.
fn argument(dockerfile: &str, name: &str) -> String {
    let prefix = format!("ARG {name}=");
    let mut values = dockerfile.lines().filter_map(|line| line.strip_prefix(&prefix));
    let value = values.next().unwrap_or_else(|| panic!("no default for {name}"));
    assert_eq!(values.next(), None, "{name} has two defaults");
    value.to_string()
}

#[test]
fn the_image_is_built_with_the_compiler_of_rust_version() {
    let manifest = read("Cargo.toml");
    let minimum = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let minimum = minimum.expect("Cargo.toml has a rust-version").trim_matches('"');
    let image = argument(&read("docker/Dockerfile"), "RUST_IMAGE");
    assert!(
        image.starts_with(&format!("docker.io/library/rust:{minimum}-")),
        "{image}, and rust-version is {minimum}"
    );
}

#[test]
fn dockerfile_and_compose_file_name_the_same_base_images() {
    let dockerfile = read("docker/Dockerfile");
    let server = argument(&dockerfile, "SERVER_IMAGE");
    assert!(!server.contains("alpine"), "the module needs glibc, and Alpine has musl");
    let compose = yaml("docker/compose.yml");
    let services = &compose["services"];
    for (name, stage) in [("node-1", "node"), ("exporter", "command"), ("redlock", "command")] {
        let build = field(&services[name], "build");
        assert_eq!(build["target"].as_str(), Some(stage));
        // A user who wants other base images sets them in one place, for docker or for compose.
        let base = if stage == "node" { "SERVER_IMAGE" } else { "COMMAND_IMAGE" };
        let given = build["args"].as_hash().expect("arguments");
        let given: BTreeSet<_> = given.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let variable = |name| format!("${{{name}:-{}}}", argument(&dockerfile, name));
        let (rust, other) = (variable("RUST_IMAGE"), variable(base));
        assert_eq!(given, [(Some("RUST_IMAGE"), Some(&*rust)), (Some(base), Some(&*other))].into(), "{name}");
        assert!(
            dockerfile
                .lines()
                .any(|line| line.starts_with("FROM ") && line.ends_with(&format!(" AS {stage}")))
        );
    }
}

/// On a machine without the image, several concurrent builds of one image name fail.
#[test]
fn services_that_start_together_build_each_image_once() {
    let compose = yaml("docker/compose.yml");
    let mut built = BTreeSet::new();
    for (name, service) in compose["services"].as_hash().expect("services") {
        let name = name.as_str().expect("a name");
        let profiles = field(service, "profiles");
        let profile = if profiles.is_badvalue() { String::new() } else { texts(profiles).join(",") };
        let image = field(service, "image").as_str().expect("an image").to_string();
        let builds = !field(service, "build").is_badvalue();
        assert!(!builds || built.insert((profile, image)), "{name} builds the image of another service");
        // A node that does not build its image must not pull it: no registry has it.
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
fn every_file_that_the_image_copies_exists_and_is_in_the_build_context() {
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
            assert!(
                ignored.lines().any(|kept| kept == format!("!{source}")),
                "{source} is not in the build context"
            );
        }
    }
    assert_eq!(taken, 3);
    // The crates compile these pages into their documentation.
    assert!(ignored.lines().any(|line| line == "!client/*.md"));
}

#[test]
fn redlock_conf_loads_the_module_from_where_the_image_has_it() {
    let dockerfile = read("docker/Dockerfile");
    let copy =
        dockerfile.lines().find(|line| line.contains("/out/libredlock.so /")).expect("a COPY of the module");
    let place = copy.split_whitespace().last().expect("a destination");
    let conf = read("docker/redlock.conf");
    assert!(conf.lines().any(|line| line == format!("loadmodule {place}")), "{conf}");
    assert!(!place.starts_with("/usr/local/lib/redis/modules"), "Redis 8 would load it a second time");
}

#[test]
fn five_nodes_share_no_port_volume_or_network() {
    let compose = yaml("docker/compose.yml");
    let nodes = nodes(&compose);
    assert_eq!(nodes.len(), 5);
    let (mut ports, mut volumes, mut networks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (number, (name, service)) in (1..).zip(&nodes) {
        let port = texts(field(service, "ports"));
        assert_eq!(
            port,
            [format!("127.0.0.1:640{number}:6379")],
            "{name} must publish its port on loopback only"
        );
        let volume = texts(field(service, "volumes"));
        assert!(
            volume.len() == 1 && volume[0].ends_with(":/data"),
            "{name} must store its data in a volume: {volume:?}"
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
        assert!(
            bytes(used) * 3 / 2 <= bytes(limit),
            "maxmemory {used} is too large for an AOF rewrite within {limit}"
        );
    }
    for service in ["exporter", "redlock"] {
        let service = &compose["services"][service];
        let watched: BTreeSet<String> = texts(&service["networks"]).into_iter().collect();
        let addresses = field(service, "environment")["REDLOCK_NODES"].as_str().expect("addresses");
        for (name, _) in &nodes {
            assert!(watched.contains(name), "{service:?} cannot reach {name}");
            assert!(addresses.split(',').any(|url| url == format!("redis://{name}:6379")), "{addresses}");
        }
    }
}

#[test]
fn docker_compose_accepts_the_file() {
    let compose = |arguments: &[&str]| run(Command::new("docker").arg("compose").args(arguments), SOON);
    if find("docker").is_none() || !compose(&["version"]).status.success() {
        skip("docker compose is not installed");
        return;
    }
    let file = root().join("docker/compose.yml").display().to_string();
    let output = compose(&["-f", &file, "--profile", "monitoring", "config", "--quiet"]);
    assert!(output.status.success(), "{}", describe(&output));
}

/// Writes an executable script.
pub(crate) fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("the script can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the test owns the file");
}

/// Prepares a replacement for the image and returns its start script: the configuration of the image with the module
/// under test, and a `docker-entrypoint.sh` like those of Redis and Valkey, which runs the server if its first argument
/// is a file or an option.
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
    // The harness passes a configuration file with the folder and the socket of the test. The arguments of the
    // container come after it and override it.
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
fn a_server_accepts_the_arguments_of_the_compose_file() {
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

/// A server that the entrypoint starts with `REDLOCK_NEW_NODE`.
fn new_node(home: &Path, value: &str, data: &Path) -> Result<Server, StartFailure> {
    let start = image(home, &["--appendonly".into(), "yes".into()]);
    let wrapper = home.join("wrapper");
    script(
        &wrapper,
        &format!("#!/bin/sh\nexport REDLOCK_NEW_NODE='{value}'\nexec '{}' \"$1\"\n", start.display()),
    );
    Server::builder().without_module().data_dir(data).binary(wrapper).try_start()
}

#[test]
fn the_image_starts_a_new_node_without_a_vote_if_asked() {
    let home = tempfile::tempdir().expect("a folder");
    let (known, empty) = (home.path().join("known"), home.path().join("empty"));
    let voting = |server: &Server| server.connect().call_strs("REDLOCK.NODE").field("voting").cloned();
    let mut server = new_node(home.path(), "", &known).expect("a server");
    assert_eq!(voting(&server), Some(Answer::Int(1)));
    server.shutdown();
    drop(server);

    let server = new_node(home.path(), "non-voting", &known).expect("a server");
    assert_eq!(voting(&server), Some(Answer::Int(1)), "a node with its state file");
    let server = new_node(home.path(), "non-voting", &empty).expect("a server");
    assert_eq!(voting(&server), Some(Answer::Int(0)), "a node without a state file");
    // The entrypoint passes the whole configuration and the options of the container.
    for (name, value) in [("maxmemory-policy", "noeviction"), ("appendonly", "yes")] {
        let setting = server.connect().call(&["CONFIG", "GET", name]);
        assert_eq!(setting.field(name), Some(&Answer::text(value)));
    }
    let failure = new_node(home.path(), "perhaps", &home.path().join("other")).expect_err("no server");
    assert!(failure.log.contains("needs one of voting, non-voting"), "{failure}");

    let compose = yaml("docker/compose.yml");
    for (name, service) in nodes(&compose) {
        let value = field(service, "environment")["REDLOCK_NEW_NODE"].as_str();
        assert_eq!(value, Some("${REDLOCK_NEW_NODE:-}"), "{name}");
    }
}

#[test]
fn the_entrypoint_does_not_change_another_program_or_configuration_file() {
    let home = tempfile::tempdir().expect("a folder");
    script(&home.path().join("docker-entrypoint.sh"), "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    let given = |arguments: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", home.path().display());
        let mut command = Command::new(root().join("docker/redlock-entrypoint"));
        let output = run(command.args(arguments).env("PATH", path).env_remove("REDLOCK_CONF"), SOON);
        assert!(output.status.success(), "{}", describe(&output));
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

/// Runs the health check. `password` is an environment variable and its value.
fn health_with(socket: &Path, password: Option<(&str, &str)>) -> Output {
    let mut command = Command::new(root().join("docker/redlock-healthcheck"));
    command.env_remove("REDISCLI_AUTH").env_remove("VALKEYCLI_AUTH").envs(password);
    run(command.env("REDLOCK_HEALTH_OPTIONS", format!("-s {}", socket.display())), SOON)
}

#[test]
fn the_health_check_accepts_only_a_server_with_the_module() {
    if find("redis-cli").or_else(|| find("valkey-cli")).is_none() {
        skip("neither redis-cli nor valkey-cli is installed");
        return;
    }
    let mut server = Server::start();
    let output = health(&server.socket());
    assert!(output.status.success(), "{}", describe(&output));
    server.connect().call_strs("REDLOCK.ACQUIRE lock me 600000");
    server.kill();
    assert!(!health(&server.socket()).status.success(), "the server has ended");
    server.restart();
    assert_eq!(
        server.connect().call_strs("REDLOCK.ACQUIRE other me 1000").error_word(),
        Some("REDLOCKQUARANTINE")
    );
    let output = health(&server.socket());
    assert!(output.status.success(), "a node in quarantine is healthy: {}", describe(&output));
    let plain = Server::builder().without_module().start();
    assert!(!health(&plain.socket()).status.success(), "a server without the module is not a node");
}

#[test]
fn the_health_check_tells_a_granting_node_from_one_that_waits() {
    if find("redis-cli").or_else(|| find("valkey-cli")).is_none() {
        skip("neither redis-cli nor valkey-cli is installed");
        return;
    }
    let granting = |server: &Server| {
        let mut command = Command::new(root().join("docker/redlock-healthcheck"));
        command.arg("--granting").env_remove("REDISCLI_AUTH").env_remove("VALKEYCLI_AUTH");
        command.env("REDLOCK_HEALTH_OPTIONS", format!("-s {}", server.socket().display()));
        run(&mut command, SOON)
    };
    let mut server = Server::start();
    let output = granting(&server);
    assert!(output.status.success(), "{}", describe(&output));
    server.connect().call_strs("REDLOCK.ACQUIRE lock me 600000");
    server.kill();
    server.restart();
    let output = granting(&server);
    assert!(!output.status.success(), "a node in quarantine: {}", describe(&output));
    assert!(describe(&output).contains("quarantine-ms"), "{}", describe(&output));

    let server = Server::builder().module_args(["new-node", "non-voting"]).start();
    assert!(health(&server.socket()).status.success(), "a non-voting node is healthy");
    assert!(!granting(&server).status.success(), "a non-voting node grants nothing");
    let plain = Server::builder().without_module().start();
    assert!(!granting(&plain).status.success(), "a server without the module is not a node");
}

#[test]
fn the_default_base_image_has_a_server_that_the_project_supports() {
    let image = argument(&read("docker/Dockerfile"), "SERVER_IMAGE");
    let (server, tag) = image.rsplit('/').next().and_then(|name| name.split_once(':')).expect("name:tag");
    let version = tag.split('-').next().expect("a version");
    let name = match server {
        "redis" => format!("Redis {version}"),
        "valkey" => format!("Valkey {version}"),
        other => panic!("a server that this test does not know: {other}"),
    };
    assert!(read("README.md").contains(&name), "README.md does not list {name} among the tested servers");
}

/// Versions of `valkey-cli` read one name or the other; `redis-cli` reads only its own.
#[test]
fn the_health_check_takes_its_password_by_either_name() {
    if find("redis-cli").or_else(|| find("valkey-cli")).is_none() {
        skip("neither redis-cli nor valkey-cli is installed");
        return;
    }
    let server = Server::builder().password("sesame").start();
    for name in ["REDISCLI_AUTH", "VALKEYCLI_AUTH"] {
        let output = health_with(&server.socket(), Some((name, "sesame")));
        assert!(output.status.success(), "{name}: {}", describe(&output));
        assert!(!health_with(&server.socket(), Some((name, "mustard"))).status.success(), "{name}");
    }
    let output = health(&server.socket());
    assert!(!output.status.success() && describe(&output).contains("NOAUTH"), "{}", describe(&output));
}
