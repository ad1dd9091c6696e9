"""The examples run as they stand, without a key and without a network, and print what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply, text

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

#: What each prints: every line of the pattern, in this order, with anything between.
PRINTS = {
    "hello.py": (
        r"^A step is one pass through a pipeline\.$",
        r"^What a step is\. \[MODEL_STOP\]$",
        r"^messages in the session: 4$",
    ),
    "tools.py": (
        r"^result price 0\.4$",
        r"^end    price success$",
        r"^result price LookupError: there is no plum",
        r"^end    price error$",
        r"^result weigh apple on the scales$",
        r"^result weigh pear on the scales$",
        r"^answer An apple costs",
    ),
    "web_stream.py": (
        r"^AGENT_START",
        r"^TEXT_BLOCK_DELTA Hello ",
        r"^TEXT_BLOCK_DELTA a stream\.$",
        r"^AGENT_RESULT",
        r"^AGENT_END",
    ),
    "cancel.py": (
        r"^left after '1 '$",
        r"^interrupted: INTERRUPTED$",
        r"^timed out$",
        r"^cancelled: True$",
        r"^I am still here\.$",
    ),
    "background.py": (
        r"^tool run_tests success$",
        r"^text Three\.$",
        r"^task completed$",
        r"^then Fixed\.$",
        r"^said \['Look at the export\.', 'Only say how many tests fail\.', 'Three\.', 'Fix them\.', 'Fixed\.'\]$",
    ),
    "custom_operator.py": (
        r"^      redact_emails +view\b",
        r"^      print_request +view\b",
        r"^    call_model +effect +\(rx\.timeout\)$",
        r"^the model reads: Write to \[email\] that all is well\.$",
        r"^           and: This is reasoning step 1\.$",
        r"^I will write to \[email\]\.$",
    ),
    "export_fix.py": (
        r"^PERMISSION_ASKING$",
        r"^asked: the plan in plans/PLAN\.md is to be approved, and with that planning ends$",
        r"^done: The export is fixed, and has to be verified\.$",
        r"^checked: PASSED exit code 0$",
        r"^Change 42 is done: .* The tests of the export support that\.$",
    ),
    "two_users.py": (
        r"^alice: Answer in French\. In French: True$",
        r"^alice: C'est noté\.$",
        r"^alice: sees AGENTS\.md, notes$",
        r"^bob: Answer in English\. In French: False$",
        r"^bob: I know nothing about tea\.$",
        r"^bob: sees AGENTS\.md$",
    ),
    "long_run.py": (
        r"^requests    250, refused 0$",
        r"^tokens      median [\d,]+, largest [5-6],\d{3}, limit 6,840$",
        r"^compactions \d{1,2}, which freed [2-6],\d{3} tokens each$",
        r"^offloads    \d{1,2} results moved into files$",
        r"^picture     long_run\.svg$",
    ),
}
#: What examples are made of or drawn with, and no example.
PARTS = {"export_agent.py", "export_story.py", "token_chart.py"}
FIGURES = ("compactions", "offloads")
ARGUMENTS = {"long_run.py": ("250",)}
#: They need answers that come in order or when they are meant to, or would ask a real model two thousand times.
SCRIPTED_ONLY = {"background.py", "cancel.py", "export_fix.py", "long_run.py"}


def run(name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an example from another folder, with warnings as errors."""
    env = {name: value for name, value in os.environ.items() if name not in ("AGENTSCOPE_RX_MODEL", "PORT")}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **variables}
    command = [sys.executable, EXAMPLES / name, *ARGUMENTS.get(name, ())]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_every_example_is_run() -> None:
    """Each file of the folder but the parts has its pattern here, and fits on a screen."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PRINTS) | PARTS
    assert all(len((EXAMPLES / name).read_text().splitlines()) < 60 for name in PRINTS)


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    """It ends well, says nothing on stderr, and prints its lines in order."""
    done = run(name, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    place = 0
    for pattern in PRINTS[name]:
        found = re.compile(pattern, re.MULTILINE).search(done.stdout, place)
        assert found, (pattern, done.stdout)
        place = found.end()


@pytest.mark.parametrize("name", [name for name in PRINTS if name not in SCRIPTED_ONLY])
def test_an_example_takes_a_real_model(name: str, tmp_path: Path) -> None:
    """With `AGENTSCOPE_RX_MODEL` it asks that model instead of its script."""
    with FakeProvider.in_thread([text("From the model."), text("Once more.")]) as provider:
        asking = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k"}
        done = run(name, tmp_path, AGENTSCOPE_RX_MODEL="openai:real", **asking)
        assert (done.returncode, done.stderr) == (0, "")
        assert "From the model." in done.stdout
        assert [request.body["model"] for request in provider.requests][:1] == ["real"]


def test_cancelling_a_real_model_closes_its_connections(tmp_path: Path) -> None:
    """The runs that are ended early leave the provider in the middle of its answer; the last one is answered."""
    endless = text("1 " * 10_000, deltas=10_000, pace=0.001)

    def reply(request: RecordedRequest, _: int) -> ScriptedReply:
        return text("Still here.") if request.messages[-1]["content"] == "Are you there?" else endless

    with FakeProvider.in_thread(reply) as provider:
        asking = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k"}
        done = run("cancel.py", tmp_path, AGENTSCOPE_RX_MODEL="openai:real", **asking)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == "Still here."
        *ended, last = [request.client_left for request in provider.requests]
        assert len(ended) >= 2  # one that is cancelled at once may not come to its request
        assert all(ended)
        assert not last


def test_the_long_run_is_drawn(tmp_path: Path) -> None:
    """Its picture is well-formed, nothing lies outside of it, and it marks what the figures say."""
    done = run("long_run.py", tmp_path)
    picture = ET.parse(tmp_path / "long_run.svg").getroot()
    shapes = [(each.tag.rpartition("}")[2], each) for each in picture.iter()]
    words = [each.text or "" for tag, each in shapes if tag == "text"]
    compactions, offloads = (int(re.findall(rf"^{name} +(\d+)", done.stdout, re.MULTILINE)[0]) for name in FIGURES)
    assert words.count("250 steps in a window of 8,000 tokens") == 1
    assert f"{compactions} compactions, {offloads} results moved into files, no requests refused" in words
    assert {"limit: 6,840 tokens", "tokens of the request", "step of the run", "pressure 3, from 95%"} <= set(words)
    (line,) = [each.attrib["points"].split() for tag, each in shapes if tag == "polyline"]
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    places = [tuple(map(float, point.split(","))) for point in line]
    assert len(places) == 250
    assert all(0 < x < width and 0 < y < height for x, y in places)
    strokes = [each.attrib["d"].count("v16") for tag, each in shapes if tag == "path" and "v16" in each.attrib["d"]]
    assert strokes[0] == compactions
    assert 0 < strokes[1] <= offloads  # one stroke a request, which may move several
