"""A stack as processes: which programs, with which files, in which order.

    run directory (new, private, gone at the end)   settings.toml, evidence.key, NAME.sock
    state (stays)                                   keys.toml, cluster.key, evidence.key,
                                                    breakers.json, evidence/

All processes read one snapshot: the effective settings and the evidence key from the run directory,
the cluster's keys from the environment, so that one that is started again speaks with keys that its
peers know, even if the key file was rotated meanwhile. The evidence key is in a file that moves on
with time: an environment would keep the one of a period that is over. API keys are read live, so
that a revoked one is refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvairlock.cli.child import ChildSpec
from kvairlock.cli.places import EVIDENCE_KEY_FILE, ring_lines, write_pseudonyms
from kvairlock.cli.settings_text import toml
from kvairlock.runtime.secrets import EVIDENCE_VARIABLE, VARIABLE, write_private
from kvairlock.runtime.settings import GATEWAY_NAME, Settings, SettingsWrong
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

SETTINGS_FILE = "settings.toml"
SOCKET_PATH_BYTES_MAX = 107
"""sun_path of Linux, less its closing zero."""

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""For the gateway, which computes nothing; nodes set their own number."""


@dataclass(frozen=True, slots=True)
class Programs:
    """What a node and a gateway are started with, before their options."""

    node: tuple[str, ...] = (sys.executable, "-m", "kvairlock.node")
    gateway: tuple[str, ...] = (sys.executable, "-m", "kvairlock.gateway")


@dataclass(frozen=True, slots=True)
class Stack:
    """All that the processes of one run are started from.

    Args:
        settings: The effective settings.
        ring: The cluster's keys.
        keys: The file of API keys.
        state: Directory of what outlives the stack.
        evidence: Directory of the evidence.
        run: The run directory.
        programs: What to start.
    """

    settings: Settings
    ring: Keyring
    keys: Path
    state: Path
    evidence: Path
    run: Path
    programs: Programs = Programs()

    def waves(self) -> tuple[tuple[ChildSpec, ...], ...]:
        """Return what to start, in order: the nodes, then the gateway, which dials them.

        Raises:
            SettingsWrong: The run directory's path is too long for sockets.
        """
        longest = max(len(os.fsencode(self.run / f"{name}.sock")) for name in self.settings.nodes)
        if longest > SOCKET_PATH_BYTES_MAX:
            raise SettingsWrong(
                f"{self.run}: too long for unix sockets; set TMPDIR to a short path"
            )
        env = self._environment()
        nodes = tuple(
            ChildSpec(name, (*self.programs.node, *self._shared(), "--name", name), env)
            for name in self.settings.nodes
        )
        kept = ("--keys", str(self.keys), "--state", str(self.state))
        argv = (*self.programs.gateway, *self._shared(), *kept)
        return nodes, (ChildSpec(GATEWAY_NAME, argv, {**env, **ONE_THREAD}),)

    def write_settings(self, port: int) -> None:
        """Write the settings for processes that start from now on.

        Args:
            port: The gateway's port; once one was taken, the next gateway takes it again.
        """
        gateway = msgspec.structs.replace(self.settings.gateway, port=port)
        effective = msgspec.structs.replace(self.settings, gateway=gateway)
        write_private(self.run / SETTINGS_FILE, toml(effective))

    @property
    def evidence_key(self) -> Path:
        """The file of the evidence key that processes read when they start."""
        return self.run / EVIDENCE_KEY_FILE

    def write_evidence_key(self, key: Pseudonyms) -> None:
        """Write the evidence key for processes that start from now on."""
        write_pseudonyms(self.evidence_key, key)

    def _shared(self) -> tuple[str, ...]:
        files = {
            "--settings": self.run / SETTINGS_FILE,
            "--run": self.run,
            "--evidence": self.evidence,
            "--evidence-key": self.evidence_key,
        }
        return tuple(word for option, path in files.items() for word in (option, str(path)))

    def _environment(self) -> Mapping[str, str]:
        inherited = {name: text for name, text in os.environ.items() if name != EVIDENCE_VARIABLE}
        return {**inherited, VARIABLE: ",".join(ring_lines(self.ring))}
