"""The manifests of examples/kubernetes are valid, and fit each other and their page."""

from __future__ import annotations

import re
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError

from tests.support.checkout import ROOT
from tests.support.t11.manifests import EXAMPLES, VERSIONS, every, the, validate

PAGE = (ROOT / "docs/tasks/kubernetes.md").read_text()
FILES = sorted(EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_manifest_is_valid(version: str) -> None:
    found = list(every())
    assert len(found) >= len(FILES) > 4
    for manifest in found:
        validate(manifest, version)


@pytest.mark.parametrize(
    ("kind", "name", "place", "value"),
    [
        ("PersistentVolume", "spillway-export-training", "spec.nfs.paths", "/checkpoints"),
        ("PersistentVolume", "spillway-export-training", "spec.mountOptions", "hard"),
        ("PersistentVolumeClaim", "llama", "spec.accessMode", ["ReadWriteMany"]),
        ("StorageClass", "spillway", "parameters.onDelete", {}),
        ("StorageClass", "spillway", "provisioner", 5),
        ("Job", "llama", "spec.template.spec.securityContext.fsGroup", "team"),
        ("Job", "llama", "spec.template.spec.containers", {}),
        ("Job", "llama", "spec.template.spec.securityContexts", {}),
        ("NetworkPolicy", "all-but-the-gateway", "spec.egress", {"to": []}),
        ("Namespace", "training", "metadata.labels", ["restricted"]),
        ("ScrapeConfig", "spillway", "spec.scheme", "https"),
        ("ScrapeConfig", "spillway", "spec.tls", {}),
        ("ScrapeConfig", "spillway", "spec.authorization.credentials", "token"),
        ("ScrapeConfig", "spillway", "spec.staticConfigs", [{"target": "gateway:8780"}]),
    ],
)
def test_a_wrong_manifest_is_seen(kind: str, name: str, place: str, value: Any) -> None:
    manifest = deepcopy(the(kind, name))
    *above, last = place.split(".")
    part = manifest
    for key in above:
        part = part[key]
    part[last] = value
    with pytest.raises(ValidationError):
        validate(manifest, VERSIONS[0])


def test_the_parts_fit_each_other() -> None:
    pod = the("Job", "llama")["spec"]["template"]["spec"]
    claims = {one["metadata"]["name"]: one for one in every() if one["kind"].endswith("Claim")}
    asked = {volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]}
    assert asked == set(claims) == {"llama", "spillway-export"}
    [container] = pod["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == {
        one["name"] for one in pod["volumes"]
    }
    volume = the("PersistentVolume", claims["spillway-export"]["spec"]["volumeName"])["spec"]
    assert volume["claimRef"] == {"namespace": "training", "name": "spillway-export"}
    storage = the("StorageClass", claims["llama"]["spec"]["storageClassName"])
    assert storage["parameters"]["share"] == volume["nfs"]["path"]
    assert storage["parameters"]["server"] == volume["nfs"]["server"]
    # The run of the job is the directory that the driver makes for its claim.
    named = {"${pvc.metadata.namespace}": "training", "${pvc.metadata.name}": "llama"}
    directory = storage["parameters"]["subDir"]
    for variable, text in named.items():
        directory = directory.replace(variable, text)
    assert {"name": "RUN", "value": directory} in container["env"]


def test_mount_options_are_those_of_the_documents() -> None:
    """Each is in the table of options for all clients, or there for jobs that poll receipts."""
    table = (ROOT / "docs/tasks/clients.md").read_text().replace("`vers=4.1`", "`nfsvers=4.1`")
    for_all = the("StorageClass", "spillway")["mountOptions"]
    export = the("PersistentVolume", "spillway-export-training")["spec"]["mountOptions"]
    assert for_all == ["hard", "nfsvers=4.1", "nconnect=4"]
    assert export == [*for_all, "lookupcache=positive", "acdirmax=3"]
    assert [option for option in export if f"`{option}`" not in table] == []


def test_the_page_names_each_manifest_and_what_it_has() -> None:
    assert [path.name for path in FILES if f"`{path.name}`" not in PAGE] == []
    [label] = the("NetworkPolicy", "admin-api-of-the-gateway")["spec"]["podSelector"]["matchLabels"]
    assert f"`{label}: allowed`" in PAGE
    security = the("Job", "llama")["spec"]["template"]["spec"]["securityContext"]
    told = dict(re.findall(r"^  (\w+): (\w+)(?: +#.*)?$", PAGE, re.MULTILINE))
    assert told == {
        key: str(value).replace("True", "true") for key, value in security.items() if key in told
    }
    assert told.keys() >= {"runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy"}


