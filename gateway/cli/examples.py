"""Examples of each command, and `spillway completion`.

The examples are shown by ``--help`` and in docs/reference/cli.md. `completion` prints the script by
which a shell completes commands and options.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

import shtab


class Example(NamedTuple):
    """A command line and what it does."""

    line: str
    """The command line without ``spillway``."""
    does: str


def _of(*examples: tuple[str, str]) -> tuple[Example, ...]:
    return tuple(Example(*example) for example in examples)


EXAMPLES: Mapping[str, tuple[Example, ...]] = {
    "init": _of(
        ("init --bucket my-checkpoints", "Sets a gateway up for a bucket of AWS."),
        (
            "init --bucket b --endpoint-url https://s3.example.com --data-dir /nvme/spillway",
            "Sets one up for another S3 server, with its data on another disk.",
        ),
    ),
    "up": _of(("up", "Runs the NFS server, the drain, the cache, the catalogue and the pages.")),
    "admin": _of(("admin", "Serves the admin API and its pages, without spillway up.")),
    "serve": _of(("serve drain", "Becomes the drain: the unit spillway-drain starts it so.")),
    "first-boot": _of(
        ("first-boot --check spillway.toml", "Says whether the file of the drive is right."),
        ("first-boot", "Makes a gateway of this machine: the unit configure-spillway starts it."),
    ),
    "status": _of(
        ("status", "Shows processes, bucket, backlog, runs at risk and disk."),
        ("status --json", "The same facts for a program."),
    ),
    "statistics": _of(
        ("statistics", "Shows how often and how fast the NFS server did what."),
        ("statistics --json", "All counts and histograms for a program."),
    ),
    "clients": _of(
        ("clients", "Shows who mounts, from where, and what each client does."),
        ("clients --open /checkpoints/run7/step100", "Shows who has files open there."),
    ),
    "usage": _of(
        ("usage", "Shows what each directory and each owner has, and where the bytes are."),
        ("usage /checkpoints/run7", "Shows the directories of one run."),
        ("usage --owners", "Shows the owners alone."),
    ),
    "export": _of(
        (
            'export set /datasets --path datasets --client "10.0.0.0/8 ro"',
            "Lets these hosts mount a directory, and only read it.",
        ),
        (
            'export validate /datasets --path datasets --client "10.0.0.0/8 rw"',
            "Says what a change would do to its clients.",
        ),
        ("export set /datasets --squash all", "Changes it; its clients keep their files open."),
        ("export list", "Lists all exports, and whether the server has them."),
        ("export remove /datasets", "Ends it."),
        ("export reload", "Puts changed nfs.clients in force without a restart."),
    ),
    "queue": _of(
        ("queue", "Lists what waits for the bucket, the next one first."),
        ("queue bump /checkpoints/run7/step100", "Sends this checkpoint before everything else."),
        ("queue hold /checkpoints/scratch", "Sends nothing below this directory."),
        ("queue release /checkpoints/scratch", "Ends the hold."),
        ("queue cancel /checkpoints/run7/big.pt", "Ends an upload, and holds the file."),
    ),
    "checkpoint list": _of(
        ("checkpoint list", "Lists all runs."),
        ("checkpoint list run7", "Lists the checkpoints of one run."),
        (
            "checkpoint list --sort size --reverse --limit 10",
            "Lists the ten largest ones, the largest first.",
        ),
        ("checkpoint list --state draining", "Lists those that the bucket does not have whole."),
    ),
    "checkpoint show": _of(
        ("checkpoint show /checkpoints/run7/step100", "Shows its state, pins and promotions.")
    ),
    "checkpoint delete": _of(
        ("checkpoint delete /checkpoints/run7/step100", "Moves a checkpoint into the trash."),
        (
            'checkpoint delete --force --reason "diverged" /checkpoints/run7/step100',
            "Does so although it is the newest one of its run.",
        ),
    ),
    "policy": _of(
        ("policy plan --policy keep.toml", "Shows what a file of policies would do."),
        ("policy set keep.toml", "Stores the policies of a file; they are in force at once."),
        ("policy plan", "Shows what becomes of each checkpoint, and why."),
        ("policy approvals", "Lists the plans that are or were asked about."),
        ("policy approve PLAN", "Approves the deletions that a plan asks about."),
        ("policy log --limit 20", "Shows the last 20 actions."),
    ),
    "trash list": _of(
        ("trash list", "Lists what was deleted, and for how long it can be restored.")
    ),
    "trash empty": _of(("trash empty --all --yes", "Removes all of it for good.")),
    "trash restore": _of(
        ("trash restore /checkpoints/run7/step100", "Restores a checkpoint at its path."),
        ("trash restore 17 --to /checkpoints/run7/old", "Restores it at another path."),
    ),
    "trash release": _of(
        ("trash release t1234", "Lets a checkpoint go without a newer one in the bucket."),
        (
            "trash release /checkpoints/run7",
            "Lets go what jobs removed of a run and the bucket keeps.",
        ),
    ),
    "ls": _of(("ls /checkpoints/run7", "Lists a directory.")),
    "stat": _of(("stat /checkpoints/run7/a.pt", "Shows attributes, state and object of a file.")),
    "mkdir": _of(
        ("mkdir -p /checkpoints/run8/logs", "Makes a directory and its parents."),
        ("mkdir --owner 1000:2000 -m 2770 /checkpoints/team-a", "Gives a team a directory."),
    ),
    "chown": _of(("chown 1000:2000 /checkpoints/run8", "Gives a directory to a user and group.")),
    "chmod": _of(("chmod 2775 /checkpoints/run8", "Lets a group write, and new files be its.")),
    "mv": _of(("mv /checkpoints/run7 /checkpoints/run7-old", "Renames a directory.")),
    "rm": _of(
        ("rm -r /checkpoints/run7-old", "Removes a tree; checkpoints in it go to the trash.")
    ),
    "evict": _of(("evict /checkpoints/run7", "Frees the disk of what the bucket has of a run.")),
    "warm": _of(
        ("warm --wait /checkpoints/run7/step100", "Brings a checkpoint back, and waits for it.")
    ),
    "checkpoint promote": _of(
        (
            'checkpoint promote run7/step100 --as llama-v3 --note "for the evaluation"',
            "Makes a copy that stays.",
        ),
        (
            "checkpoint promote run7/step100 --as v3 --to models --tag stage=prod --legal-hold",
            "Publishes it below models/v3, where no program can delete it.",
        ),
    ),
    "promotion list": _of(("promotion list", "Lists the copies that stay.")),
    "promotion remove": _of(
        ("promotion remove llama-v3 --yes", "Removes such a copy for good, also from the bucket.")
    ),
    "checkpoint pin": _of(
        ("checkpoint pin /checkpoints/run7/step100", "No policy deletes it, and it is not evicted.")
    ),
    "checkpoint unpin": _of(("checkpoint unpin /checkpoints/run7/step100", "Ends the pin.")),
    "checkpoint pins": _of(("checkpoint pins", "Lists what is pinned.")),
    "drain": _of(
        ("drain --wait", "Waits until the bucket has everything that is closed."),
        ("drain --wait /checkpoints/run7", "Waits for one directory."),
    ),
    "wait": _of(
        (
            "wait --durable /checkpoints/run7/step100 --timeout 600",
            "Waits until the bucket alone could restore this checkpoint.",
        )
    ),
    "plan": _of(
        (
            "plan --parameters 405B --interval 15m --jobs 1 --gpus 512",
            "Sizes a gateway, and prices its checkpoints.",
        )
    ),
    "bucket verify": _of(
        ("bucket verify --all", "Compares the bucket with all of its manifests."),
        (
            "bucket verify s3://my-checkpoints/prefix --run run7 --deep",
            "Reads all bytes of one run. It needs no gateway.",
        ),
    ),
    "bucket setup": _of(("bucket setup", "Shows what the bucket must not do with our objects.")),
    "bucket test": _of(("bucket test", "Asks the bucket now whether it can be used.")),
    "webhook test": _of(
        ("webhook test chat", "Sends this receiver an event, and says whether it took it.")
    ),
    "job": _of(
        ("job list", "Lists what was asked for through the admin API, and how far it is."),
        ("job cancel 0123456789abcdef", "Ends a job. What it has done stays done."),
    ),
    "events": _of(
        ("events --follow", "Shows changes of jobs, checkpoints and figures until Ctrl-C."),
        ("events --follow --json --kind checkpoint", "Tells a program of each checkpoint."),
    ),
    "history": _of(
        ("history", "Shows the figures of the last hour, a row a minute."),
        ("history --from 7d --step 6h", "Shows those of a week."),
    ),
    "audit": _of(
        ("audit --since 24h", "Shows who changed what in the last day."),
        ("audit --who ci --path /api/v1/trash", "Shows what one token did with the trash."),
        ("audit --names --path run7/step100", "Shows which client removed or renamed it."),
    ),
    "configuration": _of(
        ("configuration", "Shows all keys, and from where each has its value."),
        ("configuration drain.workers", "Shows one key, and what it means."),
    ),
    "support-bundle": _of(
        ("support-bundle /tmp", "Makes a file for a ticket: state, settings, versions, logs."),
        ("support-bundle --no-logs /tmp", "The same without logs, which quote names of files."),
    ),
    "token": _of(
        ("token create --role admin", "Prints a token for the pages."),
        ("token create --role viewer --name grafana --expires 365d", "Makes one that only reads."),
        ("token list", "Lists the tokens and their last use."),
        ("token revoke 0123456789ab", "Ends a token and its sessions at once."),
    ),
    "restore": _of(
        (
            "restore --config /etc/spillway/spillway.toml --data-dir /var/lib/spillway "
            "--bucket my-checkpoints --endpoint-url https://s3.example.com",
            "Brings everything back on an empty machine, from the bucket alone.",
        ),
        ("restore --at 90m", "As the names were an hour and a half ago."),
        ("restore --drill", "Does the bucket bring everything back? Nothing is changed."),
        ("restore --bucket b --from /backup/4f…-20261123T093000Z", "From a backup."),
    ),
    "backup": _of(
        ("backup /backup", "Makes a new directory below /backup, while the gateway runs."),
        ("backup --json /backup", "The same, for a timer that looks at what it says."),
    ),
    "upgrade": _of(("upgrade", "Migrates the database to this version. The gateway is stopped.")),
    "adopt": _of(
        ("adopt files", "Takes over the data files of a replaced or restored disk."),
        ("adopt bucket", "Takes over a bucket that was changed in the configuration."),
        ("adopt bucket --adopt", "Takes it also from another gateway, which is gone for good."),
    ),
    "fsck": _of(
        ("fsck", "Checks the namespace."),
        ("fsck --checksums", "Also reads all local files, and compares their digests."),
        ("fsck --bucket", "Compares the names with the objects in the bucket, at any time."),
    ),
    "reconcile": _of(
        ("reconcile --dry-run", "Shows what the bucket has that the names do not say."),
        ("reconcile", "Has the names follow the bucket, after a backup was restored."),
    ),
    "scrub": _of(
        ("scrub", "Compares all files on the disk, and all objects, with what they should be."),
        ("scrub --deep /checkpoints/run7/step100", "Also reads the objects of a checkpoint."),
    ),
    "import": _of(
        ("import s3://data-sets/imagenet", "Shows the objects there as files below /imagenet."),
        ("import s3://data-sets/imagenet /data/imagenet --no-wait", "The same, at another path."),
        ("import --remove /imagenet", "Removes the names and local copies; the bucket stays."),
        ("import", "Lists the imports, and what is gone or was left out."),
    ),
    "completion": _of(
        (
            "completion bash > /etc/bash_completion.d/spillway",
            "Has the shell complete commands and options.",
        )
    ),
}


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell")


def complete(args: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(shtab.complete(args.program, args.shell))
    return 0
