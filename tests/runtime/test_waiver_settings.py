"""There is no way to reduce a check but a waiver, and none that leaves out what it must say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kvairlock.cli.settings_text import toml
from kvairlock.core.checks import FULL, CheckPolicy, Checks
from kvairlock.core.guards import GUARDS, Guard
from kvairlock.core.terms import NodeName, Route
from kvairlock.runtime.guarding import Guarding, in_words
from kvairlock.runtime.settings import Settings, SettingsWrong, parse

NODES = """
[[prefill]]
name = "p"
[[prefill]]
name = "q"
[[decode]]
name = "d"
"""
FIELDS = {
    "name": '"pilot"',
    "guards": '["integrity", "range"]',
    "mode": '"observing"',
    "routes": '["p/d"]',
    "conditions": '"pilot tenants only"',
    "owner": '"serving"',
    "expires": "2026-12-31T00:00:00Z",
    "evidence": '"30 days without a would-be refusal"',
}
EXPIRES = int(datetime(2026, 12, 31, tzinfo=UTC).timestamp())


def waiver(**fields: str | None) -> str:
    """Settings with one waiver; None leaves a field out."""
    lines = [f"{name} = {text}" for name, text in {**FIELDS, **fields}.items() if text is not None]
    return "\n".join((NODES, "[[waiver]]", *lines))


def sampled(**fields: str | None) -> str:
    reduced = {"guards": None, "mode": None, "checks": '"sampled"', "share": "0.25"}
    return waiver(**{**reduced, **fields})


def test_a_waiver_is_made_as_it_is_written() -> None:
    (made,) = parse(waiver()).waivers
    assert (made.name, made.guards) == ("pilot", frozenset({Guard.INTEGRITY, Guard.RANGE}))
    assert made.routes == (Route(NodeName("p"), NodeName("d")),)
    assert (made.checks, made.expires_unix_s) == (FULL, EXPIRES)
    assert (made.conditions, made.owner) == ("pilot tenants only", "serving")
    assert made.evidence == "30 days without a would-be refusal"


def test_a_waiver_without_routes_is_for_all_of_them() -> None:
    (made,) = parse(sampled(routes=None)).waivers
    assert [str(route) for route in made.routes] == ["p/d", "q/d"]
    assert made.checks == Checks(CheckPolicy.SAMPLED, 0.25)
    assert made.guards == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-31T01:30:00+01:30", EXPIRES),
        ("2026-12-31T00:00:00.999Z", EXPIRES),
    ],
)
def test_the_end_is_a_second_of_any_time_zone(text: str, expected: int) -> None:
    assert parse(waiver(expires=text)).waivers[0].expires_unix_s == expected


@pytest.mark.parametrize("name", ["name", "conditions", "owner", "expires", "evidence"])
def test_a_waiver_that_leaves_something_out_is_refused(name: str) -> None:
    with pytest.raises(SettingsWrong, match=f"missing required field `{name}`"):
        parse(waiver(**{name: None}))


@pytest.mark.parametrize("name", ["conditions", "owner", "evidence"])
@pytest.mark.parametrize("text", ['""', '"  "'])
def test_a_waiver_that_says_nothing_is_refused(name: str, text: str) -> None:
    with pytest.raises(SettingsWrong, match=rf"{name}|length >= 1"):
        parse(waiver(**{name: text}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (waiver(mode=None), "waiver pilot: guards and mode = 'observing' go together"),
        (waiver(mode='"enforcing"'), "go together"),
        (waiver(mode='"disabled"'), "a waiver disables no guard"),
        (waiver(mode='"off"'), "Invalid enum value 'off'"),
        (waiver(guards="[]"), "go together"),
        (waiver(guards=None, mode=None), "it waives nothing"),
        (waiver(guards='["drian"]'), "Invalid enum value 'drian'"),
        (waiver(routes='["p/e"]'), "there is no route p/e"),
        (waiver(expires="2026-12-31T00:00:00"), "timezone"),
        (waiver(expires='"soon"'), "expires"),
        (waiver(why='"because"'), "unknown field `why`"),
        (waiver(name='"Pilot 1"'), "matching regex"),
        (waiver() + waiver().replace(NODES, "\n"), "needs a name of its own"),
        (sampled(share=None), "a share over 0 go together"),
        (sampled(share="0"), "a share over 0 go together"),
        (sampled(share="1.5"), "<= 1"),
        (sampled(checks='"generation"'), "a share over 0 go together"),
        (sampled(checks='"off"', share=None), "for drills only"),
        (sampled(checks='"some"'), "Invalid enum value 'some'"),
    ],
)
def test_a_waiver_that_makes_no_sense_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(SettingsWrong, match=message):
        parse(text)


@pytest.mark.parametrize("guard", [g for g, row in GUARDS.items() if not row.can_observe])
def test_no_waiver_makes_an_action_observe(guard: Guard) -> None:
    with pytest.raises(SettingsWrong, match=f"{guard} cannot observe: {GUARDS[guard].observing}"):
        parse(waiver(guards=f'["{guard}"]'))


@pytest.mark.parametrize("guard", [g for g, row in GUARDS.items() if row.can_observe])
def test_every_comparison_can_be_made_to_observe(guard: Guard) -> None:
    assert parse(waiver(guards=f'["{guard}"]')).waivers[0].guards == {guard}


def test_no_other_setting_reduces_a_check() -> None:
    for wrong in ('[[decode]]\nname = "d"\nchecks = "sampled"\n', '[guards]\nintegrity = "off"\n'):
        with pytest.raises(SettingsWrong, match="unknown field"):
            parse(wrong)
    with pytest.raises(SettingsWrong, match="guards are off outside drill mode"):
        parse('[drill]\nguards_off = ["integrity"]\n')


def test_settings_with_waivers_read_back_as_they_were() -> None:
    zone = timezone(timedelta(hours=5, minutes=45))
    settings = parse(waiver(expires="2026-12-31T00:00:00.5+05:45"))
    assert settings.waiver[0].expires == datetime(2026, 12, 31, 0, 0, 0, 500_000, zone)
    assert parse(toml(settings)) == settings
    assert parse(toml(parse(sampled()))) == parse(sampled())


# As the time goes on


def test_a_process_records_what_is_in_force_and_what_had_expired_at_its_start() -> None:
    text = waiver() + sampled(name='"old"', expires="2026-01-01T00:00:00Z").replace(NODES, "\n")
    guarding = Guarding(parse(text), EXPIRES - 100)
    assert in_words(guarding.guards) == (
        "p/d integrity observing: pilot",
        "p/d range observing: pilot",
    )
    assert [(event, fields["waiver"]) for event, fields in guarding.at_start] == [
        ("waiver_began", "pilot"),
        ("waiver_expired", "old"),
    ]


def test_a_waiver_ends_by_itself_and_that_is_recorded_once() -> None:
    guarding = Guarding(parse(waiver()), EXPIRES - 1)
    assert guarding.look(EXPIRES - 1) == ()
    entries = guarding.look(EXPIRES)
    assert entries == (
        (
            "waiver_expired",
            {
                "waiver": "pilot",
                "relaxes": ("p/d integrity observing: pilot", "p/d range observing: pilot"),
                "conditions": "pilot tenants only",
                "owner": "serving",
                "expires_unix_s": EXPIRES,
                "evidence": "30 days without a would-be refusal",
            },
        ),
        ("guards_changed", {"relaxed": ()}),
    )
    assert guarding.guards.relaxed == ()
    assert guarding.look(EXPIRES - 1) == guarding.look(EXPIRES + 1) == ()


def test_without_waivers_all_guards_enforce_at_any_time() -> None:
    guarding = Guarding(Settings(), 0)
    assert guarding.at_start == ()
    assert guarding.look(2**40) == ()
    assert guarding.guards == Settings().guards


def test_what_a_process_states_at_its_start_and_beats_follows_its_guards_and_landing() -> None:
    drill = '[drill]\nenabled = true\nguards_off = ["range"]\n'
    off = Guarding(parse(f'{drill}[[decode]]\nname = "d"\nlanding = "direct"\n'), 0)
    said = {"guards_off": ("range",), "relaxed": ()}
    assert off.stated("d") == {**said, "landing": "direct"}
    assert off.stated("gateway") == {**said, "landing": ""}
    guarding = Guarding(parse(waiver()), EXPIRES - 1)
    assert len(guarding.stated("d")["relaxed"]) == 2  # type: ignore[arg-type]
    guarding.look(EXPIRES)
    assert guarding.stated("d") == {"guards_off": (), "landing": "copy", "relaxed": ()}
