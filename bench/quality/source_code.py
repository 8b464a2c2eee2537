"""Prepares a corpus of source code: the C files of the Linux kernel, as Debian packages them.

    python bench/quality/source_code.py FOLDER [--package linux-source-6.1] [--megabytes 256]

It downloads the package by `apt-get download` (some 140 MB), and writes FOLDER/train.bin and FOLDER/held_out.bin, the
bytes of whole files. The order of the files depends on their names alone. One file of 256 is held out.
"""

import argparse
import hashlib
import pathlib
import subprocess
import tarfile
import tempfile

SUFFIXES = (".c", ".h", ".S", ".rs", ".py", ".sh")
HELD_OUT_MOST = 1 << 20  # bytes


def source_archive(package, folder):
    """Downloads a package of a kernel's source and returns the path of the archive in it."""
    subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
    (deb,) = pathlib.Path(folder).glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", deb.name, "."], cwd=folder, check=True)
    found = sorted(pathlib.Path(folder, "usr", "src").glob("*.tar.*"))
    if not found:
        raise SystemExit(f"{package} has no archive below usr/src: give another --package, such as linux-source-6.1")
    return found[0]


def order(name):
    return hashlib.sha256(name.encode()).digest()


def read_sources(archive):
    """Returns the contents of all source files by name."""
    with tarfile.open(archive) as tar:
        files = (member for member in tar if member.isfile() and member.name.endswith(SUFFIXES))
        return {member.name: tar.extractfile(member).read() for member in files}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--package", default="linux-source-6.1")
    parser.add_argument("--megabytes", type=int, default=256, help="most megabytes of train.bin")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        sources = read_sources(source_archive(given.package, folder))
    most = {"train.bin": given.megabytes << 20, "held_out.bin": HELD_OUT_MOST}
    contents = {name: bytearray() for name in most}
    for name in sorted(sources, key=order):
        part = "held_out.bin" if order(name)[0] == 0 else "train.bin"
        if len(contents[part]) < most[part]:
            contents[part] += sources[name]
    for part, content in contents.items():
        (given.folder / part).write_bytes(content[: most[part]])
        print(f"{given.folder / part}: {min(len(content), most[part]):,} bytes of {len(sources):,} files")


if __name__ == "__main__":
    main()
