#!/usr/bin/env python3
"""Puts the licences of everything inside a repaired wheel into it, as <name>.dist-info/licenses/third_party/PACKAGE.txt.

    tools/wheel_licences.py WHEEL

A wheel passes on what other people wrote: shared libraries that auditwheel copied, and headers that were compiled into
ours. Each comes from a Debian package, which has its terms in /usr/share/doc/PACKAGE/copyright, or from the Python
package nanobind. Ends with status 1 and the name of a library whose terms are not found.
"""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

from auditwheel.wheeltools import InWheelCtx

# What is compiled into the library, the program and the bindings without being a file of the wheel.
COMPILED_IN = ["libcli11-dev", "libhwy-dev", "libxxhash-dev", "nlohmann-json3-dev"]


def package_of(library):
    """The Debian package of a library as auditwheel names it: libdnnl-a4f9d805.so.2.6 is libdnnl.so.2.6."""
    name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library)
    found = subprocess.run(["dpkg-query", "--search", f"*/{name}*"], capture_output=True, text=True).stdout
    lines = [line.split(": ") for line in found.splitlines()]
    # Not those of cross-compilers (/usr/aarch64-linux-gnu/lib), nor those that hold a link for developers.
    packages = {package.split(":")[0] for package, path in lines if path.startswith(("/usr/lib/", "/lib/"))}
    packages = {package for package in packages if not package.endswith(("-dev", "-dbg"))}
    if len(packages) != 1:
        sys.exit(f"wheel_licences.py: {library} should come from one Debian package, not {sorted(packages) or 'none'}")
    return packages.pop()


def terms_of(package):
    path = Path("/usr/share/doc", package, "copyright")
    if not path.exists():
        sys.exit(f"wheel_licences.py: {path} is missing: install the package {package} with its documentation")
    return path.read_text(encoding="utf-8")


def licences(root):
    """Package -> the text of its licence, for a wheel that lies unpacked in a folder."""
    libraries = {package_of(path.name): path.name for path in root.glob("*.libs/*")}
    found = {package: f"{library}\n\n{terms_of(package)}" for package, library in libraries.items()}
    found |= {package: terms_of(package) for package in COMPILED_IN}
    nanobind = importlib.metadata.distribution("nanobind")
    texts = [Path(nanobind.locate_file(file)).read_text() for file in nanobind.files if file.name == "LICENSE"]
    if not texts:
        sys.exit("wheel_licences.py: the Python package nanobind has no file LICENSE")
    return found | {"nanobind": "\n\n".join(texts)}


def main():
    wheel = Path(sys.argv[1])
    with InWheelCtx(wheel, wheel) as context:
        root = Path(context.path)
        (info,) = root.glob("*.dist-info")
        folder = info / "licenses" / "third_party"
        folder.mkdir(parents=True)
        texts = licences(root)
        for package, text in texts.items():
            (folder / f"{package}.txt").write_text(text, encoding="utf-8")
        metadata = info / "METADATA"
        head, blank, body = metadata.read_text(encoding="utf-8").partition("\n\n")
        names = "".join(f"\nLicense-File: third_party/{package}.txt" for package in sorted(texts))
        metadata.write_text(head + names + blank + body, encoding="utf-8")


if __name__ == "__main__":
    main()
