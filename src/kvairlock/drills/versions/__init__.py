"""Mixed versions for real: processes of an earlier release beside those of this one."""

from kvairlock.drills.versions.run import NoSuchRow, names, run_versions

__all__ = ["NoSuchRow", "names", "run_versions"]
