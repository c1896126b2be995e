"""Prints the version of the official client that the other scripts here use."""

from importlib.metadata import version

import langgraph_sdk  # noqa: F401  it must import, not only be installed

print(version("langgraph-sdk"))
