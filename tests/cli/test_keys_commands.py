import stat
from pathlib import Path

import pytest

from kvairlock.gateway.keys import ApiKeys
from kvairlock.runtime.secrets import load_keyring, write_private

from .conftest import Command


def test_add_prints_the_key_and_nothing_else_on_stdout(kvairlock: Command, home: Path) -> None:
    ran = kvairlock("keys", "add", "acme", "--scope", "group:lab")
    path = home / ".local/state/kvairlock/keys.toml"
    principal = ApiKeys.load(path).find(ran.out.removesuffix("\n"))
    assert ran.status == 0
    assert principal is not None
    assert (principal.tenant, principal.scope, principal.operator) == ("acme", "group:lab", False)
    assert f"of tenant acme is in {path}; it is shown this once" in ran.err
    assert ran.out.strip() not in ran.err
    assert ran.out.strip() not in path.read_text()


def test_add_list_and_revoke_as_json(kvairlock: Command, home: Path) -> None:
    keys = ("--keys", home / "k.toml", "--json")
    first = kvairlock("keys", "add", "acme", *keys).json
    second = kvairlock("keys", "add", "umbrella", "--operator", *keys).json
    shown = kvairlock("keys", "list", *keys).json
    assert shown == [
        {"id": first["id"], "tenant": "acme", "scope": "private", "operator": False},
        {"id": second["id"], "tenant": "umbrella", "scope": "private", "operator": True},
    ]
    assert kvairlock("keys", "revoke", first["id"], *keys).json == {"revoked": first["id"]}
    assert ApiKeys.load(home / "k.toml").find(first["key"]) is None
    assert ApiKeys.load(home / "k.toml").find(second["key"]) is not None


def test_the_list_shows_no_hash(kvairlock: Command, home: Path) -> None:
    path = home / "k.toml"
    kvairlock("keys", "add", "acme", "--keys", path)
    [entry] = ApiKeys.load(path).entries()
    for extra in ((), ("--json",)):
        shown = kvairlock("keys", "list", "--keys", path, *extra).out
        assert entry.id in shown
        assert entry.hash not in shown


@pytest.mark.parametrize("words", [("acme", "--scope", "groop:x"), ("ac me",), ("",)])
def test_a_tenant_or_scope_that_is_no_name_is_refused(
    kvairlock: Command, home: Path, words: tuple[str, ...]
) -> None:
    ran = kvairlock("keys", "add", *words, "--keys", home / "k.toml")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("kvairlock: not a valid key: ")
    assert not (home / "k.toml").exists()


def test_an_unknown_id_and_a_missing_file_say_what_to_do(kvairlock: Command, home: Path) -> None:
    path = home / "k.toml"
    missing = kvairlock("keys", "list", "--keys", path)
    assert missing.status == 2
    assert missing.err.splitlines() == [
        f"kvairlock: {path}: there is no such file",
        "  next: `kvairlock keys add TENANT` makes one",
    ]
    kvairlock("keys", "add", "acme", "--keys", path)
    unknown = kvairlock("keys", "revoke", "00000000", "--keys", path)
    assert unknown.status == 2
    assert unknown.err.splitlines() == [
        f"kvairlock: {path} has no key with id '00000000'",
        "  next: `kvairlock keys list` shows the ids",
    ]


def test_cluster_keys_rotate_and_keep_one(kvairlock: Command, home: Path) -> None:
    path = home / "cluster.key"
    options = ("--cluster-key", path, "--json")
    made = kvairlock("keys", "cluster", *options).json
    first = load_keyring(path)
    assert made == {"file": str(path), "signs": first.active_id, "believed": list(first.keys)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kvairlock("keys", "cluster", "--rotate", *options)
    second = load_keyring(path)
    assert list(second.keys)[1:] == [first.active_id]
    assert second.keys[first.active_id] == first.keys[first.active_id]
    ran = kvairlock("keys", "cluster", "--rotate", "--cluster-key", path)
    third = load_keyring(path)
    assert list(third.keys)[1:] == [second.active_id]
    assert "stop and start `kvairlock serve`" in ran.err
    assert kvairlock("keys", "cluster", *options).json["believed"] == list(third.keys)


def test_cluster_shows_ids_only(kvairlock: Command, home: Path) -> None:
    path = home / "cluster.key"
    kvairlock("keys", "cluster", "--cluster-key", path)
    ran = kvairlock("keys", "cluster", "--rotate", "--cluster-key", path)
    ring = load_keyring(path)
    assert all(key_id in ran.out for key_id in ring.keys)
    assert not any(key.hex() in ran.out + ran.err for key in ring.keys.values())


def test_a_key_of_the_environment_never_gets_into_a_file(
    kvairlock: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "cluster.key"
    write_private(path, f"a {'11' * 32}\n")
    monkeypatch.setenv("KVAIRLOCK_CLUSTER_KEY", f"b {'22' * 32}")
    ran = kvairlock("keys", "cluster", "--rotate", "--cluster-key", path)
    assert ran.status == 2
    assert ran.err.startswith("kvairlock: KVAIRLOCK_CLUSTER_KEY is set, so that no file is used\n")
    assert path.read_text() == f"a {'11' * 32}\n"
