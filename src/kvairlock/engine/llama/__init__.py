"""Models of the Llama family, computed in numpy from GGUF files.

`file` reads what a GGUF file says, `config` judges whether it says a model that `model` computes,
`weights` makes its tensors ready for that; `vocabulary` and `template` turn text and conversations
into tokens. A gateway loads only the last two. Packages that only these modules need are imported
nowhere else: they come with the extra `llama`.
"""
