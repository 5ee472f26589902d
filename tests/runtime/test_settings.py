from pathlib import Path

import pytest

from kvairlock.core.errors import Reason
from kvairlock.core.promise.commitment import Commitment, LengthClass, Reach
from kvairlock.core.promise.conditions import Conditions
from kvairlock.core.terms import NodeName
from kvairlock.runtime.settings import Settings, SettingsWrong, check, load, parse

COMMITTED = """
[commitment]
context_tokens = 1024
output_tokens = 256
reach = "every"
fingerprints = { prefill-0 = "abc" }

[[commitment.classes]]
name = "short"
context_tokens = 200
concurrency = 8

[[commitment.classes]]
name = "long"
context_tokens = 1024
"""


@pytest.mark.parametrize(
    ("choice", "located"),
    [
        ("recall", "recall"),
        ("smollm2", "smollm2"),
        ("models/own.gguf", "{folder}/models/own.gguf"),
        ("/srv/own.gguf", "/srv/own.gguf"),
        ("~/own.gguf", "{home}/own.gguf"),
    ],
)
def test_a_model_file_is_found_from_the_folder_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str, located: str
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.chdir("/")
    file = tmp_path / "stack.toml"
    file.write_text(f'model = "{choice}"\n')
    expected = located.format(folder=tmp_path, home="/home/ada")
    assert load(file).model == expected


def test_the_folder_of_settings_that_are_named_relatively_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stack.toml").write_text('model = "own.gguf"\n')
    monkeypatch.chdir(tmp_path)
    assert load(Path("stack.toml")).model == f"{tmp_path}/own.gguf"


def test_the_defaults_hold_together() -> None:
    settings = Settings()
    check(settings)
    assert settings.limits.prefill_ms == 120_000
    assert settings.gateway.ticket_s == 180
    assert (settings.prefill[0].threads, settings.decode[0].threads) == (0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gateway]\nticket_s = 129\n", "gateway.ticket_s must cover limits.queue_ms plus"),
        ("[limits]\nbeat_ms = 1500\n", "limits.lost_ms must be over twice limits.beat_ms"),
        ('[[prefill]]\nname = "p"\nthreads = -1\n', "Expected `int` >= 0"),
        ('[[prefill]]\nname = "a"\n[[decode]]\nname = "a"\n', "needs a name of its own"),
        ('[[decode]]\nname = "gateway"\n', "needs a name of its own"),
        ('[breaker]\nreasons = ["forged"]\n', "`forged` says nothing against a node"),
        ("[breaker]\nfailures = 0\n", "Expected `int` >= 1"),
        ('[drill]\nguards_off = ["drain"]\n', "guards are off outside drill mode: drain"),
        ('[[decode]]\nname = "d"\nlanding = "direct"\n', "is for drills only"),
        (
            '[[commitment.classes]]\nname = "a"\ncontext_tokens = 1\n' * 2,
            "classes]] needs a name of its own",
        ),
        (
            '[[commitment.classes]]\nname = "a\\n"\ncontext_tokens = 1\n',
            "needs a name of its own, on one line",
        ),
        ('[commitment.fingerprints]\nprefill-9 = "f"\n', "prefill-9 is no node of this stack"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(text: str, message: str) -> None:
    with pytest.raises(SettingsWrong, match=message):
        parse(text)


def test_the_conditions_of_breakers_are_those_of_the_core() -> None:
    text = '[breaker]\nfailures = 4\nviolations = 2\nwithin_s = 30\nreasons = ["engine"]\n'
    expected = Conditions(4, 2, 30_000, frozenset({Reason.ENGINE}))
    assert parse(text).breaker.conditions == expected
    assert Reason.PEER_LOST not in parse("").breaker.conditions.reasons


def test_the_commitment_is_the_one_of_the_core() -> None:
    told = parse(COMMITTED).commitment.promised
    assert told == Commitment(
        context_tokens=1024,
        output_tokens=256,
        reach=Reach.EVERY,
        classes=(LengthClass("short", 200, 8), LengthClass("long", 1024, 1)),
        fingerprints={NodeName("prefill-0"): "abc"},
    )
    assert Settings().commitment.promised == Commitment()
