//! `docker/kubernetes/` and `docker/systemd/`: they keep the rules of `module/OPERATIONS.md`, and servers accept their
//! configurations and users. `scripts/lib/manifests.sh` checks the files against the schemas of Kubernetes and systemd.

use crate::containers::{bytes, script, texts};
use crate::operations::{configured_by, recommended, settings};
use crate::page::{Page, read, root};
use crate::program::{describe, find, run};
use redlock_tests::{Answer, SOON, Server, granted, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

/// The seconds that a server needs to stop, as OPERATIONS.md says under "Restarts".
const STOP_SECONDS: i64 = 30;

/// All resources of `docker/kubernetes`, by kind and name.
fn resources() -> BTreeMap<(String, String), Yaml> {
    let files = fs::read_dir(root().join("docker/kubernetes")).expect("the folder of manifests");
    let paths = files.map(|file| file.expect("a file").path());
    let mut found = BTreeMap::new();
    for path in paths.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")) {
        let text = fs::read_to_string(&path).expect("a manifest");
        for resource in YamlLoader::load_from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")) {
            let name = |field: &Yaml| field.as_str().unwrap_or_else(|| panic!("{path:?}")).to_owned();
            let key = (name(&resource["kind"]), name(&resource["metadata"]["name"]));
            assert!(found.insert(key, resource).is_none(), "{path:?} repeats a name");
        }
    }
    found
}

fn resource(kind: &str) -> Yaml {
    resources()
        .remove(&(kind.to_owned(), "redlock".to_owned()))
        .unwrap_or_else(|| panic!("no {kind} named redlock"))
}

/// The configuration of the nodes in Kubernetes.
fn kubernetes_configuration() -> String {
    resource("ConfigMap")["data"]["node.conf"].as_str().expect("a configuration").to_owned()
}

