"""Holds every response of a server against its OpenAPI document: of one good request for each operation, and of what
schemathesis makes up: a few requests for each operation, the same every time, or as many of every kind as fit into
`BACKSTITCH_SCHEMATHESIS_SECONDS`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import schemathesis

from operations import ABSENT, ENDLESS, furnished, good_request

BASE = sys.argv[1]
SECONDS = os.environ.get("BACKSTITCH_SCHEMATHESIS_SECONDS")
HERE = Path(__file__).parent
# Headers that no response has unless the document names them.
NAMED = ["location", "content-location", "x-pagination-total", "x-pagination-next", "retry-after", "allow"]
# Checks of single responses that make further requests.
SINGLE = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]

client = httpx.Client(base_url=BASE, timeout=60)


def one_of_each(schema):
    """Every operation succeeds with a good request, and its response is as the document says."""
    wrong = []
    checks = [getattr(schemathesis.checks, name, None) or schemathesis.checks.CHECKS.get_one(name) for name in SINGLE]
    for result in schema.get_all_operations():
        operation = result.ok()
        name = operation.definition.raw["operationId"]
        if name in ENDLESS | ABSENT:
            continue
        path, queries, body = good_request(client, operation.definition.raw, operation.path)
        arguments = {}
        if "requestBody" in operation.definition.raw:
            if body is None:
                wrong.append(f"{name}: write a good body for it")
                continue
            arguments = {"body": body, "media_type": "application/json"}
        for query in queries:
            case = operation.Case(path_parameters=path, query=query, **arguments)
            response = case.call(base_url=BASE)
            if response.status_code >= 300:
                wrong.append(f"{name}: {response.status_code} {response.text[:300]}")
                continue
            known = operation.definition.raw["responses"][str(response.status_code)].get("headers", {})
            known = {one.lower() for one in known}
            wrong += [f"{name}: no {one} in the document" for one in NAMED if one in response.headers and one not in known]
            try:
                case.validate_response(response, checks=checks)
            except Exception as error:
                wrong.append(f"{name}: {error}")
    return wrong


with tempfile.TemporaryDirectory() as folder:
    ids = furnished(client)
    os.environ |= {
        "SCHEMATHESIS_HOOKS": "openapi_hooks",
        "PYTHONPATH": str(HERE),
        "OPENAPI_BASE": BASE,
        "OPENAPI_IDS": json.dumps(ids),
    }
    import openapi_hooks

    document = client.get("/openapi.json").json()
    openapi_hooks.close_responses(document)
    wrong = one_of_each(schemathesis.openapi.from_dict(document))
    if wrong:
        print("\n\n".join(wrong))
        sys.exit(1)
    # The short form is bounded by what it sends, so that a slow machine sends the same.
    amount = ["--max-time", SECONDS] if SECONDS else ["--phases", "fuzzing", "--max-examples", "3"]
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")]
    command += ["run", f"{BASE}/openapi.json", *amount, *sys.argv[2:]]
    sys.exit(subprocess.run(command, cwd=folder).returncode)
