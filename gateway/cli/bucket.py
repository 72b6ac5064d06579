"""Commands `spillway bucket test`, `setup` and `verify`.

`test` and `setup` show whether the bucket answers, what it does by itself, and its effect on a
gateway. `verify` compares a bucket with its manifests. It needs no gateway: without --config it
reads neither a configuration nor a database.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.cli import output
from gateway.common.errors import StoreError, UserError
from gateway.common.models import to_json
from gateway.common.text import shown
from gateway.common.units import size
from gateway.config import loader
from gateway.objectstore import key_mapper
from gateway.service.bucket import SetUp
from gateway.service.gateway import Gateway

if TYPE_CHECKING:
    # The import is for types only: boto3 takes half a second to import.
    from mypy_boto3_s3.client import S3Client


def test_arguments(parser: argparse.ArgumentParser) -> None:
    _common_arguments(parser)


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--apply",
        action="store_true",
        help="add the rule that ends unfinished uploads, beside all others",
    )
    _common_arguments(parser)


def _common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="also if the prefix has another owner, or objects and no owner",
    )
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def test(args: argparse.Namespace, gateway: Gateway) -> int:
    """Ask the bucket whether it can be used. Returns 0 if it can, else 1. Raises UserError."""
    reachability = gateway.bucket.test(args.adopt)
    text = "the bucket answers" if reachability.error is None else shown(reachability.error)
    output.show(reachability, text, args.json)
    return int(reachability.error is not None)


def set_up(args: argparse.Namespace, gateway: Gateway) -> int:
    """Show the bucket's own settings. Returns 0 if nothing is to do, 1 if a person should look.
    Raises UserError."""
    made = gateway.bucket.set_up(args.apply, args.adopt)
    if args.json:
        output.print_json(made)
    else:
        _show(made)
    return int(not made.is_well)


def _show(made: SetUp) -> None:
    facts = {**to_json(made), "expiring_rules": map(_expiring, made.expiring_rules)}
    del facts["is_well"]  # the exit status says it
    for name, value in facts.items():
        for line in [value] if isinstance(value, str) else value:
            print(f"{name.replace('_', ' ') + ':':20}{line}")


def _expiring(name: str) -> str:
    return f"{name} deletes objects whose files are still there: exclude our prefix from it"


WHOLE = 0
NOT_WHOLE = 1
SCHEME = "s3://"


class Target(NamedTuple):
    """What is to be verified."""

    client: S3Client
    bucket: str
    key: str
    """The key of one manifest, or the beginning of the keys of several."""
    is_one: bool
    promoted: str = ""
    """The beginning of the keys of promoted copies. Empty: they are not wanted."""


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "manifest",
        nargs="?",
        metavar="s3://BUCKET/KEY",
        help="the manifest; with --run or --all: the bucket and prefix of a gateway's files. "
        "Without it, those of the configuration count",
    )
    parser.add_argument("--run", dest="run_name", metavar="RUN", help="the manifests of this run")
    parser.add_argument("--step", type=int, metavar="N", help="of --run only this step")
    parser.add_argument(
        "--all", action="store_true", help="every manifest, also of promoted copies"
    )
    parser.add_argument("--deep", action="store_true", help="also read all bytes of the members")
    parser.add_argument("--endpoint-url", metavar="URL", help="of the S3 server (default: AWS)")
    parser.add_argument("--region", help="of the bucket")
    parser.add_argument(
        "--credentials-file", metavar="PATH", help="default: where the AWS tools look"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")


def verify(args: argparse.Namespace) -> int:
    """Verify. Returns 0 if all is whole, 1 if not or if there is no manifest. Raises UserError."""
    from botocore.exceptions import BotoCoreError, ClientError

    _require_usage(args)
    try:
        target = _target(args)
        results = []
        for key in _keys(target):
            result = _verified(target, key, args.deep)
            results.append(result)
            if not args.json:
                _print(result)
    except (BotoCoreError, ClientError) as exc:
        raise UserError(
            f"the bucket cannot be read: {shown(str(exc))}: check the endpoint, the region and the "
            "credentials"
        ) from None
    if args.json:
        print(json.dumps({"manifests": results}, indent=2))
    elif not results:
        print(f"there are no manifests below {SCHEME}{target.bucket}/{target.key}")
    return WHOLE if results and all(verified["is_whole"] for verified in results) else NOT_WHOLE


def _require_usage(args: argparse.Namespace) -> None:
    if args.step is not None and args.run_name is None:
        raise UserError("--step needs --run: spillway bucket verify --run RUN --step N")
    if args.all and args.run_name is not None:
        raise UserError("--all and --run exclude each other")
    several = args.all or args.run_name is not None
    if args.manifest is None and not several:
        raise UserError("what is to be verified? name s3://BUCKET/KEY, --run RUN, or --all")
    if args.manifest is not None:
        bucket, _, key = args.manifest.removeprefix(SCHEME).partition("/")
        if not args.manifest.startswith(SCHEME) or not bucket or not (key or several):
            raise UserError("a manifest is named like s3://BUCKET/KEY")
    own = (args.endpoint_url, args.region, args.credentials_file)
    if (args.manifest is None or args.has_config) and any(own):
        raise UserError(
            "--endpoint-url, --region and --credentials-file are for s3://BUCKET/KEY without "
            "--config: the configuration has its own"
        )


def _target(args: argparse.Namespace) -> Target:
    if args.manifest is None or args.has_config:
        client, bucket, prefix = _configured(args.config)
    else:
        client, bucket, prefix = _found(args), "", ""
    if args.manifest is not None:
        bucket, _, prefix = args.manifest.removeprefix(SCHEME).partition("/")
        if not args.all and args.run_name is None:
            return Target(client, bucket, prefix, True)
    prefix = prefix.rstrip("/")
    below = key_mapper.manifests_below(prefix)
    if args.run_name is None:
        return Target(client, bucket, f"{below}/", False, f"{key_mapper.promoted_below(prefix)}/")
    names = [name for name in os.fsencode(args.run_name).split(b"/") if name]
    if args.step is not None:
        key = key_mapper.key_of(below, [*names, b"%d.json" % args.step])
        return Target(client, bucket, key, True)
    above = key_mapper.key_of(below, names) if names else below
    return Target(client, bucket, f"{above}/", False)


def _configured(path: Path) -> tuple[S3Client, str, str]:
    from gateway.objectstore.client import ATTEMPTS_MAX, BucketConnection

    settings = loader.load(path)
    try:
        client = BucketConnection(settings, None, ATTEMPTS_MAX).client
    except StoreError as exc:
        raise UserError(str(exc)) from None
    return client, settings.bucket.name, settings.bucket.prefix


def _found(args: argparse.Namespace) -> S3Client:
    """Return a client with the credentials and the region that the AWS tools would find."""
    import boto3
    import botocore.session
    from botocore.config import Config

    session = botocore.session.Session()
    if args.credentials_file is not None:
        session.set_config_variable("credentials_file", args.credentials_file)
    # A server that is not AWS seldom has a host name for each bucket.
    style = {} if args.endpoint_url is None else {"s3": {"addressing_style": "path"}}
    client: S3Client = boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=args.endpoint_url,
        region_name=args.region or session.get_config_variable("region") or "us-east-1",
        config=Config(retries={"mode": "standard"}, **style),  # type: ignore[arg-type]
    )
    return client


def _keys(target: Target) -> Iterator[str]:
    from gateway.catalogue import manifest_check

    if target.is_one:
        yield target.key
        return
    yield from manifest_check.listed(target.client, target.bucket, target.key)
    if target.promoted:
        yield from manifest_check.promoted(target.client, target.bucket, target.promoted)


def _verified(target: Target, key: str, is_deep: bool) -> dict[str, Any]:
    """Return what was found about one manifest. Raises ClientError, BotoCoreError."""
    from gateway.catalogue import manifest_check

    facts: dict[str, Any] = {"key": key, "is_whole": False}
    try:
        manifest = manifest_check.read(target.client, target.bucket, key)
    except manifest_check.NoManifest as exc:
        return {**facts, "problems": [{"path": None, "why": str(exc)}]}
    facts |= {name: manifest.get(name) for name in ("path", "run", "step", "files", "size")}
    differences = [*manifest_check.differing(target.client, target.bucket, manifest, is_deep)]
    return {
        **facts,
        "is_whole": not differences,
        "problems": [difference._asdict() for difference in differences],
    }


def _print(result: dict[str, Any]) -> None:
    key = shown(result["key"])
    if result["is_whole"]:
        print(f"{key}: whole: {result['files']} files, {size(result['size'])}")
        return
    print(f"{key}: NOT WHOLE")
    for problem in result["problems"]:
        where = "" if problem["path"] is None else f"{problem['path']}: "
        print(f"  {shown(where + problem['why'])}")
