"""Lists the types and traits of other crates in the public interface of a crate.

usage: public_types.py rustdoc.json

Reads the JSON form of rustdoc. Counts what a public item names in its signature: arguments, results, fields, bounds,
implemented traits. The standard library is left out.
"""

import json
import sys

STANDARD = {"std", "core", "alloc"}
# The forms of the JSON that this script reads correctly. Rust 1.95 writes 57. In another form, fields may have other
# names, and types would be left out without an error.
FORMATS = {57}
HEADER = "# Types and traits of other crates in the public interface of redlock-client, by scripts/lib/public_types.py."


def paths_in(node):
    """Yields the ids of all types and traits that a part of a signature names."""
    if isinstance(node, dict):
        if "id" in node and "path" in node:
            yield str(node["id"])
        for key, child in node.items():
            # The items inside a module, a type or an impl block are visited by themselves.
            if key not in ("items", "impls", "implementations", "variants", "links", "docs", "attrs"):
                yield from paths_in(child)
    elif isinstance(node, list):
        for child in node:
            yield from paths_in(child)


def is_written_by_hand(item):
    block = item["inner"].get("impl")
    return block is None or not (block.get("is_synthetic") or block.get("blanket_impl"))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        crate = json.load(file)
    if crate["format_version"] not in FORMATS:
        sys.exit(
            f"rustdoc writes the form {crate['format_version']} of its JSON, and scripts/lib/public_types.py reads "
            f"{sorted(FORMATS)}. Read in rustdoc-json-types what has changed, and add the number to FORMATS."
        )
    names = {int(number): info["name"] for number, info in crate["external_crates"].items()}
    # Items of modules that are not public do not matter unless a public item names them: rustdoc leaves them out.
    found = set()
    for item in crate["index"].values():
        if item["crate_id"] != 0 or item["visibility"] not in ("public", "default") or not is_written_by_hand(item):
            continue
        if "use" in item["inner"]:
            continue
        for number in paths_in(item["inner"]):
            summary = crate["paths"].get(number)
            if summary is None or summary["crate_id"] == 0:
                continue
            if names.get(summary["crate_id"]) not in STANDARD:
                found.add("::".join(summary["path"]))
    print(HEADER)
    for path in sorted(found):
        print(path)


main()
