"""Promise: what was measured and promised, who may start, and which routes are trusted."""
