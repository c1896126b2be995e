"""Differential compatibility check for an Agent Server.

    python compat.py --base-url http://127.0.0.1:2024 [--only NAME] [--record DIR] [--jobs N] [--failures]

Runs every scenario against the server and compares its normalised transcript with expected/NAME.json.
"""

import argparse
import fnmatch
import importlib.util
import json
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from kit import SCENARIOS, Ctx  # noqa: E402
from normalise import normalise  # noqa: E402


def load():
    for path in sorted((HERE / "scenarios").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"scenarios_{path.stem}", path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def run(name: str, base_url: str):
    """Transcript of one scenario; a crash of the scenario itself is a last step."""
    ctx = Ctx(base_url)
    try:
        SCENARIOS[name](ctx)
    except Exception as e:  # noqa: BLE001
        where = traceback.extract_tb(e.__traceback__)[-1]
        ctx.log("scenario crashed", f"{type(e).__name__}: {e} (at {Path(where.filename).name}:{where.lineno})")
    finally:
        ctx.close()
    return normalise(ctx.steps, ctx.tag)


def first_difference(want, got, path=""):
    """(path, expected, actual) of the first difference, or None."""
    if isinstance(want, dict) and isinstance(got, dict):
        for k in sorted(want.keys() | got.keys()):
            if k not in got:
                return f"{path}.{k}", want[k], "(missing)"
            if k not in want:
                return f"{path}.{k}", "(absent)", got[k]
            d = first_difference(want[k], got[k], f"{path}.{k}")
            if d:
                return d
        return None
    if isinstance(want, list) and isinstance(got, list):
        for i, (a, b) in enumerate(zip(want, got)):
            d = first_difference(a, b, f"{path}[{i}]")
            if d:
                return d
        if len(want) != len(got):
            i = min(len(want), len(got))
            return (f"{path}[{i}] (length {len(want)} expected, {len(got)} got)",
                    want[i] if i < len(want) else "(end)", got[i] if i < len(got) else "(end)")
        return None
    return None if want == got and type(want) is type(got) else (path, want, got)


def report(want: list, got: list) -> str:
    for i, step in enumerate(want):
        d = first_difference(step, got[i]) if i < len(got) else ("", step, "(the transcript ends before this step)")
        if d:
            path, a, b = d
            if i < len(got) and got[i]["step"] == "scenario crashed":
                return f"    before step {i + 1} '{step['step']}' the scenario crashed: {got[i]['out']}"
            text = lambda v: json.dumps(v, ensure_ascii=False)[:600]  # noqa: E731
            return f"    step {i + 1} '{step['step']}' at {path or '.'}\n      expected {text(a)}\n      actual   {text(b)}"
    return f"    extra step: {json.dumps(got[len(want)])[:600]}"


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--base-url", default="http://127.0.0.1:2024")
    ap.add_argument("--only", action="append", metavar="NAME", help="scenario name or glob; may be repeated")
    ap.add_argument("--record", metavar="DIR", help="write transcripts to DIR instead of comparing "
                    "(files with a note, which were corrected by hand, are left alone)")
    ap.add_argument("--jobs", type=int, default=1, help="scenarios to run at the same time (1)")
    ap.add_argument("--verbose", action="store_true", help="also print the time of each scenario")
    ap.add_argument("--failures", action="store_true", help="say nothing of scenarios that passed")
    args = ap.parse_args()

    load()
    names = [n for n in SCENARIOS if not args.only or any(fnmatch.fnmatch(n, p) for p in args.only)]
    if not names:
        ap.error("no scenario matches")
    passed = failed = 0

    def timed(name):
        t0 = time.monotonic()
        return name, run(name, args.base_url), time.monotonic() - t0

    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for name, got, seconds in pool.map(timed, names):
            took = f" ({seconds:.1f} s)" if args.verbose else ""
            file = HERE / "expected" / f"{name}.json"
            if args.record:
                file = Path(args.record) / f"{name}.json"
                if file.exists() and "note" in json.loads(file.read_text()):
                    print(f"KEPT {name}{took}", flush=True)
                    continue
                crashed = got and got[-1]["step"] == "scenario crashed"
                if not crashed:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(json.dumps({"steps": got}, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
                print(f"{'CRASHED ' + got[-1]['out'] if crashed else 'RECORDED'} {name}{took}", flush=True)
                failed += crashed
                passed += not crashed
                continue
            want = json.loads(file.read_text()) if file.exists() else {"steps": [{"step": "(no expected transcript)"}]}
            if first_difference(want["steps"], got) is None:
                passed += 1
                if not args.failures:
                    print(f"PASS {name}{took}", flush=True)
            else:
                failed += 1
                note = f"\n    note: {want['note']}" if "note" in want else ""
                print(f"FAIL {name}{took}\n{report(want['steps'], got)}{note}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
