"""``python -m tests.torture DIRECTORY`` kills a gateway at random moments for a long time."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.torture.run import ENGINES, Plan, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="on an ext4; a failed run stays there")
    parser.add_argument("--seed", default="", help="of a run to be repeated")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long")
    parser.add_argument("--kills", type=int, default=200, help="stop after so many")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    args = parser.parse_args()
    seed = int(args.seed) if args.seed else secrets.randbits(32)
    print(f"SEED={seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="torture-", dir=args.directory.absolute()))
    plan = Plan(seed, args.engine, args.seconds, args.kills)
    try:
        print(run(directory, plan, lambda line: print(line, flush=True)))
    except AssertionError as error:
        sys.exit(f"FAILED with SEED={seed}; logs and data are in {directory}\n{error}")


if __name__ == "__main__":
    main()
