"""usage of directories and owners, which triggers keep"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SUMS = ("files", "size", "used", "unsaved")

CHARGE = """
UPDATE inode SET charged_to = (
    SELECT d.parent FROM dirent d WHERE d.ino = inode.ino ORDER BY d.cookie LIMIT 1
) WHERE kind <> 7
"""
COUNT = """
INSERT INTO {table} ({keys}, files, size, used, unsaved)
SELECT {of}, count(*), sum(size), sum(used),
    sum(CASE WHEN kind = 1 AND content_version > drained_version THEN size ELSE 0 END)
FROM inode WHERE charged_to IS NOT NULL GROUP BY {of}
ON CONFLICT ({keys}) DO UPDATE SET
    files = excluded.files, size = excluded.size, used = excluded.used, unsaved = excluded.unsaved
"""

UNSAVED = (
    "CASE WHEN {0}.kind = 1 AND {0}.content_version > {0}.drained_version THEN {0}.size ELSE 0 END"
)
OLD, NEW = UNSAVED.format("OLD"), UNSAVED.format("NEW")
CHANGE = """
UPDATE {table} SET files = files + {files}, size = size + {size}, used = used + {used},
    unsaved = unsaved + {unsaved} WHERE {where};
"""
OF_OWNER = """
INSERT INTO owner_usage (uid, reserved, files, size, used, unsaved)
VALUES (NEW.uid, NEW.reserved, 1, NEW.size, NEW.used, {unsaved})
ON CONFLICT (uid, reserved) DO UPDATE SET
    files = owner_usage.files + 1, size = owner_usage.size + excluded.size,
    used = owner_usage.used + excluded.used, unsaved = owner_usage.unsaved + excluded.unsaved;
"""


def change(table: str, row: str, **sums: str) -> str:
    """Return the statement that adds to the usage that has a row of ``inode``."""
    where = {
        "directory_usage": f"directory = {row}.charged_to",
        "owner_usage": f"uid = {row}.uid AND reserved = {row}.reserved",
    }
    return CHANGE.format(table=table, where=where[table], **sums)


MORE = {"files": "1", "size": "NEW.size", "used": "NEW.used", "unsaved": f"({NEW})"}
LESS = {"files": "-1", "size": "-OLD.size", "used": "-OLD.used", "unsaved": f"-({OLD})"}
OTHER = {
    "files": "0",
    "size": "NEW.size - OLD.size",
    "used": "NEW.used - OLD.used",
    "unsaved": f"({NEW}) - ({OLD})",
}
COMES = change("directory_usage", "NEW", **MORE) + OF_OWNER.format(unsaved=NEW)
GOES = change("directory_usage", "OLD", **LESS) + change("owner_usage", "OLD", **LESS)
CHANGES = change("directory_usage", "NEW", **OTHER) + change("owner_usage", "NEW", **OTHER)

IS_MOVED = (
    "(OLD.charged_to IS DISTINCT FROM NEW.charged_to"
    " OR OLD.uid <> NEW.uid OR OLD.reserved <> NEW.reserved)"
)
IS_ANOTHER = f"(OLD.size <> NEW.size OR OLD.used <> NEW.used OR ({OLD}) <> ({NEW}))"

# A file has a new name, or lost one.
NAMED = """
UPDATE inode SET charged_to = NEW.parent
WHERE ino = NEW.ino AND charged_to IS NULL AND kind <> 7;
"""
UNNAMED = """
UPDATE inode SET charged_to = (
    SELECT d.parent FROM dirent d WHERE d.ino = OLD.ino ORDER BY {order}, d.cookie LIMIT 1
) WHERE ino = OLD.ino AND charged_to = OLD.parent AND kind <> 7;
"""
RENAMED = (
    UNNAMED.format(order="CASE d.parent WHEN OLD.parent THEN 0 WHEN NEW.parent THEN 1 ELSE 2 END")
    + NAMED
)
REMOVED = UNNAMED.format(order="CASE d.parent WHEN OLD.parent THEN 0 ELSE 1 END")

OF_SUMS = "size, used, content_version, drained_version"
OF_PLACE = "charged_to, uid, reserved"
TRIGGERS = (
    ("inode_comes", "INSERT ON inode", "NEW.charged_to IS NOT NULL", COMES),
    ("inode_goes", "DELETE ON inode", "OLD.charged_to IS NOT NULL", GOES),
    (
        "inode_changes",
        f"UPDATE OF {OF_SUMS} ON inode",
        f"NEW.charged_to IS NOT NULL AND NOT {IS_MOVED} AND {IS_ANOTHER}",
        CHANGES,
    ),
    (
        "inode_leaves",
        f"UPDATE OF {OF_PLACE} ON inode",
        f"OLD.charged_to IS NOT NULL AND {IS_MOVED}",
        GOES,
    ),
    (
        "inode_arrives",
        f"UPDATE OF {OF_PLACE} ON inode",
        f"NEW.charged_to IS NOT NULL AND {IS_MOVED}",
        COMES,
    ),
    (
        "directory_comes",
        "INSERT ON inode",
        "NEW.kind = 7",
        "INSERT INTO directory_usage VALUES (NEW.ino, 0, 0, 0, 0) ON CONFLICT DO NOTHING;",
    ),
    (
        "directory_goes",
        "DELETE ON inode",
        "OLD.kind = 7",
        "DELETE FROM directory_usage WHERE directory = OLD.ino;",
    ),
    ("name_comes", "INSERT ON dirent", "TRUE", NAMED),
    ("name_goes", "DELETE ON dirent", "TRUE", REMOVED),
    (
        "name_changes",
        "UPDATE OF parent, ino ON dirent",
        "OLD.parent <> NEW.parent OR OLD.ino <> NEW.ino",
        RENAMED,
    ),
)


def upgrade() -> None:
    op.add_column("inode", sa.Column("charged_to", BIG, nullable=True))
    op.create_table(
        "directory_usage",
        sa.Column("directory", BIG, autoincrement=False, nullable=False),
        *(sa.Column(name, BIG, nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint("directory", name=op.f("pk_directory_usage")),
    )
    op.create_table(
        "owner_usage",
        sa.Column("uid", BIG, autoincrement=False, nullable=False),
        sa.Column("reserved", sa.Integer(), autoincrement=False, nullable=False),
        *(sa.Column(name, BIG, nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint("uid", "reserved", name=op.f("pk_owner_usage")),
    )
    op.execute(CHARGE)
    op.execute("INSERT INTO directory_usage SELECT ino, 0, 0, 0, 0 FROM inode WHERE kind = 7")
    for table, keys, of in (
        ("directory_usage", "directory", "charged_to"),
        ("owner_usage", "uid, reserved", "uid, reserved"),
    ):
        op.execute(COUNT.format(table=table, keys=keys, of=of))
    is_sqlite = op.get_context().dialect.name == "sqlite"
    for name, event, condition, body in TRIGGERS:
        if is_sqlite:
            op.execute(
                f"CREATE TRIGGER usage_{name} AFTER {event} WHEN {condition} BEGIN {body} END"
            )
            continue
        # A restore that was killed drops its tables, and leaves these.
        op.execute(
            f"CREATE OR REPLACE FUNCTION usage_{name}() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN {body} RETURN NULL; END $$"
        )
        op.execute(
            f"CREATE TRIGGER usage_{name} AFTER {event} FOR EACH ROW WHEN ({condition})"
            f" EXECUTE FUNCTION usage_{name}()"
        )
