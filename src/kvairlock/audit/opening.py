"""Opens a case: what an audit says of requests that are not excluded, held still for later.

    report ----> candidates --+
    evidence --> digests -----+--> case.json --digest--> the first line of its log, with a MAC

Only who has the cluster's keys can open a case, so that nobody else can make one up or change one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from kvairlock.audit.case_log import open_log
from kvairlock.audit.cases import CASE_FILE, FORMAT, Candidate, Case, CaseWrong, Met
from kvairlock.audit.held_still import held
from kvairlock.audit.report import Class, Report, Verdict
from kvairlock.audit.tables import files_of
from kvairlock.runtime.secrets import write_private
from kvairlock.wire.keys import Keyring


def open_case(
    folder: Path, report: Report, paths: Sequence[Path], state: Path | None, ring: Keyring
) -> Case:
    """Write what a report says of requests that are not excluded as a case.

    Args:
        folder: Where it goes; made for its owner only, and not if there is a case already.
        report: What the audit says.
        paths: The evidence that it says so of.
        state: The state folder that the evidence lies in.
        ring: The cluster's keys, with which its log begins.

    Raises:
        CaseWrong: There is a case already.
    """
    if (folder / CASE_FILE).exists():
        raise CaseWrong(f"{folder} holds a case already; name another folder")
    case = Case(
        format=FORMAT,
        made_unix_ns=time.time_ns(),
        state=str(state.absolute()) if state else "",
        evidence=tuple(held(path) for path in files_of(paths)),
        excluded=report.counts()[Class.EXCLUDED],
        candidates=tuple(_candidates(report)),
        met=tuple(_met(report)),
    )
    text = msgspec.json.format(msgspec.json.encode(case), indent=1).decode() + "\n"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    open_log(folder, hashlib.sha256(text.encode()).hexdigest(), ring)
    write_private(folder / CASE_FILE, text)
    return case


def _candidates(report: Report) -> Iterator[Candidate]:
    for verdict in report.verdicts(Class.AFFECTED, Class.INSUFFICIENT):
        yield msgspec.convert(_plain(verdict), Candidate)


def _plain(verdict: Verdict) -> object:
    return {name: getattr(verdict, name) for name in Candidate.__struct_fields__}


def _met(report: Report) -> Iterable[Met]:
    pairs = dict.fromkeys((exposure.request, exposure.other) for exposure in report.exposures)
    for request, other in pairs:
        whose = report.of(other)
        yield Met(request, other, whose.tenant if whose else "")
