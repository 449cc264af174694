"""Makes the Python wheel, whose only content is the binary: pip puts it beside python.

    wheel.py BINARY VERSION LICENCE_FOLDER OUTPUT_FOLDER
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

# A static binary runs with each C library.
TAG = "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64"

binary, version, stage, out = sys.argv[1:]
stage = Path(stage)
files = []


def add(name, data, mode=0o644):
    files.append((name, data, mode))


info = f"outlast-{version}.dist-info"
licences = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES"]
metadata = [
    "Metadata-Version: 2.4",
    "Name: outlast",
    f"Version: {version}",
    "Summary: A headless coding agent for CI, scripts and cron that survives outages",
    "License-Expression: MIT OR Apache-2.0",
    *(f"License-File: {name}" for name in licences),
    "Requires-Python: >=3.8",
    "Description-Content-Type: text/markdown",
]
wheel = ["Wheel-Version: 1.0", "Generator: outlast", "Root-Is-Purelib: false"]
# The file name has all tags at once, and the file WHEEL each of them.
python, abi, platforms = TAG.split("-")
wheel += [f"Tag: {python}-{abi}-{platform}" for platform in platforms.split(".")]

add(f"outlast-{version}.data/scripts/outlast", Path(binary).read_bytes(), 0o755)
add(f"{info}/METADATA", "\n".join(metadata).encode() + b"\n\n" + (stage / "README.md").read_bytes())
add(f"{info}/WHEEL", "\n".join(wheel).encode() + b"\n")
for name in licences:
    add(f"{info}/licenses/{name}", (stage / name).read_bytes())


def recorded(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


record = f"{info}/RECORD"
lines = [recorded(name, data) for name, data, _ in files] + [f"{record},,\n"]
add(record, "".join(lines).encode())

# The format begins in 1980.
moment = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
path = Path(out) / f"outlast-{version}-{TAG}.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
    for name, data, mode in files:
        entry = zipfile.ZipInfo(name, moment)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        packed.writestr(entry, data)
print(path)
