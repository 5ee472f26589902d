"""Failures as stories: a text file says who asks, what happens, and how it must end.

    file -> reader -> Case -> player (a world, step by step) -> Played -> verdict -> row

The same schedule is played twice: with all guards, where the right outcome must come, and without
those that the failure needs to get through, where the failure must show. `words` and the tables of
`worlds`, `steps` and `expectations` are the whole language; docs/cases.md is made from them.
"""