/// The container of a node.
fn container(nodes: &Yaml) -> &Yaml {
    &nodes["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn kubernetes_runs_five_nodes_that_fail_alone() {
    let nodes = resource("StatefulSet");
    let (spec, pod) = (&nodes["spec"], &nodes["spec"]["template"]);
    assert_eq!(spec["replicas"].as_i64(), Some(5));
    assert_eq!(spec["podManagementPolicy"].as_str(), Some("Parallel"), "no node waits for another one");
    let labels = &pod["metadata"]["labels"];
    assert!(labels.as_hash().is_some_and(|labels| !labels.is_empty()));
    let affinity = &pod["spec"]["affinity"]["podAntiAffinity"];
    let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(required["topologyKey"].as_str(), Some("kubernetes.io/hostname"));

    let (service, policy) = (resource("Service"), resource("NetworkPolicy"));
    let budget = resource("PodDisruptionBudget");
    let (replicas, away) = (spec["replicas"].as_i64(), budget["spec"]["maxUnavailable"].as_i64());
    let (replicas, away) = replicas.zip(away).expect("two numbers");
    assert!((1..=(replicas - 1) / 2).contains(&away), "{away} of {replicas} nodes may be evicted");
    let selectors = [
        &spec["selector"]["matchLabels"],
        &required["labelSelector"]["matchLabels"],
        &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
        &budget["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &policy["spec"]["podSelector"]["matchLabels"],
    ];
    for selector in selectors {
        assert_eq!(selector, labels);
    }
}

#[test]
fn a_pod_of_kubernetes_stays_the_same_node() {
    let nodes = resource("StatefulSet");
    let spec = &nodes["spec"];
    let claim = &spec["volumeClaimTemplates"][0];
    assert_eq!(texts(&claim["spec"]["accessModes"]), ["ReadWriteOncePod"], "one server on a volume");
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for event in ["whenDeleted", "whenScaled"] {
        assert_eq!(retention[event].as_str(), Some("Retain"));
    }
    let mounts = container(&nodes)["volumeMounts"].as_vec().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["name"] == claim["metadata"]["name"]).expect("the volume");
    let configuration = kubernetes_configuration();
    let dir = settings(&configuration).find(|(name, _)| *name == "dir").expect("a dir").1;
    assert_eq!(mount["mountPath"].as_str(), Some(dir));
    assert_eq!(
        spec["template"]["spec"]["terminationGracePeriodSeconds"].as_i64(),
        Some(STOP_SECONDS),
        "a killed node comes back in quarantine"
    );
}

#[test]
fn kubernetes_kills_no_node_that_waits() {
    let nodes = resource("StatefulSet");
    let command = |probe: &str| texts(&container(&nodes)[probe]["exec"]["command"]);
    for probe in ["startupProbe", "livenessProbe"] {
        assert_eq!(command(probe), ["redlock-healthcheck"], "{probe}");
    }
    assert_eq!(command("readinessProbe"), ["redlock-healthcheck", "--granting"]);
    // An operator must reach a node that does not vote yet.
    let service = resource("Service");
    assert_eq!(service["spec"]["publishNotReadyAddresses"].as_bool(), Some(true));
    assert_eq!(service["spec"]["clusterIP"].as_str(), Some("None"), "a name for each pod");
    assert_eq!(service["metadata"]["name"], nodes["spec"]["serviceName"]);
}

#[test]
fn the_addresses_in_kubernetes_are_those_of_the_pods() {
    let (nodes, config) = (resource("StatefulSet"), resource("ConfigMap"));
    let text = |field: &Yaml| field.as_str().expect("a text").to_owned();
    let (set, service) = (text(&nodes["metadata"]["name"]), text(&nodes["spec"]["serviceName"]));
    let namespace = text(&nodes["metadata"]["namespace"]);
    let replicas = nodes["spec"]["replicas"].as_i64().expect("a number");
    let expected: Vec<String> =
        (0..replicas).map(|pod| format!("redis://{set}-{pod}.{service}.{namespace}.svc:6379")).collect();
    assert_eq!(text(&config["data"]["nodes"]).trim_end(), expected.join(","));
    for ((kind, name), resource) in resources() {
        let is_cluster_wide = kind == "Namespace";
        assert_eq!(resource["metadata"]["namespace"].is_badvalue(), is_cluster_wide, "{kind} {name}");
    }
}

#[test]
fn the_manifests_have_no_password_and_the_version_of_the_project() {
    let manifest = read("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    let version = version.expect("a version").trim_matches('"');
    let mut images = BTreeSet::new();
    for ((kind, name), resource) in resources() {
        assert_ne!(
            kind, "Secret",
            "{name}: it would replace the passwords whenever an operator applies the folder"
        );
        let Some(containers) = resource["spec"]["template"]["spec"]["containers"].as_vec() else { continue };
        for container in containers {
            images.insert(container["image"].as_str().expect("an image").to_owned());
            for variable in container["env"].as_vec().into_iter().flatten() {
                let name = variable["name"].as_str().expect("a name");
                let is_secret = name.contains("AUTH") || name.contains("PASSWORD");
                let source = &variable["valueFrom"]["secretKeyRef"]["name"];
                assert_eq!(source.as_str().is_some(), is_secret, "{name}");
            }
        }
    }
    let expected = [format!("redlock-command:{version}"), format!("redlock:{version}")];
    assert_eq!(images, expected.into());
}

/// The settings of a node that do not depend on where it runs.
fn common(configuration: &str) -> BTreeMap<&str, &str> {
    let own = ["loadmodule", "dir", "bind", "port", "aclfile", "maxmemory"];
    settings(configuration).filter(|(name, _)| !own.contains(name)).collect()
}

#[test]
fn servers_accept_the_configurations_and_they_agree_with_the_guide() {
    let guide = recommended();
    for configuration in [kubernetes_configuration(), read("docker/systemd/node.conf")] {
        assert_eq!(common(&configuration), common(&guide));
        let server = configured_by(&configuration, Server::builder()).start();
        let mut wire = server.connect();
        granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 600000"));
        assert_eq!(wire.call_strs("REDLOCK.ACQUIRE other me 600001").error_word(), Some("REDLOCKTTL"));
        // The guide tells the operator to change this word after the first start.
        assert_eq!(configuration.matches("new-node voting\n").count(), 1, "{configuration}");
        let later = configuration.replace("new-node voting", "new-node non-voting");
        let server = configured_by(&later, Server::builder()).start();
        let answer = server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000");
        assert_eq!(answer.error_word(), Some("REDLOCKNOVOTE"));
    }
    let nodes = resource("StatefulSet");
    let limit = container(&nodes)["resources"]["limits"]["memory"].as_str().expect("a limit");
    let configuration = kubernetes_configuration();
    let used = settings(&configuration).find(|(name, _)| *name == "maxmemory").expect("a limit").1;
    assert!(
        bytes(used) * 3 / 2 <= bytes(limit),
        "maxmemory {used} is too large for an AOF rewrite in {limit}"
    );
}

/// The users of Kubernetes: the name and the rules of each.
fn users(acl: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let (name, rules) = line.strip_prefix("user ")?.split_once(' ')?;
        Some((name.to_owned(), rules.to_owned()))
    };
    acl.lines().map(|text| line(text).unwrap_or_else(|| panic!("not a user: {text}"))).collect()
}

#[test]
fn users_of_kubernetes_have_the_permissions_of_the_guide() {
    let guide = Page::open("module/OPERATIONS.md").text;
    let mut same = 0;
    for (name, rules) in users(&read("docker/kubernetes/users.acl")) {
        let prefix = format!("ACL SETUSER {name} ");
        let Some(line) = guide.lines().find_map(|line| line.strip_prefix(&prefix)) else {
            assert_eq!(name, "health", "the guide does not know this user");
            continue;
        };
        let permissions = |rules: &str| {
            let words = rules.split(' ').filter(|word| !word.starts_with(['#', '>']));
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(permissions(&rules), permissions(line), "{name}");
        same += 1;
    }
    assert_eq!(same, 3, "default, operator and one application");
}

/// Runs the commands of the guide that create the passwords, with a `kubectl` that keeps the files.
fn create_passwords(home: &Path) -> BTreeMap<String, String> {
    let page = Page::open("module/OPERATIONS.md");
    let is_it = |text: &str| text.contains("kubectl create secret");
    let block =
        page.blocks().into_iter().find(|block| is_it(&block.text)).expect("a block that creates a secret");
    let kept = home.join("kept");
    fs::create_dir(&kept).expect("a folder");
    script(
        &home.join("kubectl"),
        &format!(
            "#!/bin/sh\nfor word in \"$@\"; do\n    case $word in\n    --from-file=*) cp \"${{word#*=}}\"/* '{}' ;;\n    \
             esac\ndone\n",
            kept.display()
        ),
    );
    let path = format!("{}:{}", home.display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new("sh");
    command.args(["-euc", &block.text]).current_dir(root()).env("PATH", path).env("TMPDIR", home);
    let output = run(&mut command, SOON);
    assert!(output.status.success(), "{}", describe(&output));
    let left: Vec<_> =
        fs::read_dir(home).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left.len(), 2, "the block removes its files: {left:?}");
    let files = fs::read_dir(&kept).expect("a folder").map(|entry| entry.expect("a file"));
    let content = |file: fs::DirEntry| {
        let text = fs::read_to_string(file.path()).expect("a file of the secret");
        (file.file_name().to_string_lossy().into_owned(), text)
    };
    files.map(content).collect()
}

#[test]
fn the_passwords_of_the_guide_open_the_nodes_of_kubernetes() {
    let home = tempfile::tempdir().expect("a folder");
    let mut secret = create_passwords(home.path());
    let acl = secret.remove("users.acl").expect("the users");
    let server = Server::start();
    let users = users(&acl);
    for (name, rules) in users.iter().rev() {
        let words = ["ACL", "SETUSER", name.as_str()].into_iter().chain(rules.split(' '));
        assert_eq!(server.connect().call(&words.collect::<Vec<_>>()), Answer::ok(), "{name}");
    }
    assert_eq!(server.connect().call_strs("REDLOCK.NODE").error_word(), Some("NOAUTH"));
    // Each file is the password of its user, and each user but the default one has a password.
    assert_eq!(secret.len() + 1, users.len(), "{:?}", secret.keys());
    for (name, password) in &secret {
        assert_eq!(password.len(), 48, "24 random bytes in hexadecimal digits");
        let mut wire = server.connect();
        assert_eq!(wire.call(&["AUTH", name, password]), Answer::ok(), "{name}");
        assert!(wire.call_strs("REDLOCK.NODE").field("node-id").is_some(), "{name}");
        assert!(!acl.contains(password.as_str()), "the ACL file has sums only");
    }
    let nodes = resource("StatefulSet");
    let variables = container(&nodes)["env"].as_vec().expect("variables");
    let variable = |name: &str| variables.iter().find(|variable| variable["name"].as_str() == Some(name));
    let key = &variable("REDISCLI_AUTH").expect("a password")["valueFrom"]["secretKeyRef"]["key"];
    let options = variable("REDLOCK_HEALTH_OPTIONS").expect("options")["value"].as_str().expect("options");
    if find("redis-cli").or_else(|| find("valkey-cli")).is_none() {
        skip("neither redis-cli nor valkey-cli is installed");
        return;
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let words = texts(&container(&nodes)[probe]["exec"]["command"]);
        let mut command = Command::new(root().join("docker").join(&words[0]));
        command.args(&words[1..]).env_remove("VALKEYCLI_AUTH");
        command.env("REDISCLI_AUTH", &secret[key.as_str().expect("a key")]);
        command.env("REDLOCK_HEALTH_OPTIONS", format!("{options} -s {}", server.socket().display()));
        let output = run(&mut command, SOON);
        assert!(output.status.success(), "{probe}: {}", describe(&output));
    }
}

/// The values of a setting of a unit.
fn values<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

#[test]
fn the_unit_of_systemd_keeps_the_rules_of_the_guide() {
    let unit = read("docker/systemd/redlock-node@.service");
    let one = |name| {
        let found = values(&unit, name);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0]
    };
    assert_eq!(one("TimeoutStopSec"), format!("{STOP_SECONDS}s"), "a killed node comes back in quarantine");
    assert_eq!(one("Restart"), "on-failure", "a node that an operator has stopped stays stopped");
    let dir = format!("/var/lib/{}", one("StateDirectory"));
    assert_eq!(dir, "/var/lib/redlock/%i", "a dir for each node");
    assert_eq!(one("RequiresMountsFor"), dir, "not on an empty folder where a disk belongs");
    let start = one("ExecStart");
    assert!(start.contains(&format!(" /etc/redlock/%i.conf --dir {dir} ")), "{start}");
    assert!(values(&unit, "DynamicUser").is_empty(), "systemd would move the folder of the state file");
    let guide = Page::open("module/OPERATIONS.md").text;
    assert!(guide.contains(&format!(
        "useradd --system --home-dir /var/lib/redlock --shell /usr/sbin/nologin {}\n",
        one("User")
    )));
    assert!(guide.contains("stop timeout of the service manager to 30 seconds"));
}

/// The package, the images and the guide agree on the path, so that each configuration works with each of them.
#[test]
fn every_configuration_loads_the_module_from_one_place() {
    let files = [
        "docker/Dockerfile",
        "docker/redlock.conf",
        "docker/kubernetes/config.yaml",
        "docker/systemd/node.conf",
        "module/OPERATIONS.md",
        "scripts/lib/debs.sh",
    ];
    for file in files {
        let text = read(file);
        let words = text.split(|c: char| c.is_whitespace() || "`\"".contains(c));
        let places: BTreeSet<&str> = words
            .filter_map(|word| word.strip_suffix("/libredlock.so"))
            .filter(|place| place.contains("/lib/"))
            .map(|place| place.trim_start_matches("$tree"))
            .collect();
        assert_eq!(places, BTreeSet::from(["/usr/lib/redlock"]), "{file}");
    }
}

#[test]
fn every_file_that_the_commands_of_the_guide_name_is_there() {
    let page = Page::open("module/OPERATIONS.md");
    let mut named = BTreeSet::new();
    for block in page.blocks().iter().filter(|block| block.language == "bash") {
        named.extend(
            block.text.split_whitespace().filter(|word| word.starts_with("docker/")).map(str::to_owned),
        );
    }
    assert!(named.len() > 4, "{named:?}");
    for name in named {
        assert!(root().join(&name).exists(), "{name}");
    }
}