def test_the_job_may_do_what_restricted_allows() -> None:
    """The Pod Security Standard, which the namespace enforces."""
    pod = the("Job", "llama")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


TRAIN = """\
#!/bin/sh
echo "$@" >"$TEST/trained"
mkdir -p "$TEST/export/training/llama/step-2000"
"""
SLEEP = """\
#!/bin/sh
echo "$1" >>"$TEST/slept"
cd "$TEST/export/.spillway/runs/training/llama"
[ "$(wc -l <"$TEST/slept")" -lt "$DURABLE_AFTER" ] ||
    ln -sfn ../../../../training/llama/step-2000 latest-durable
"""


class Pod:
    """The script of the job, in a directory that looks like its mounts.

    Args:
        directory: made if missing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.claim = directory / "export/training/llama"
        self._links = directory / "export/.spillway/runs/training/llama"
        for made in (self.claim, self._links, directory / "bin"):
            made.mkdir(parents=True)
        (directory / "export/.spillway/status.json").write_text('{"files_at_risk": 3}')
        for name, text in {"train": TRAIN, "sleep": SLEEP}.items():
            (directory / "bin" / name).write_text(text)
            (directory / "bin" / name).chmod(0o755)

    def has(self, step: int, *links: str) -> None:
        """Save a checkpoint. Links name it."""
        (self.claim / f"step-{step}").mkdir()
        for link in links:
            (self._links / link).symlink_to(f"../../../../training/llama/step-{step}")

    def run(self, durable_after: int, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the script.

        Args:
            durable_after: after so many calls of sleep the bucket has what was saved last.
        """
        [container] = the("Job", "llama")["spec"]["template"]["spec"]["containers"]
        [script] = container["args"]
        for mounted, place in (
            ("/checkpoints", self.claim),
            ("/spillway", self.directory / "export"),
        ):
            script = re.sub(rf"(?<![\w.]){mounted}\b", str(place), script)
        return subprocess.run(
            [*container["command"], script],
            env={
                **{one["name"]: one["value"] for one in container["env"]},
                "PATH": f"{self.directory}/bin:/usr/bin:/bin",
                "TEST": str(self.directory),
                "DURABLE_AFTER": str(durable_after),
                **environ,
            },
            capture_output=True,
            text=True,
        )

    @property
    def trained(self) -> str | None:
        """The arguments with which the training was started."""
        path = self.directory / "trained"
        return path.read_text().strip() if path.exists() else None

    @property
    def slept(self) -> int:
        """How often the script has slept."""
        return len((self.directory / "slept").read_text().splitlines())


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path / "pod")


def test_a_first_job_begins_and_waits_for_the_bucket(pod: Pod) -> None:
    done = pod.run(3)
    assert (done.returncode, done.stderr) == (0, "")
    assert pod.trained == f"--save-to {pod.claim}"
    assert pod.slept == 3
    assert done.stdout == "the bucket has step-2000\n"


@pytest.mark.parametrize(("link", "step"), [("latest-durable", 900), ("latest-complete", 1000)])
def test_a_job_resumes_from_what_a_link_names(pod: Pod, link: str, step: int) -> None:
    pod.has(900, "latest-durable")
    pod.has(1000, "latest-complete")
    done = pod.run(2, RESUME_FROM=link)
    assert (done.returncode, done.stderr) == (0, "")
    assert pod.trained == f"--save-to {pod.claim} --resume {pod.claim}/step-{step}"
    # The link named an older checkpoint all the time.
    assert pod.slept == 2


def test_a_job_does_not_begin_beside_checkpoints_that_no_link_names(pod: Pod) -> None:
    pod.has(1000)
    done = pod.run(1000)
    assert done.returncode == 1
    assert "spillway checkpoint list training/llama" in done.stderr
    assert (pod.trained, pod.slept) == (None, 60)


def test_a_job_fails_when_the_bucket_does_not_get_its_end(pod: Pod) -> None:
    pod.has(1000, "latest-durable")
    done = pod.run(1000, DURABLE_SECONDS="20")
    assert done.returncode == 1
    assert "does not have step-2000 after 20 s" in done.stderr
    assert '{"files_at_risk": 3}' in done.stderr
    assert pod.slept == 4
