"""The bucket: whether it answers, and what it does by itself."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from admin_api.access.roles import Admin, Operator, Viewer
from admin_api.apart import Apart
from admin_api.calls import Recorded
from admin_api.figures import Figured
from admin_api.gateway import Governed
from admin_api.problems import describe
from admin_api.shapes import Body
from gateway.control import bucket
from gateway.control.bucket import Bucket, Reachability, SetUp

router = APIRouter(prefix="/bucket", tags=["bucket"])


class SettingUp(Body):
    """What is to be changed in the bucket."""

    apply: bool = Field(
        False, description="Add the rule that ends unfinished uploads, beside all others."
    )
    adopt: bool = Field(
        False, description="Also if the prefix has another owner, or objects and no owner."
    )


@router.get("", responses=describe(409))
async def read_bucket(gateway: Governed, _viewer: Viewer, figures: Figured, apart: Apart) -> Bucket:
    """Read what is configured, and whether the bucket answers. The bucket is asked now and then."""
    probe = await apart.ask_bucket(figures.probe)

    def read() -> Bucket:
        with gateway.database.reading() as session:
            return bucket.model(gateway.settings, session, probe)

    return await run_in_threadpool(read)


@router.post("/test")
async def test_bucket(gateway: Governed, _operator: Operator, apart: Apart) -> Reachability:
    """Ask the bucket now. A bucket that does not answer takes up to 10 seconds."""
    return await apart.ask_bucket(bucket.test, gateway.settings)


@router.post("/setup", responses=describe(409, 502, 503))
async def set_up_bucket(
    gateway: Governed, call: Recorded, _admin: Admin, body: SettingUp, apart: Apart
) -> SetUp:
    """Look at the bucket's own settings, find out which checksum it verifies, and, if that is
    asked for, add the rule that ends unfinished uploads."""
    made = await apart.ask_bucket(bucket.set_up, gateway.settings, body.apply, body.adopt)
    if body.apply:
        call.after = made
    return made
