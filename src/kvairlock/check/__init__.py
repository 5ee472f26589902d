"""Checks of a deployment from outside: what it promises against what its nodes hold."""
