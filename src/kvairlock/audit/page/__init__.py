"""The report of an audit as one page of HTML that needs nothing else.

report --> summary, coverage, the three lists
story  --> what happened to the pages of each affected request, drawn
"""

from kvairlock.audit.page.document import html, write

__all__ = ["html", "write"]
