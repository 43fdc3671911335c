#!/usr/bin/env python3
"""What is linked into the programs of a release: a bill of materials, and the licences.

    inventory.py METADATA TREE FOLDER

METADATA is what `cargo metadata` prints; TREE has a line for each package that is linked, `NAME vVERSION ...`, as
`cargo tree --prefix none` prints it. Writes sbom.cdx.json (CycloneDX 1.5) and THIRD-PARTY to FOLDER. The same input gives
the same output; SOURCE_DATE_EPOCH is the time in it.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import sys
import tomllib
import uuid

metadata_path, tree_path, folder = sys.argv[1:]
metadata = json.loads(pathlib.Path(metadata_path).read_text())
linked = set(re.findall(r"(?m)^([\w-]+) v(\S+)", pathlib.Path(tree_path).read_text()))
packages = {(p["name"], p["version"]): p for p in metadata["packages"]}
lock = tomllib.loads((pathlib.Path(metadata["workspace_root"]) / "Cargo.lock").read_text())
checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
missing = linked - packages.keys()
if missing or not linked:
    sys.exit(f"cargo metadata does not know {sorted(missing)}")
ours = sorted(key for key in linked if packages[key]["source"] is None)
others = sorted(linked - set(ours))


def expression(package):
    """Returns the licence as SPDX writes it: before 2015 manifests had a slash for `OR`."""
    if not package["license"]:
        sys.exit(f"{package['name']} {package['version']} states no licence")
    return package["license"].replace(" / ", " OR ").replace("/", " OR ")


def reference(key):
    return "pkg:cargo/{}@{}".format(*key)


def component(key):
    about = {
        "type": "library",
        "bom-ref": reference(key),
        "name": key[0],
        "version": key[1],
        "purl": reference(key),
        "licenses": [{"expression": expression(packages[key])}],
    }
    if checksums.get(key):
        about["hashes"] = [{"alg": "SHA-256", "content": checksums[key]}]
    return about


by_id = {package["id"]: key for key, package in packages.items()}


def needs(node):
    kinds = lambda dep: any(kind["kind"] is None for kind in dep["dep_kinds"])
    keys = {by_id[dep["pkg"]] for dep in node["deps"] if kinds(dep)}
    return sorted(reference(key) for key in keys & linked)


main = next(key for key in ours if key[0] == "corelocal-cli")
seconds = int(os.environ["SOURCE_DATE_EPOCH"])
bill = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "serialNumber": "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(sorted(linked)))),
    "version": 1,
    "metadata": {
        "timestamp": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "component": component(main) | {"type": "application", "name": "corelocal"},
    },
    "components": [component(key) for key in sorted(linked) if key != main],
    "dependencies": [
        {"ref": reference(by_id[node["id"]]), "dependsOn": needs(node)}
        for node in metadata["resolve"]["nodes"]
        if by_id[node["id"]] in linked
    ],
}
out = pathlib.Path(folder)
(out / "sbom.cdx.json").write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")

texts = {}
for key in others:
    place = pathlib.Path(packages[key]["manifest_path"]).parent
    for path in sorted(place.iterdir()):
        if path.is_file() and re.match(r"(?i)(licen[cs]e|copying|notice|unlicense|copyright)", path.name):
            text = path.read_text(errors="replace").strip() + "\n"
            texts.setdefault(hashlib.sha256(text.encode()).hexdigest(), (text, []))[1].append(" ".join(key))
with (out / "THIRD-PARTY").open("w") as file:
    file.write("Packages that are linked into the programs of corelocal, with their licences as their manifests state them.\n\n")
    for key in others:
        file.write(f"{key[0]} {key[1]}: {expression(packages[key])}\n")
    file.write("The standard library of Rust: MIT OR Apache-2.0, with parts by other licences (its file COPYRIGHT)\n")
    file.write("The command of the archive has the GNU C library in it: LGPL-2.1-or-later; these sources build it with any other\n")
    for text, names in texts.values():
        file.write(f"\n{'=' * 78}\n{', '.join(names)}\n{'=' * 78}\n\n{text}")
