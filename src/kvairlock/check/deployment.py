"""The file that says what to check: a commitment, and where the nodes are that must hold it.

    [commitment]   what is promised, as in the settings of a stack
    [[gateway]]    an embedded stack: its nodes report through it
    [[engine]]     one vLLM or SGLang server
    [[route]]      which engines serve together; every prefill with every decode if left out

It holds no secret: a key is in a file or in an environment variable that it names. Unknown names
are errors, as in settings, so that a typing mistake never loosens a promise.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError
from kvairlock.core.terms import NodeName, Role, Route
from kvairlock.runtime.secrets import ApiKeyWrong, api_key_in, api_key_of
from kvairlock.runtime.settings import CommitmentSettings, SettingsWrong, check_commitment

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")

PORT_MAX = 65535


class DeploymentWrong(KvairlockError):
    """The file cannot be used; the message says where and why."""

    code = "deployment_wrong"


class EngineKind(StrEnum):
    """Which server an engine is."""

    VLLM = "vllm"
    SGLANG = "sglang"


class EngineRole(StrEnum):
    """What an engine is in a route."""

    PREFILL = "prefill"
    DECODE = "decode"


class Address(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where something answers, and with which key."""

    url: Annotated[str, Meta(description="Address, as http://HOST:PORT; a path is its prefix.")]
    key_file: Annotated[
        str,
        Meta(
            description="File with the API key, for its owner only (mode 0600); a relative path "
            "starts at the folder of this file."
        ),
    ] = ""
    key_variable: Annotated[
        str, Meta(description="Environment variable with the API key, instead of a file.")
    ] = ""

    def key(self, folder: Path) -> str | None:
        """Return the key, or None where none is named.

        Args:
            folder: Where a relative path starts.

        Raises:
            DeploymentWrong: Two are named, or the one cannot be used; it is never shown.
        """
        if self.key_file and self.key_variable:
            raise DeploymentWrong(f"{self.url}: key_file or key_variable, not both")
        try:
            if self.key_file:
                return api_key_in(folder / Path(self.key_file).expanduser())
            return api_key_of(self.key_variable) if self.key_variable else None
        except ApiKeyWrong as error:
            raise DeploymentWrong(str(error)) from None


class GatewayAddress(Address, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway of an embedded stack; its key must be an operator's."""

    name: Annotated[
        str,
        Meta(description="Put before the names of its nodes; needed where there are several."),
    ] = ""


class EngineAddress(Address, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One vLLM or SGLang server; a key if it asks for one."""

    name: Annotated[str, Meta(description="What it is called here, unique.")]
    kind: Annotated[EngineKind, Meta(description="Which server it is.")]
    role: Annotated[EngineRole, Meta(description="What it is in a route.")]

    @property
    def plays(self) -> Role:
        """Its role, as the core has it."""
        return Role(self.role)


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two engines that serve requests together."""

    prefill: Annotated[str, Meta(description="Name of a prefill engine.")]
    decode: Annotated[str, Meta(description="Name of a decode engine.")]


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is promised, and by what it must be held."""

    commitment: CommitmentSettings
    gateway: tuple[GatewayAddress, ...] = ()
    engine: tuple[EngineAddress, ...] = ()
    route: tuple[RouteSettings, ...] = ()

    @property
    def engine_routes(self) -> tuple[Route, ...]:
        """The routes between engines: those that are listed, or all pairs of one kind."""
        if self.route:
            return tuple(Route(NodeName(r.prefill), NodeName(r.decode)) for r in self.route)
        pairs = product(self._engines(EngineRole.PREFILL), self._engines(EngineRole.DECODE))
        return tuple(
            Route(NodeName(p.name), NodeName(d.name)) for p, d in pairs if p.kind is d.kind
        )

    def _engines(self, role: EngineRole) -> list[EngineAddress]:
        return [engine for engine in self.engine if engine.role is role]


def parse(text: str) -> Deployment:
    """Read a deployment from TOML.

    Raises:
        DeploymentWrong: It is no TOML, a value is wrong or unknown, or values contradict.
    """
    try:
        deployment = msgspec.convert(tomllib.loads(text), Deployment)
        check_commitment(deployment.commitment)
    except tomllib.TOMLDecodeError as error:
        raise DeploymentWrong(f"not TOML: {error}") from None
    except (msgspec.ValidationError, SettingsWrong) as error:
        raise DeploymentWrong(str(error)) from None
    _require_names(deployment)
    _require_routes(deployment)
    for address in (*deployment.gateway, *deployment.engine):
        _require_address(address.url)
    return deployment


def load(path: Path) -> Deployment:
    """Read a deployment from a TOML file.

    Raises:
        DeploymentWrong: The file cannot be read or used.
    """
    try:
        return parse(path.read_text())
    except OSError as error:
        raise DeploymentWrong(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DeploymentWrong(f"{path}: not UTF-8 text") from None
    except DeploymentWrong as error:
        raise DeploymentWrong(f"{path}: {error}") from None


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a deployment file."""
    return msgspec.json.schema(Deployment)


def _require_names(deployment: Deployment) -> None:
    if not deployment.gateway and not deployment.engine:
        raise DeploymentWrong("there is no [[gateway]] and no [[engine]] to check")
    gateways = [gateway.name for gateway in deployment.gateway]
    if len(gateways) > 1 and not all(gateways):
        raise DeploymentWrong("several [[gateway]] need a name each")
    names = [*filter(None, gateways), *(engine.name for engine in deployment.engine)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DeploymentWrong(f"the name {twice[0]} is there twice")
    for name in names:
        if not NAME.fullmatch(name):
            raise DeploymentWrong(f"{name!r} is no name: letters, digits, and . _ - between them")


def _require_routes(deployment: Deployment) -> None:
    engines = {engine.name: engine for engine in deployment.engine}
    for route in deployment.engine_routes:
        prefill, decode = engines.get(route.prefill), engines.get(route.decode)
        if prefill is None or prefill.role is not EngineRole.PREFILL:
            raise DeploymentWrong(f"route {route}: {route.prefill} is no prefill engine")
        if decode is None or decode.role is not EngineRole.DECODE:
            raise DeploymentWrong(f"route {route}: {route.decode} is no decode engine")
        if prefill.kind is not decode.kind:
            raise DeploymentWrong(f"route {route}: {prefill.kind} and {decode.kind} are no pair")


def _require_address(url: str) -> None:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise DeploymentWrong(f"{url!r} is no address: {error}") from None
    if address.userinfo:
        raise DeploymentWrong("a url has a password in it: name key_file or key_variable instead")
    plain = address.scheme in ("http", "https") and (address.port or 0) <= PORT_MAX
    if not plain or not address.host:
        raise DeploymentWrong(f"{url!r} is no address: http://HOST:PORT is one")
