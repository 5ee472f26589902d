"""API keys: who is found, what is stored, and files that cannot be used."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from kvairlock.gateway.keys import ApiKeys, KeyFileWrong, Principal

GOOD_HASH = "ab" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def test_an_issued_key_finds_its_principal(path: Path) -> None:
    keys = ApiKeys(path)
    first = keys.issue("acme")
    second = keys.issue("staff", "group:eng", operator=True)
    loaded = ApiKeys.load(path)
    assert loaded.find(first) == Principal("acme", "private", False)
    assert loaded.find(second) == Principal("staff", "group:eng", True)


@pytest.mark.parametrize(
    ("scope", "ticket"),
    [
        ("private", "tenant:acme"),
        ("none", ""),
        ("group:eng", "group:eng"),
        ("public", "public"),
    ],
)
def test_scopes_as_tickets_carry_them(scope: str, ticket: str) -> None:
    assert Principal("acme", scope, False).ticket_scope == ticket


def test_the_file_is_private_and_holds_no_key(path: Path) -> None:
    key = ApiKeys(path).issue("acme")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = key.split("-", 2)[2]
    assert len(secret) == 43
    assert secret not in path.read_text()
    (entry,) = tomllib.loads(path.read_text())["key"]
    assert set(entry) == {"id", "tenant", "hash", "scope", "operator"}
    assert key.startswith(f"kva-{entry['id']}-")


def test_a_hash_is_not_a_key(path: Path) -> None:
    keys = ApiKeys(path)
    keys.issue("acme")
    (entry,) = keys.entries()
    assert keys.find(entry.hash) is None
    assert keys.find(f"kva-{entry.id}-{entry.hash}") is None
    assert entry.hash not in repr(entry)


@pytest.mark.parametrize(
    "presented",
    ["", "kva", "kva-", "kva--", "kva-00000000-x", "-".join(["kva"] * 40), "é" * 9, "\ud800", "\0"],
)
def test_what_is_no_key_finds_nobody(path: Path, presented: str) -> None:
    keys = ApiKeys(path)
    keys.issue("acme")
    assert keys.find(presented) is None


def test_a_key_with_anything_changed_finds_nobody(path: Path) -> None:
    keys = ApiKeys(path)
    key = keys.issue("acme")
    other = keys.issue("rival")
    assert keys.find(key + "A") is None
    assert keys.find(key[:-1]) is None
    mixed = other.rsplit("-", 1)[0].split("-")[1]
    assert keys.find(f"kva-{mixed}-{key.split('-', 2)[2]}") is None


def test_changes_of_the_file_count_at_once(path: Path) -> None:
    running = ApiKeys(path)
    first = running.issue("acme")
    elsewhere = ApiKeys.load(path)
    second = elsewhere.issue("rival")
    assert running.find(second) == Principal("rival", "private", False)
    elsewhere.revoke(first.split("-")[1])
    assert running.find(first) is None
    assert [entry.tenant for entry in running.entries()] == ["rival"]


def test_revoking_an_unknown_id_says_so(path: Path) -> None:
    keys = ApiKeys(path)
    keys.issue("acme")
    with pytest.raises(KeyFileWrong, match="no key with id 'zz'"):
        keys.revoke("zz")


@pytest.mark.parametrize(
    ("tenant", "scope"),
    [
        ("", "private"),
        ('a"b', "private"),
        ("a\nb", "none"),
        ("a", "grp:x"),
        ("a", "group:"),
        ("a", "private\n"),
        ("a\n", "private"),
    ],
)
def test_names_that_would_not_read_back_are_refused(path: Path, tenant: str, scope: str) -> None:
    keys = ApiKeys(path)
    with pytest.raises(KeyFileWrong, match="not a valid key"):
        keys.issue(tenant, scope)
    assert not path.exists()


ENTRY = f'[[key]]\nid = "00000001"\ntenant = "a"\nhash = "{GOOD_HASH}"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[key]\n" + ENTRY, "line 1"),
        (ENTRY + f"hash = {GOOD_HASH}\n", "line 5"),
        (ENTRY.replace('"a"', "7"), r"\$\.key\[0\]\.tenant"),
        (ENTRY.replace(GOOD_HASH, GOOD_HASH[1:]), r"\$\.key\[0\]\.hash"),
        (ENTRY + 'scope = "all"\n', r"\$\.key\[0\]\.scope"),
        (ENTRY + "admin = true\n", "admin"),
        (ENTRY + ENTRY, "used twice"),
        ("key = 3\n", r"\$\.key"),
    ],
)
def test_a_malformed_file_says_where_and_never_shows_a_hash(
    path: Path, text: str, says: str
) -> None:
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(KeyFileWrong, match=says) as caught:
        ApiKeys.load(path)
    assert GOOD_HASH[1:] not in str(caught.value)


def test_a_missing_or_foreign_writable_file_is_refused(path: Path) -> None:
    with pytest.raises(KeyFileWrong, match="No such file"):
        ApiKeys.load(path)
    path.write_text(ENTRY)
    path.chmod(0o622)
    with pytest.raises(KeyFileWrong, match="others can write"):
        ApiKeys.load(path)


def test_a_file_that_breaks_while_running_authenticates_nobody(path: Path) -> None:
    keys = ApiKeys(path)
    key = keys.issue("acme")
    good = path.read_text()
    path.write_text("[[key")
    for _ in range(2):
        with pytest.raises(KeyFileWrong):
            keys.find(key)
    path.write_text(good)
    assert keys.find(key) is not None
