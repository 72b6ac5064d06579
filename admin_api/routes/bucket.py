"""The bucket: whether it answers, and what it does by itself."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.apart import Apart
from admin_api.calls import Recorded
from admin_api.figures import Figured
from admin_api.gateway import Governed
from admin_api.problems import describe
from admin_api.shapes import Body
from gateway.control import bucket

router = APIRouter(prefix="/bucket", tags=["bucket"])


class Checksum(BaseModel):
    """The checksum that goes with what is sent."""

    kind: str | None = Field(description="None: the store was not asked yet.", examples=["md5"])
    said_by: Literal["configuration", "store"] | None


class Probe(BaseModel):
    """Whether the bucket can be used."""

    reachable: bool
    error: str | None = Field(description="Why not, for people.")


class Bucket(Probe):
    """The bucket, as it is configured and as it answered some seconds ago."""

    name: str = Field(examples=["checkpoints"])
    endpoint_url: str = Field(description="Empty: AWS. User and password are masked.")
    prefix: str
    checksum: Checksum


class SettingUp(Body):
    """What is to be changed in the bucket."""

    apply: bool = Field(
        False, description="Add the rule that ends unfinished uploads, beside all others."
    )
    adopt: bool = Field(
        False, description="Also if the prefix has another owner, or objects and no owner."
    )


class SetUp(BaseModel):
    """What the bucket does by itself, and its effect on the gateway. Texts are for people."""

    bucket: str
    checksum: str
    versioning: str
    object_lock: str
    unfinished_uploads: str
    expiring_rules: list[str] = Field(description="They delete objects whose files are there.")
    transition_rules: list[str]
    is_well: bool = Field(description="Whether nothing of it needs a person.")


@router.get("", responses=describe(409))
async def read_bucket(gateway: Governed, _viewer: Viewer, figures: Figured, apart: Apart) -> Bucket:
    """Read what is configured, and whether the bucket answers. The bucket is asked now and then."""
    told = await run_in_threadpool(bucket.checksum, gateway.settings, gateway.database)
    probe = await apart.ask_bucket(figures.probe)
    checksum = Checksum(kind=told["kind"], said_by=told["from"])  # type: ignore[arg-type]
    return Bucket(**bucket.facts(gateway.settings), **probe, checksum=checksum)


@router.post("/test")
async def test_bucket(gateway: Governed, _operator: Operator, apart: Apart) -> Probe:
    """Ask the bucket now. A bucket that does not answer takes up to 10 seconds."""
    return Probe(**await apart.ask_bucket(bucket.test, gateway.settings))


@router.post("/setup", responses=describe(409, 502, 503))
async def set_up_bucket(
    gateway: Governed, call: Recorded, _admin: Admin, body: SettingUp, apart: Apart
) -> SetUp:
    """Look at the bucket's own settings, find out which checksum it verifies, and, if that is
    asked for, add the rule that ends unfinished uploads."""
    facts, is_well = await apart.ask_bucket(bucket.set_up, gateway.settings, body.apply, body.adopt)
    made = SetUp(**facts, is_well=is_well)
    if body.apply:
        call.after = made
    return made
