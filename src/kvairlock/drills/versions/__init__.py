"""Mixed versions for real: processes of an earlier release beside those of this one."""

from kvairlock.drills.versions.run import NoSuchRow, VersionRow, names, run_versions

__all__ = ["NoSuchRow", "VersionRow", "names", "run_versions"]
