"""The crates that are linked into the binary: their bill of materials, and their licences.

    crates.py sbom TARGET        CycloneDX 1.6, as JSON
    crates.py licences TARGET    the texts of their licences, each once
"""

import json
import os
import subprocess
import sys
import uuid
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path

LICENCE_NAMES = ("licen", "copying", "copyright", "notice", "unlicense")


def linked(target):
    """Returns our package, and what is linked: packages by id, with the ids of what they use."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += ["--filter-platform", target]
    facts = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in facts["packages"]}
    nodes = {node["id"]: node for node in facts["resolve"]["nodes"]}

    def is_macro(name):
        return any("proc-macro" in target["kind"] for target in packages[name]["targets"])

    def uses(name):
        found = []
        for used in nodes[name]["deps"]:
            is_normal = any(kind["kind"] is None for kind in used["dep_kinds"])
            if is_normal and not is_macro(used["pkg"]):
                found.append(used["pkg"])
        return sorted(found)

    root = facts["resolve"]["root"]
    graph, open_names = {}, [root]
    while open_names:
        name = open_names.pop()
        if name not in graph:
            graph[name] = uses(name)
            open_names += graph[name]
    return root, packages, dict(sorted(graph.items()))


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, kind):
    made = {
        "type": kind,
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["description"]:
        made["description"] = " ".join(package["description"].split())
    if package["license"]:
        # Cargo accepts a slash for OR.
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return made


def sbom(root, packages, graph):
    made_at = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    others = [name for name in graph if name != root]
    names = "".join(reference(packages[name]) for name in graph)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, names)}",
        "version": 1,
        "metadata": {
            "timestamp": made_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(packages[root], "application"),
        },
        "components": [component(packages[name], "library") for name in others],
        "dependencies": [
            {
                "ref": reference(packages[name]),
                "dependsOn": [reference(packages[used]) for used in used_names],
            }
            for name, used_names in graph.items()
        ],
    }


def licences(root, packages, graph):
    """Returns one text. Crates whose licences are equal share a section."""
    sharing = defaultdict(list)
    for name in graph:
        package = packages[name]
        if name == root:
            continue
        folder = Path(package["manifest_path"]).parent
        files = [path for path in sorted(folder.iterdir()) if path.is_file()]
        files = [path for path in files if path.name.lower().startswith(LICENCE_NAMES)]
        texts = {path.read_text(errors="replace").strip() for path in files}
        # Some crates name their licence and have no copy of it.
        texts = texts or {f"Licence: {package['license']}"}
        for text in texts:
            sharing[text].append(f"{package['name']} {package['version']}")
    sections = [f"{', '.join(names)}\n\n{text}\n" for text, names in sorted(sharing.items())]
    line = "-" * 80
    return f"outlast contains these crates.\n\n{line}\n" + f"\n{line}\n".join(sections)


what, target = sys.argv[1:]
if what == "sbom":
    print(json.dumps(sbom(*linked(target)), indent=1))
else:
    print(licences(*linked(target)), end="")
