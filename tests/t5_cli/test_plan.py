"""`spillway plan`, which needs neither a configuration nor a gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.cli.options import SIZE
from gateway.cli.plan import OPTIONS
from gateway.config.settings import DrainSettings, RetentionSettings
from tests.support.clisite import assert_refused, spillway

SAVE = ("--parameters", "405B", "--interval", "15m")
ALL = (
    *("--gpus", "64", "--throttle-events", "0", "--put-price", "0.005", "--restarts", "0.5"),
    *("--gpu-price", "2", "--gateway-price", "0", "--direct-rate", "2GB/s"),
    *("--storage-kw", "3", "--gpu-kw", "0.4"),
)
WEEK = ("--checkpoint-size", "350GB", "--interval", "1h", "--keep-days", "7")


def plan(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run the command in this process. Returns what it printed, with single spaces."""
    assert main(["plan", *args]) == 0
    return " ".join(capsys.readouterr().out.split())


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run the command in this process. Returns the one line with which it refused."""
    assert main(["plan", *args]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    return line


def test_it_needs_no_configuration(tmp_path: Path) -> None:
    result = spillway("plan", "--config", tmp_path / "none.toml", *SAVE)
    assert (result.returncode, result.stderr) == (0, "")
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    assert_refused(spillway("plan"), "--parameters", "--checkpoint-size")


def test_each_figure_has_its_formula(capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(capsys, *SAVE)
    assert "one checkpoint 5.67 TB parameters x bytes per parameter" in text
    assert "write rate of a job 63 GB/s one checkpoint / (interval x overlap)" in text
    assert "gateways 13 write rate of all / rate of a gateway" in text
    text = plan(capsys, *WEEK)
    assert "one checkpoint 350 GB as given" in text
    assert "drain by one gateway 4.7 min" in text
    assert "kept of a job 168 those of the last 7 days" in text
    assert "in the trash 58.8 TB what the policy deleted in the last 7 days" in text
    assert "storage a month 2,704.80 $ in the bucket, in TB x price" in text


def test_what_is_left_out_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(capsys, *WEEK, "--tier-after-days", "1")
    assert "lost to PUTs left out needs --gpus " in text
    assert "lost to throttling left out needs --gpus, --throttle-events " in text
    assert "other class a month left out needs --tier-price " in text
    assert "requests a month left out needs --files, --put-price " in text
    assert "lost to restarts left out needs --gpus, --restarts " in text
    assert "energy of a save left out needs --gpus, --storage-kw, --gpu-kw " in text
    text = plan(capsys, *WEEK, "--gpus", "64")
    assert "requests a month left out needs --put-price" in text
    assert "left out" not in plan(capsys, *WEEK, *ALL)


def test_the_output_has_what_it_was_computed_with(capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(capsys, *SAVE, "--disk", "7 GB/s")
    assert "computed with --parameters=405B --bytes-per-parameter=14 --interval=15m" in text
    assert "--overlap=10%" in text
    assert "--disk=7 GB/s" in text
    assert "list prices change" in text
    for digits in range(1, 13):
        # Wherever a line ends, an option stays whole.
        text = plan(capsys, *WEEK, "--gpus", "9" * digits, "--tier-after-days", "3")
        assert "--tier-after-days=3" in text


def test_gpu_hours(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--checkpoint-size", "1GB", "--interval", "10m", "--jobs", "200", "--gpus", "64")
    text = plan(capsys, *args, "--throttle-events", "2")
    assert "lost to PUTs 17.9 GPU-hours" in text
    assert "lost to throttling 14.2 GPU-hours" in text


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(plan(capsys, "--json", *SAVE))
    assert document["results"]["write_bytes_per_second"] == 63e9
    assert document["results"]["gateways"] == 13
    assert document["formulas"]["write_bytes_per_second"] == "one checkpoint / (interval x overlap)"
    assert document["results"].keys() == document["formulas"].keys()
    assert document["results"]["put_gpu_hours_per_day"] is None
    assert document["left_out"]["put_gpu_hours_per_day"] == "--gpus"
    assert document["comparison"]["left_out"]["stall_seconds"] == "--direct-rate"
    ways = document["comparison"]["results"]
    assert ways.keys() == {"direct_keep_all", "direct_with_policy", "through_gateway"}
    assert ways["direct_keep_all"]["stall_seconds"] is None
    assert ways["through_gateway"]["stored_bytes"] == document["results"]["stored_bytes"]
    assert ways["through_gateway"].keys() == document["comparison"]["formulas"].keys()
    assert document["inputs"]["parameters"] == 405e9
    assert document["inputs"]["network_bytes_per_second"] == 12.5e9


def test_the_trash_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--checkpoint-size", "1TB", "--interval", "30m", "--keep-newest", "3")
    text = plan(capsys, *few)
    assert "in the bucket 339 TB the sum of these storage a month 7,797.00 $" in text
    assert "held for a newer one 0 B nothing: the job removes none itself (--job-keeps)" in text
    assert "noncurrent versions 0 B nothing: the bucket is not versioned" in text
    text = plan(capsys, *few, "--trash-days", "1", "--job-keeps", "9", "--noncurrent-days", "2")
    assert "in the trash 48 TB what the policy deleted in the last 1 days" in text
    assert "held for a newer one 0 B at most one of a run" in text
    assert "noncurrent versions 96 TB" in text
    assert "at most --trash-max x gateways" in plan(capsys, *few, "--trash-max", "10TB")


def test_the_defaults_are_those_of_the_gateway() -> None:
    default = {option.flag: option.default for option in OPTIONS}
    assert float(default["--trash-days"] or 0) * 86_400 == RetentionSettings.trash_seconds
    assert SIZE.read("", default["--part-size"] or "") == DrainSettings.part_bytes


def test_the_ways_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *WEEK, *ALL]) == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 100
    [titles, *lines] = out.split("\n\n")[1].splitlines()
    assert titles.split("  ")[-1].strip() == "through the gateway"
    values = [line for line in lines if not line.startswith(" ")]
    found = {
        line[:22].strip(): [line[22:45].strip(), line[45:68].strip(), line[68:]] for line in values
    }
    assert found["stall of a save"] == ["2.9 min", "2.9 min", "1.2 min"]
    assert found["in the bucket"] == ["252 TB", "58.8 TB", "118 TB"]
    assert "lost a month" in found
    text = plan(capsys, *WEEK)
    assert "stall of a save left out left out 1.2 min direct: one checkpoint / rate of a" in text
    assert "what is left out needs --direct-rate " in text
    assert "cost of a month 5,796.00 $ 1,352.40 $ 2,704.80 $ storage; left out: requests" in text


@pytest.mark.parametrize(
    ("option", "text", "name", "value"),
    [
        ("--disk", "5GB/s", "disk_bytes_per_second", 5e9),
        ("--disk", "5GiB/s", "disk_bytes_per_second", 5 * 2**30),
        ("--network", "25Gbit/s", "network_bytes_per_second", 3.125e9),
        ("--uplink", "800 Mbit/s", "bucket_bytes_per_second", 1e8),
        ("--interval", "1.1h", "interval_seconds", 3960),
        ("--interval", "90s", "interval_seconds", 90),
        ("--outage", "0d", "outage_seconds", 0),
        ("--put-latency", "35ms", "put_seconds", 0.035),
        ("--overlap", "12.5%", "overlap", 0.125),
        ("--overlap", "1", "overlap", 1),
        ("--parameters", "1.5T", "parameters", 1.5e12),
        ("--part-size", "16MiB", "part_bytes", 1 << 24),
        ("--put-price", "0", "put_usd", 0),
        ("--direct-rate", "2GB/s", "direct_bytes_per_second", 2e9),
        ("--stall", "20%", "stall_share", 0.2),
        ("--restarts", "0.5", "restarts_per_day", 0.5),
        ("--good-interval", "1h", "good_seconds", 3600),
        ("--gpu-kw", "0", "gpu_kw", 0),
        ("--trash-days", "0", "trash_days", 0),
        ("--trash-max", "1TiB", "trash_max_bytes", 2**40),
        ("--rotation-hours", "0", "rotation_hours", 0),
        ("--noncurrent-days", "1.5", "noncurrent_days", 1.5),
    ],
)
def test_quantities(
    capsys: pytest.CaptureFixture[str], option: str, text: str, name: str, value: float
) -> None:
    document = json.loads(plan(capsys, "--json", *SAVE, option, text))
    assert document["inputs"][name] == value


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("--interval", "0m"), ("--interval '0m'", "more than 0")),
        (("--interval", "15"), ("--interval '15'", "15m", "ms, s, m, h, d")),
        (("--interval", "15 weeks"), ("'15 weeks'", "ms, s, m, h, d")),
        (("--interval=-15m",), ("--interval '-15m'", "15m")),
        (("--interval", "-15m"), ("--interval", "expected one argument")),
        (("--interval", "nan"), ("--interval 'nan'",)),
        (("--overlap", "101%"), ("--overlap '101%'", "at most 100%")),
        (("--overlap", "10"), ("--overlap '10'", "at most 100%")),
        (("--overlap", "0%"), ("--overlap '0%'", "more than 0")),
        (("--jobs", "-3"), ("--jobs '-3'",)),
        (("--jobs", "1.5"), ("--jobs '1.5'", "whole number")),
        (("--jobs", "0"), ("--jobs '0'", "more than 0")),
        (("--gpus", "3k"), ("--gpus '3k'", "units: none")),
        (("--parameters", "405X"), ("--parameters '405X'", "405B", "M, B, T")),
        (("--parameters", "9" * 400), ("--parameters",)),
        (("--interval", f"0.{'0' * 400}1s"), ("--interval",)),
        (("--parameters", "1e9"), ("--parameters '1e9'",)),
        (("--disk", "5GB"), ("--disk '5GB'", "GB/s")),
        (("--part-size", "0.5B"), ("--part-size '0.5B'", "whole number")),
        (("--storage-price", "$23"), ("--storage-price '$23'", "like 23")),
        (("--checkpoint-size", "1GB"), ("--parameters", "--checkpoint-size")),
        (("--jobs", "2", "--together", "3"), ("--together 3", "--jobs 2")),
        (("--tier-price", "4"), ("--tier-price", "--tier-after-days")),
        (("--trash-days=-1",), ("--trash-days '-1'",)),
        (("--trash-days", "7d"), ("--trash-days '7d'", "units: none")),
        (("--trash-max", "0TB"), ("--trash-max '0TB'", "more than 0")),
        (("--trash-max", "10"), ("--trash-max '10'", "TB")),
        (("--job-keeps", "0"), ("--job-keeps '0'", "more than 0")),
        (("--runs", "2"), ("--runs", "--job-keeps")),
        (("--jobs", "3", "--runs", "2", "--job-keeps", "1"), ("--runs 2", "--jobs 3")),
        (("--noncurrent-days", "0"), ("--noncurrent-days '0'", "more than 0")),
        (("--good-interval", "14m"), ("--good-interval", "at least --interval")),
        (("--stall", "101%"), ("--stall '101%'", "at most 100%")),
        (("--restarts", "two"), ("--restarts 'two'", "like")),
        (("--gpu-price", "2$"), ("--gpu-price '2$'", "like 23")),
        (("--parameters", "9000T", "--files", "1"), ("object", "more files")),
        (("--interval", "1\nh"), ("--interval", "15m")),
    ],
)
def test_wrong_input(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    line = refused(capsys, *SAVE, *args)
    for part in parts:
        assert part in line


def test_missing_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--interval" in refused(capsys, "--parameters", "1B")
    assert "--checkpoint-size" in refused(capsys, "--interval", "1h")


def test_extreme_input_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    nines = "9" * 12
    args = ["--parameters", f"{nines}T", "--interval", "0.000001ms", "--overlap", "0.000001%"]
    args += ["--outage", f"{nines}d", "--keep-every", "1", "--disk", "0.000001Mbit/s"]
    for option in ("--jobs", "--gpus", "--throttle-events", "--run-days", "--storage-price"):
        args += [option, nines]
    for option in (
        "--job-keeps",
        "--runs",
        "--restarts",
        "--gpu-kw",
        "--storage-kw",
        "--gpu-price",
    ):
        args += [option, nines]
    args += ["--noncurrent-days", nines, "--trash-days", nines, "--trash-max", f"{nines}PB"]
    args += ["--direct-rate", "0.000001Mbit/s", "--good-interval", f"{nines}d"]
    assert json.loads(plan(capsys, *args, "--json"))["results"]["gateways"] > 10**50
    assert "gateways" in plan(capsys, *args)


def test_the_examples_of_the_help_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    lines = capsys.readouterr().out.splitlines()
    examples = [line.split()[2:] for line in lines if line.startswith("    spillway plan")]
    assert len(examples) == 3
    for args in examples:
        assert "one checkpoint" in plan(capsys, *args)
