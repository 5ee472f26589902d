"""The embedded models: real paged attention in numpy, small enough to read in one sitting.

`model` says what a model is and loads one; `cache` and `layout` are the memory that it reads.
`recall` is the canary model, whose answers are decided by the pages that its page table points to;
`llama` has trained weights, and `store` knows where their files are kept.
"""
