"""Promise: what was measured, who may start, and what recovery may cost."""
