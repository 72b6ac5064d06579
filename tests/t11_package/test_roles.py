"""The variables of the roles: what is declared is what is set, and the example is right."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gateway import config
from tests.t0_tidy.test_tidy import ROOT

ROLES = sorted(path.name for path in (ROOT / "ansible/roles").iterdir())


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / "ansible" / name).read_text())


@pytest.mark.parametrize("role", ROLES)
def test_each_variable_has_a_type_and_a_default(role: str) -> None:
    options = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(f"roles/{role}/defaults/main.yml")
    needed = {name for name, spec in options.items() if spec.get("required")}
    assert set(defaults) == set(options) - needed
    assert all(spec["type"] and spec["description"] for spec in options.values())
    # Lists of other roles' settings are made by a template.
    stated = {name: spec["default"] for name, spec in options.items() if name not in needed}
    stated.pop("spillway_settings_of_roles", None)
    defaults.pop("spillway_settings_of_roles", None)
    assert defaults == stated


def test_the_example_is_a_configuration() -> None:
    settings = load("inventory/group_vars/gateways.yml")["spillway_settings"]
    assert config.from_mapping(settings, {}).bucket.name == "my-checkpoints"


def test_the_site_has_every_role() -> None:
    [play] = load("site.yml")
    assert sorted(one["role"] for one in play["roles"]) == ROLES
