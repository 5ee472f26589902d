"""What is agreed on for a deployment, and which drills can be carried out there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kvairlock.core.errors import KvairlockError
from kvairlock.drills.library.shipped import drill, shipped
from kvairlock.drills.runs.deployed import why_not
from kvairlock.drills.runs.deployment import Deployment, DeploymentWrong, Facts, load
from kvairlock.runtime.secrets import write_private

FILE = """
[gateway]
url = "http://127.0.0.1:8000"
key_file = "operator.key"

[[tenant]]
name = "acme"
key_file = "acme.key"

[[tenant]]
name = "bravo"
key_file = "bravo.key"

[[tenant]]
name = "coral"
key_file = "coral.key"

[limits]
tenants_max = 3
requests_max = 24
prompt_tokens = [34, 2048]
seconds_max = 120
retention_h = 12

[evidence]
folder = "evidence"
evidence_key_file = "evidence.key"
"""

FACTS = Facts("recall", 1024, ("prefill-0", "decode-0"), (), can_steer=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file, with all the files that it names."""
    for name in ("operator", "acme", "bravo", "coral"):
        key = tmp_path / f"{name}.key"
        key.write_text(f"kva-{name}\n")
        key.chmod(0o600)
    write_private(tmp_path / "evidence.key", f"1796000000 36500 {'ab' * 32}\n")
    path = tmp_path / "deployment.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def deployment(file: Path) -> Deployment:
    return load(file)


def test_keys_come_from_files_beside_it(deployment: Deployment, file: Path) -> None:
    assert deployment.operator == "kva-operator"
    assert deployment.keys == {"acme": "kva-acme", "bravo": "kva-bravo", "coral": "kva-coral"}
    assert deployment.evidence == file.parent / "evidence"


def test_a_drills_tenants_stand_for_those_of_the_deployment(deployment: Deployment) -> None:
    site = deployment.site(("mallory", "alice"))
    assert site.stack is None
    assert site.records is not None
    assert deployment.pseudonyms is not None
    assert site.records.tenant("mallory") == deployment.pseudonyms.of("tenant", "acme")
    assert site.records.tenant("alice") == deployment.pseudonyms.of("tenant", "bravo")


def test_without_evidence_there_are_no_records(file: Path) -> None:
    file.write_text(FILE[: FILE.index("[evidence]")])
    assert load(file).site(("alice",)).records is None


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('name = "bravo"', 'name = "acme"', "a tenant is named twice"),
        ('[gateway]\nurl = "http://127.0.0.1:8000"', "[gateway]", "missing required field `url`"),
        ("retention_h = 12", "", "missing required field `retention_h`"),
        ("tenants_max", "tenant_max", "unknown field `tenant_max`"),
        ('folder = "evidence"', "", "missing required field `folder`"),
        ("[limits]", "[limit]", "unknown field `limit`"),
        ("[limits]", "[limits", "not TOML"),
        ('url = "http://', 'url = "https://', "gateway.url must begin with http://"),
        ('key_file = "coral.key"', 'key = "kva-coral"', "unknown field `key`"),
        ('key_file = "coral.key"', 'key_file = "none.key"', "none.key: there is no such file"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(
    before: str, after: str, why: str, file: Path
) -> None:
    assert before in FILE
    file.write_text(FILE.replace(before, after, 1))
    with pytest.raises(KvairlockError, match=why):
        load(file)


def test_a_key_that_others_can_read_is_refused(file: Path) -> None:
    (file.parent / "acme.key").chmod(0o644)
    with pytest.raises(KvairlockError, match=r"acme.key: others can read it") as refused:
        load(file)
    assert "kva-acme" not in str(refused.value)


def test_nobody_there_is_an_error_with_the_address(file: Path) -> None:
    file.write_text(FILE.replace(":8000", ":1"))
    with pytest.raises(DeploymentWrong, match=r"^http://127.0.0.1:1: no answer: ConnectError$"):
        load(file).facts()


# What can be done there


def test_drills_that_only_ask_can_be_carried_out_anywhere(deployment: Deployment) -> None:
    plain = replace(FACTS, can_steer=False, nodes=("a", "b"))
    possible = {known.name for known in shipped() if why_not(known, deployment, plain) is None}
    assert possible == {"promise", "tenants", "leavers"}


@pytest.mark.parametrize(
    ("name", "facts", "why"),
    [
        ("promise", replace(FACTS, model="smollm2"), "the model there is smollm2;"),
        ("promise", replace(FACTS, promise_tokens=4096), "it takes up to 5079 prompt tokens; "
         "agreed on are 2048"),
        ("promise", replace(FACTS, promise_tokens=40), "it has prompts of 23 tokens; agreed on are "
         "34 at least"),
        ("contract", FACTS, "it stops processes, or looks into them"),
        ("tail", FACTS, "it stops processes, or looks into them"),
        ("drain", FACTS, "it needs a stack of its own"),
        ("nodes", FACTS, "it needs a stack of its own"),
        ("range", replace(FACTS, can_steer=False), "it needs drill mode"),
        ("range", replace(FACTS, routes_closed=("prefill-0/decode-0",)), "a route is closed there: "
         "prefill-0/decode-0"),
        ("range", replace(FACTS, nodes=("prefill-0", "decode-7")), "no node is called decode-0"),
        ("range", FACTS, None),
        ("integrity", FACTS, None),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_skipped_with_the_reason(
    name: str, facts: Facts, why: str | None, deployment: Deployment
) -> None:
    said = why_not(drill(name), deployment, facts)
    assert (said is None) is (why is None)
    assert said is None or said.startswith(str(why))


def test_a_drill_that_waits_for_evidence_needs_it(deployment: Deployment) -> None:
    blind = replace(deployment, evidence=None, pseudonyms=None)
    assert (
        why_not(drill("integrity"), blind, FACTS) == "it waits for evidence, which is not at hand"
    )
    assert why_not(drill("range"), blind, FACTS) is None


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"tenants_max": 1}, "it takes up to 3 tenants; agreed on are 1"),
        ({"requests_max": 8}, "it takes up to 21 requests; agreed on are 8"),
        ({"seconds_max": 30}, "it takes up to 120 seconds; agreed on are 30"),
    ],
)
def test_what_was_not_agreed_on_is_skipped(
    limit: dict[str, int], why: str, deployment: Deployment
) -> None:
    limits = msgspec.structs.replace(deployment.limits, **limit)
    assert why_not(drill("tenants"), replace(deployment, limits=limits), FACTS) == why


def test_a_deployment_with_fewer_tenants_than_a_drill_needs(deployment: Deployment) -> None:
    alone = replace(deployment, tenants=("acme",))
    assert why_not(drill("tenants"), alone, FACTS) == "it needs 3 tenants; there are 1"
