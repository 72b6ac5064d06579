"""What is saved, which checkpoint the catalogue must know it as, and when a save is killed."""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20


class Moment(NamedTuple):
    """A save is killed as soon as a name is there and so many bytes were written."""

    name: str
    """A shell pattern below the directory of the case. ``{step}`` stands for the step."""
    written: int = 0
    """Bytes that all processes of the save wrote since they began."""


class Case(NamedTuple):
    """A save by a library."""

    launcher: str
    save: str
    load: str
    path: str
    """The path of the checkpoint, below the export."""
    rule: str
    members: tuple[str, ...]
    """Shell patterns of the members that a finished save leaves. Each has one member or more, and
    no member has none."""
    moments: tuple[Moment, ...]

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def run(self) -> str:
        """The run. One of single files has the name of its files, with N in place of the step."""
        return self.path.replace("{step}", "N") if self.rule == "file" else self.directory

    def at(self, step: int) -> str:
        return self.path.format(step=step)

    def patterns(self, step: int) -> list[str]:
        return [member.format(step=step) for member in self.members]


CASES = [
    Case(
        *("torch", "save_torch", "load_torch"),
        "torch/model_step_{step}.pt",
        "file",
        ("model_step_{step}.pt",),
        tuple(Moment("model_step_{step}.pt", mib * MIB) for mib in (0, 5, 10)),
    ),
    Case(
        *("torch", "save_safetensors", "load_safetensors"),
        "safetensors/ckpt-{step}.safetensors",
        "file",
        ("ckpt-{step}.safetensors",),
        tuple(Moment(".tmp*", mib * MIB) for mib in (0, 5, 10)),
    ),
    Case(
        *("torch", "save_dcp", "load_dcp"),
        "dcp/step-{step}",
        "dcp",
        (".metadata", "__[0-3]_0.distcp"),
        (
            *(Moment("step-{step}"), Moment("step-{step}/__0_0.distcp")),
            # Rank 0 has sent 12 MiB to the others before.
            *(Moment("step-{step}/__*_0.distcp", mib * MIB) for mib in (15, 22)),
            *(Moment("step-{step}/__3_0.distcp"), Moment("step-{step}/.metadata.tmp")),
        ),
    ),
    Case(
        *("transformers", "save_trainer", "load_pretrained"),
        "trainer/checkpoint-{step}",
        "trainer",
        (
            *("config.json", "generation_config.json", "model.safetensors", "optimizer.pt"),
            *("scheduler.pt", "rng_state.pth", "trainer_state.json", "training_args.bin"),
        ),
        tuple(
            Moment(f"checkpoint-{{step}}/{name}")
            for name in (
                *("config.json", ".tmp*", "model.safetensors", "optimizer.pt"),
                *("scheduler.pt", "rng_state.pth"),
            )
        ),
    ),
    Case(
        *("transformers", "save_pretrained", "load_pretrained"),
        "pretrained/step-{step}",
        "index",
        (
            *("config.json", "generation_config.json", "model.safetensors.index.json"),
            "model-0000[1-5]-of-00005.safetensors",
        ),
        tuple(
            Moment(f"step-{{step}}/{name}")
            for name in ("config.json", ".tmp*", "model-00001-*", "model-00004-*")
        ),
    ),
    Case(
        *("jax", "save_orbax", "load_orbax"),
        "orbax/{step}",
        "orbax",
        (
            *("_CHECKPOINT_METADATA", "commit_success.txt", "default/_METADATA"),
            *("default/_sharding", "default/array_metadatas/process_0"),
            *("default/commit_success.txt", "default/d/*", "default/manifest.ocdbt"),
            *("default/ocdbt.process_0/d/*", "default/ocdbt.process_0/manifest.ocdbt"),
        ),
        tuple(
            Moment(f"{{step}}.orbax-checkpoint-tmp{name}")
            for name in (
                *("", "/_CHECKPOINT_METADATA", "/default.orbax-checkpoint-tmp/ocdbt.process_0/d/*"),
                "/default.orbax-checkpoint-tmp/manifest.ocdbt",
            )
        ),
    ),
]
