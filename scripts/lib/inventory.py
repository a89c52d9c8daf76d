"""Lists what a released file contains: the crates that are linked into it, their versions and their licences.

    inventory.py sbom      [--extra NAME=VERSION=LICENCE] PACKAGE TARGET    a CycloneDX document
    inventory.py licences  [--extra ...] PACKAGE TARGET                     the texts of all licences

`cargo tree` says which crates are linked for exactly this package and target: no proc macros, no build scripts, no
features that only other packages of the workspace use. `--extra` adds a library that is not a crate. The output depends
on the sources alone; its time is SOURCE_DATE_EPOCH.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tomllib
import uuid

LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICEN[CS]E)", re.IGNORECASE)
TREE_LINE = re.compile(r"(\d+)(\S+) v(\S+)")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(package, target):
    """The crates below a package, and for each crate the crates that it names as dependencies."""
    tree = output("cargo", "tree", "--locked", "--package", package, "--target", target, "--edges",
                  "normal,no-proc-macro", "--prefix", "depth", "--charset", "ascii")
    path, edges = [], {}
    for line in tree.splitlines():
        depth, name, version = TREE_LINE.match(line).groups()
        crate = (name, version)
        del path[int(depth):]
        edges.setdefault(crate, set())
        if path:
            edges[path[-1]].add(crate)
        path.append(crate)
    return edges


class Inventory:
    def __init__(self, options):
        self.edges = linked(options.package, options.target)
        metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1",
                                     "--filter-platform", options.target))
        self.packages = {(each["name"], each["version"]): each for each in metadata["packages"]}
        lock = tomllib.loads(pathlib.Path(metadata["workspace_root"], "Cargo.lock").read_text())
        self.checksums = {(each["name"], each["version"]): each.get("checksum") for each in lock["package"]}
        self.root = next(crate for crate in self.edges if crate[0] == options.package)
        self.extra = [each.split("=") for each in options.extra]
        rust = re.match(r"rustc (\S+)", output("rustc", "--version")).group(1)
        self.extra.insert(0, ["rust-std", rust, "MIT OR Apache-2.0"])

    def crates(self):
        return [crate for crate in sorted(self.edges) if crate != self.root]

    def component(self, crate):
        package = self.packages[crate]
        component = {"type": "library", "bom-ref": purl(crate), "name": crate[0], "version": crate[1],
                     "description": (package["description"] or "").strip(), "purl": purl(crate),
                     "licenses": [{"expression": expression(package)}]}
        if self.checksums.get(crate):
            # The digest of the .crate file, as Cargo.lock has it.
            component["hashes"] = [{"alg": "SHA-256", "content": self.checksums[crate]}]
        if package["repository"]:
            component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return component

    def sbom(self):
        root = self.component(self.root)
        if any(target["kind"] == ["bin"] for target in self.packages[self.root]["targets"]):
            root["type"] = "application"
        components = [self.component(crate) for crate in self.crates()]
        for name, version, licence in self.extra:
            components.append({"type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version,
                               "licenses": [{"expression": licence}]})
        dependencies = [{"ref": purl(crate), "dependsOn": sorted(purl(each) for each in self.edges[crate])}
                        for crate in sorted(self.edges)]
        own = next(each for each in dependencies if each["ref"] == root["bom-ref"])
        own["dependsOn"] += [f"{name}@{version}" for name, version, _ in self.extra]
        when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
        content = json.dumps([root, components, dependencies], sort_keys=True)
        document = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
            "version": 1,
            "metadata": {"timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": root},
            "components": components,
            "dependencies": dependencies,
        }
        return json.dumps(document, indent=1, ensure_ascii=False)

    def licences(self):
        lines = ["The libraries that are linked into this file, and their licences.", ""]
        texts = {}
        for crate in self.crates():
            package = self.packages[crate]
            if package["source"] is None:
                continue
            lines.append(f"{crate[0]} {crate[1]}: {expression(package)}")
            folder = pathlib.Path(package["manifest_path"]).parent
            for file in sorted(folder.iterdir()):
                if file.is_file() and LICENCE_FILE.match(file.name):
                    text = file.read_text(errors="replace").strip()
                    digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
                    texts.setdefault(digest, (text, []))[1].append(f"{crate[0]} {crate[1]}")
        for name, version, licence in self.extra:
            lines.append(f"{name} {version}: {licence}")
        for text, names in texts.values():
            lines += ["", "=" * 80, ", ".join(dict.fromkeys(names)), "=" * 80, "", text]
        return "\n".join(lines)


def purl(crate):
    return f"pkg:cargo/{crate[0]}@{crate[1]}"


def expression(package):
    # Older crates write a slash for OR.
    return re.sub(r"\s*/\s*", " OR ", package["license"])


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["sbom", "licences"])
parser.add_argument("--extra", action="append", default=[])
parser.add_argument("package")
parser.add_argument("target")
arguments = parser.parse_args()
print(getattr(Inventory(arguments), arguments.what)())
