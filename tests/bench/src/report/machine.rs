//! The machine and the versions of the compared libraries.

use std::fs::read_to_string;

use serde_json::{Map, Value, json};

/// The packages whose versions matter for the figures.
const PACKAGES: [&str; 4] = ["redlock-client", "redis", "rslock", "tokio"];

/// The machine in one line: processor, cores, memory, system.
pub(super) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let processor =
        field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal", ':')
        .and_then(|total| total.split_whitespace().next()?.parse::<f64>().ok())
        .map_or_else(String::new, |kib| format!(", {:.0} GiB", kib / 1024.0 / 1024.0));
    let system = field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(|| "Linux".to_owned());
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The suffix after the numbers names a local build.
    let kernel = kernel.split('-').next().unwrap_or_default().trim().to_owned();
    format!("{processor}, {cores} cores{memory}; {}, kernel {kernel}", system.trim_matches('"'))
}

/// The versions of the compared packages in `Cargo.lock`.
pub(super) fn versions() -> Value {
    let lock = include_str!("../../../../Cargo.lock");
    let version = |package: &str| {
        let at = lock.find(&format!("name = \"{package}\"\n"))?;
        lock[at..].lines().nth(1)?.split('"').nth(1).map(str::to_owned)
    };
    let all = PACKAGES.iter().filter_map(|package| Some(((*package).to_owned(), json!(version(package)?))));
    Value::Object(all.collect::<Map<_, _>>())
}

/// The value of a name in a file of `name: value` lines; `sign` is the separator.
fn field(file: &str, name: &str, sign: char) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let of = |line: &str| {
        line.split_once(sign).filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    text.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compared_package_has_a_version() {
        for package in PACKAGES {
            assert!(versions()[package].is_string(), "{package}");
        }
    }
}
