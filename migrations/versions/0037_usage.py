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
"""

UNSAVED = (
    "CASE WHEN {0}.kind = 1 AND {0}.content_version > {0}.drained_version THEN {0}.size ELSE 0 END"
)
OLD, NEW = UNSAVED.format("OLD"), UNSAVED.format("NEW")
ADD = """
INSERT INTO {table} ({keys}, files, size, used, unsaved) VALUES ({values})
ON CONFLICT ({keys}) DO UPDATE SET
    files = {table}.files + excluded.files, size = {table}.size + excluded.size,
    used = {table}.used + excluded.used, unsaved = {table}.unsaved + excluded.unsaved;
"""
TABLES = (
    ("directory_usage", "directory", "{0}.charged_to"),
    ("owner_usage", "uid, reserved", "{0}.uid, {0}.reserved"),
)


def add(row: str, sums: str) -> str:
    """Return the statements that add sums to the usage that has a row of ``inode``."""
    return "".join(
        ADD.format(table=table, keys=keys, values=f"{of.format(row)}, {sums}")
        for table, keys, of in TABLES
    )


COMES = add("NEW", f"1, NEW.size, NEW.used, {NEW}")
GOES = add("OLD", f"-1, -OLD.size, -OLD.used, -({OLD})")
CHANGES = add("NEW", f"0, NEW.size - OLD.size, NEW.used - OLD.used, ({NEW}) - ({OLD})")

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

OF_INODE = "charged_to, uid, reserved, size, used, content_version, drained_version"
TRIGGERS = (
    ("inode_comes", "INSERT ON inode", "NEW.charged_to IS NOT NULL", COMES),
    ("inode_goes", "DELETE ON inode", "OLD.charged_to IS NOT NULL", GOES),
    (
        "inode_changes",
        f"UPDATE OF {OF_INODE} ON inode",
        f"NEW.charged_to IS NOT NULL AND NOT {IS_MOVED} AND {IS_ANOTHER}",
        CHANGES,
    ),
    (
        "inode_leaves",
        f"UPDATE OF {OF_INODE} ON inode",
        f"OLD.charged_to IS NOT NULL AND {IS_MOVED}",
        GOES,
    ),
    (
        "inode_arrives",
        f"UPDATE OF {OF_INODE} ON inode",
        f"NEW.charged_to IS NOT NULL AND {IS_MOVED}",
        COMES,
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
        op.execute(
            f"CREATE FUNCTION usage_{name}() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN {body} RETURN NULL; END $$"
        )
        op.execute(
            f"CREATE TRIGGER usage_{name} AFTER {event} FOR EACH ROW WHEN ({condition})"
            f" EXECUTE FUNCTION usage_{name}()"
        )
