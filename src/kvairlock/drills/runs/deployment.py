"""A deployment that drills are carried out on: somebody else's processes, reached over HTTP.

The file says what was agreed on with whoever runs it: which tenants are there for drills, and how
much they may ask. No guard is ever off there. Whatever a drill does beyond asking needs its gateway
to be in drill mode; what cannot be done is skipped, with the reason.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError
from kvairlock.drills.client import GatewayClient
from kvairlock.drills.library.drill import Limits
from kvairlock.drills.records import Records
from kvairlock.drills.runs.player import Site
from kvairlock.runtime.secrets import api_key_in, pseudonyms_in
from kvairlock.wire.pseudonyms import Pseudonyms


class DeploymentWrong(KvairlockError):
    """A deployment that drills cannot be carried out on; the message says why."""

    code = "deployment_wrong"


class GatewayFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[gateway]`.

    Args:
        url: Where it listens.
        key_file: File with an operator's key.
    """

    url: str
    key_file: str


class TenantFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table `[[tenant]]`.

    Args:
        name: What the deployment calls it.
        key_file: File with its key.
    """

    name: str
    key_file: str


class EvidenceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[evidence]`.

    Args:
        folder: Where the processes write it.
        evidence_key_file: The evidence key, which says whose record is whose.
    """

    folder: str
    evidence_key_file: str


class DeploymentFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    Args:
        gateway: Its gateway.
        tenant: The tenants that are there for drills.
        limits: What was agreed on.
        evidence: Where its evidence is, or None if it is not at hand.
    """

    gateway: GatewayFile
    tenant: Annotated[tuple[TenantFile, ...], Meta(min_length=1)]
    limits: Limits
    evidence: EvidenceFile | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment, with the keys that it is reached by.

    Args:
        url: Its gateway.
        operator: An operator's key.
        tenants: Names of the tenants that are there for drills.
        keys: The key of each.
        limits: What was agreed on.
        evidence: Folder of its evidence, or None.
        pseudonyms: The evidence key, or None.
    """

    url: str
    operator: str
    tenants: tuple[str, ...]
    keys: Mapping[str, str]
    limits: Limits
    evidence: Path | None
    pseudonyms: Pseudonyms | None

    def site(self, tenants: Sequence[str]) -> Site:
        """Return the way in for a drill, whose tenants stand for those of the deployment.

        Args:
            tenants: The drill's names for them; not more than there are.
        """
        names = dict(zip(tenants, self.tenants, strict=False))
        keys = {name: self.keys[real] for name, real in names.items()}
        records = None
        if self.evidence is not None and self.pseudonyms is not None:
            records = Records(self.evidence, self.pseudonyms.at(time.time()), names)
        return Site(GatewayClient(self.url, keys, self.operator), records, None)

    def facts(self) -> Facts:
        """Ask the gateway what can be done there.

        Raises:
            DeploymentWrong: It does not answer, the key is no operator's, or guards are off.
        """
        client = self.site(self.tenants).client
        try:
            model, status = client.model(), client.status()
            steers = all(client.may_steer(tenant) for tenant in self.tenants)
        except httpx.HTTPStatusError as error:
            said = f"{error.request.url.path} answers {error.response.status_code}"
            raise DeploymentWrong(f"{self.url}: {said}: is the key an operator's?") from None
        except httpx.HTTPError as error:
            raise DeploymentWrong(f"{self.url}: no answer: {type(error).__name__}") from None
        if status["guards_off"]:
            off = ", ".join(status["guards_off"])
            raise DeploymentWrong(f"{self.url}: guards are off there: {off}")
        return Facts(
            model=str(model["id"]),
            promise_tokens=int(model["max_model_len"]),
            nodes=tuple(status["nodes"]),
            routes_closed=tuple(r for r, state in status["routes"].items() if state != "up"),
            # A gateway of an earlier release does not say; then it is not steered.
            can_steer=status.get("drill_mode") == "on" and steers,
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What a running deployment says of itself.

    Args:
        model: The model that it serves.
        promise_tokens: The context window that it publishes.
        nodes: Its nodes.
        routes_closed: Routes that take no requests now.
        can_steer: Whether it is in drill mode, and the tenants' keys may name routes.
    """

    model: str
    promise_tokens: int
    nodes: tuple[str, ...]
    routes_closed: tuple[str, ...]
    can_steer: bool


def load(path: Path) -> Deployment:
    """Read the file of a deployment; relative paths in it start at its folder.

    Raises:
        DeploymentWrong: It cannot be read or used.
        KvairlockError: A file with a key cannot be used.
    """
    try:
        said = parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise DeploymentWrong(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DeploymentWrong(f"{path}: not UTF-8 text") from None
    evidence, folder = said.evidence, path.parent
    return Deployment(
        url=said.gateway.url,
        operator=api_key_in(folder / said.gateway.key_file),
        tenants=tuple(tenant.name for tenant in said.tenant),
        keys={tenant.name: api_key_in(folder / tenant.key_file) for tenant in said.tenant},
        limits=said.limits,
        evidence=None if evidence is None else folder / evidence.folder,
        pseudonyms=None if evidence is None else pseudonyms_in(folder / evidence.evidence_key_file),
    )


def parse(text: str, where: str) -> DeploymentFile:
    """Read what is agreed on for a deployment from TOML.

    Args:
        text: The TOML.
        where: For error messages.

    Raises:
        DeploymentWrong: It is no TOML, a name is unknown or missing, a tenant is named twice, or
            the address is not one of plain HTTP, which is all that a gateway speaks.
    """
    try:
        said = msgspec.convert(tomllib.loads(text), DeploymentFile)
    except tomllib.TOMLDecodeError as error:
        raise DeploymentWrong(f"{where}: not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise DeploymentWrong(f"{where}: {error}") from None
    if len({tenant.name for tenant in said.tenant}) != len(said.tenant):
        raise DeploymentWrong(f"{where}: a tenant is named twice")
    if not said.gateway.url.startswith("http://"):
        raise DeploymentWrong(f"{where}: gateway.url must begin with http://, as the gateway does")
    return said
