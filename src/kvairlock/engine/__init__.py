"""The embedded model: real paged attention in numpy, small enough to read in one sitting.

`model` names what a model is and loads one; `cache` and `layout` are the memory it reads; `recall`
is the canary model, whose answers are decided by the pages that its page table points to.
"""
