"""Reads and validates the manifests of examples/kubernetes.

kubernetes-validate has the schemas of Kubernetes in its wheel. Strict ones also refuse what they do
not know. A schema of Kubernetes has no value of an enumeration, and none of a custom resource: of
ScrapeConfig the structure and the fields that we use are checked, as the types of the Prometheus
operator have them (pkg/apis/monitoring/v1alpha1/scrapeconfig_types.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator

from tests.support.checkout import ROOT

EXAMPLES = ROOT / "examples/kubernetes"
VERSIONS = ("1.37", "1.30")
"""The newest that the validator knows, and one that clusters of some years have."""

Manifest = dict[str, Any]

_TEXT = {"type": "string", "minLength": 1}
_KEY = {
    "type": "object",
    "properties": {"name": _TEXT, "key": _TEXT},
    "required": ["key", "name"],
    "additionalProperties": False,
}


def _object(required: tuple[str, ...] = (), **properties: Any) -> Manifest:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TARGETS = {"type": "array", "items": _TEXT, "minItems": 1}
CUSTOM: dict[tuple[str, str], Manifest] = {
    ("monitoring.coreos.com/v1alpha1", "ScrapeConfig"): _object(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata=_object(("name",), name=_TEXT, namespace=_TEXT),
        spec=_object(
            ("staticConfigs",),
            jobName=_TEXT,
            staticConfigs={"type": "array", "items": _object(("targets",), targets=_TARGETS)},
            metricsPath=_TEXT,
            scheme={"enum": ["HTTP", "HTTPS"]},
            authorization=_object(type=_TEXT, credentials=_KEY),
            tlsConfig=_object(ca=_object(configMap=_KEY), serverName=_TEXT),
        ),
    )
}


def manifests(path: Path) -> list[Manifest]:
    """Return the resources of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def every() -> Iterator[Manifest]:
    """Yield the resources of all files."""
    for path in sorted(EXAMPLES.glob("*.yaml")):
        yield from manifests(path)


def the(kind: str, name: str) -> Manifest:
    """Return a resource."""
    [found] = [one for one in every() if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def validate(manifest: Manifest, version: str) -> None:
    """Raise jsonschema.ValidationError if a manifest is wrong."""
    custom = CUSTOM.get((manifest["apiVersion"], manifest["kind"]))
    if custom is None:
        kubernetes_validate.validate(manifest, version, strict=True)
    else:
        Draft202012Validator(custom).validate(manifest)
