"""Owner object of a bucket and prefix, for tests that are about other things."""

from __future__ import annotations

from contextlib import closing

from gateway.config.settings import BucketSettings, DrainSettings, Settings
from gateway.db.engine import Database
from gateway.objectstore.ownership import LOOK_SECONDS, NO_CLAIM, Ownership, write
from gateway.objectstore.request import Conditions
from tests.support.volumes import query

OWNER = ".spillway/owner.json"
"""The key of the owner object below the prefix."""
_LATE_SECONDS = BucketSettings(name="any").late_seconds
SIGN_SECONDS = 2 * LOOK_SECONDS + _LATE_SECONDS + DrainSettings().retry_max_seconds
"""The longest time for which a gateway that was not stopped sends nothing after a boot, with the
default settings: it waits for a sign of a copy."""


def own(settings: Settings, conditions: Conditions = Conditions.NONE) -> None:
    """Claim the bucket for a gateway, as a start of it would that was some time ago. A store that
    heeds no conditions would be waited for, and asked which ones it heeds."""
    with closing(Database(settings.database_url)) as database:
        with database.writing() as session:
            write(session, settings, NO_CLAIM._replace(conditions=conditions))
        ownership = Ownership(settings, database)
        ownership.take()
        confirm(settings)
        ownership.look()


def confirm(settings: Settings) -> None:
    """Let a claim be one that was read back. A claim that was never made stays so."""
    query(settings, "UPDATE bucket_owner SET former = NULL")
