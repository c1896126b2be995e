#!/usr/bin/env python3
"""Lists what the library shows to those who use it, and compares that with public_surface.txt.

    python3 tests/public_surface.py            # fails when the list differs from the file
    python3 tests/public_surface.py --write    # writes the file anew
    python3 tests/public_surface.py --print    # prints the list

The list is read from the pages that rustdoc writes for the default features: every item, and below
it its variants, public fields, own methods and, of traits, what they require and provide. A change
of the surface is thus a change of public_surface.txt, which a reviewer sees.
"""

import difflib
import html.parser
import json
import os
import pathlib
import subprocess
import sys

CARGO = os.environ.get("CARGO", "cargo")
ROOT = pathlib.Path(__file__).resolve().parent.parent
SNAPSHOT = pathlib.Path(__file__).with_suffix(".txt")
# Headings of a page under which the members of the item itself stand.
OWN = {
    "fields", "variants", "implementations", "required-methods", "provided-methods",
    "required-associated-types", "provided-associated-types",
    "required-associated-consts", "provided-associated-consts",
}
MEMBERS = {
    "method": "fn", "tymethod": "fn", "variant": "variant", "structfield": "field",
    "associatedtype": "type", "associatedconstant": "const",
}


class Page(html.parser.HTMLParser):
    """Members of one item, in the order of its page."""

    def __init__(self):
        super().__init__()
        self.heading = None
        self.members = []

    def handle_starttag(self, tag, attributes):
        name = dict(attributes).get("id") or ""
        if tag == "h2" and name:
            self.heading = name
        kind, _, member = name.partition(".")
        if self.heading in OWN and kind in MEMBERS and member:
            if member.endswith(".fields"):
                return
            if ".field." in member:
                kind, member = "structfield", member.replace(".field.", "::")
            entry = f"{MEMBERS[kind]} {member}"
            if entry not in self.members:
                self.members.append(entry)


def documented():
    """The folder with the pages of the library."""
    environment = dict(os.environ, CARGO_TERM_COLOR="never")
    subprocess.run(
        [CARGO, "doc", "--quiet", "--no-deps", "--lib", "--package", "backstitch"],
        cwd=ROOT, env=environment, check=True,
    )
    metadata = subprocess.run(
        [CARGO, "metadata", "--format-version", "1", "--no-deps"],
        cwd=ROOT, env=environment, check=True, capture_output=True,
    )
    return pathlib.Path(json.loads(metadata.stdout)["target_directory"]) / "doc" / "backstitch"


def shown(pages, here=""):
    """What a module shows, and the modules in it: each page that its index leads to."""
    listed = json.loads(
        (pages / "sidebar-items.js").read_text().split("=", 1)[1].strip().rstrip(";")
    )
    lines = []
    for kind, names in sorted(listed.items()):
        for name in sorted(names):
            if kind == "mod":
                lines.append(f"mod {here}{name}")
                lines += shown(pages / name, f"{here}{name}::")
                continue
            page = Page()
            page.feed((pages / f"{kind}.{name}.html").read_text())
            lines.append(f"{kind} {here}{name}")
            lines += [f"    {member}" for member in page.members]
    return lines


def main():
    listed = shown(documented())
    if "--print" in sys.argv:
        print("\n".join(listed))
    elif "--write" in sys.argv:
        SNAPSHOT.write_text("\n".join(listed) + "\n")
        print(f"{SNAPSHOT.name}: {len(listed)} public items")
    else:
        expected = SNAPSHOT.read_text().splitlines()
        changes = list(difflib.unified_diff(expected, listed, "in the file", "in the library", lineterm=""))
        if changes:
            print("\n".join(changes))
            print("The public surface has changed. If that is meant: python3 tests/public_surface.py --write")
            sys.exit(1)
        print(f"public surface: {len(listed)} items, as in {SNAPSHOT.name}")


main()
