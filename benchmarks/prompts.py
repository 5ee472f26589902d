"""What the golden answers are asked for: prompts, conversations, and texts that are only tokenised.

Prompts where the first two tokens of a step come too near to each other are not used (see
`golden.py`): their answer would depend on the order in which floats are added up.
"""

Conversation = list[dict[str, str]]

# Declaration of Independence and Gettysburg Address, in the public domain.
LONG = """\
When in the Course of human events, it becomes necessary for one people to dissolve the political \
bands which have connected them with another, and to assume among the powers of the earth, the \
separate and equal station to which the Laws of Nature and of Nature's God entitle them, a decent \
respect to the opinions of mankind requires that they should declare the causes which impel them \
to the separation.

We hold these truths to be self-evident, that all men are created equal, that they are endowed by \
their Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit \
of Happiness. That to secure these rights, Governments are instituted among Men, deriving their \
just powers from the consent of the governed, That whenever any Form of Government becomes \
destructive of these ends, it is the Right of the People to alter or to abolish it, and to \
institute new Government, laying its foundation on such principles and organizing its powers in \
such form, as to them shall seem most likely to effect their Safety and Happiness. Prudence, \
indeed, will dictate that Governments long established should not be changed for light and \
transient causes; and accordingly all experience hath shewn, that mankind are more disposed to \
suffer, while evils are sufferable, than to right themselves by abolishing the forms to which they \
are accustomed. But when a long train of abuses and usurpations, pursuing invariably the same \
Object evinces a design to reduce them under absolute Despotism, it is their right, it is their \
duty, to throw off such Government, and to provide new Guards for their future security.

Four score and seven years ago our fathers brought forth on this continent, a new nation, \
conceived in Liberty, and dedicated to the proposition that all men are created equal. Now we are \
engaged in a great civil war, testing whether that nation, or any nation so conceived and so \
dedicated, can long endure. We are met on a great battle-field of that war. We have come to \
dedicate a portion of that field, as a final resting place for those who here gave their lives \
that that nation might live. It is altogether fitting and proper that we should do this. But, in a \
larger sense, we can not dedicate, we can not consecrate, we can not hallow this ground. The brave \
men, living and dead, who struggled here, have consecrated it, far above our poor power to add or \
detract. The world will little note, nor long remember what we say here, but it can never forget \
what they did here. It is for us the living, rather, to be dedicated here to the unfinished work \
which they who fought here have thus far so nobly advanced. It is rather for us to be here \
dedicated to the great task remaining before us"""

PROMPTS: dict[str, str] = {
    "capital": "The capital of France is",
    "one token": "Dear",
    "code": "import numpy as np\n\ndef mean(values):\n    ",
    "digits": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,",
    "unicode": "Übung macht den Meister. 東京タワー 🗼, naïve café, Ελλάδα:",
    "whitespace": "  \n\n\tgroceries:\n\t  - bread\r\n\t  - milk\n   ",
    "contractions": "I'll say it isn't what THEY'VE done, and she'd say",
    "control tokens": "<|im_start|>user\nName three colors.<|im_end|>\n<|im_start|>assistant\n",
    "long": LONG,
}

CONVERSATIONS: dict[str, Conversation] = {
    "chat": [{"role": "user", "content": "What is the capital of Italy?"}],
    "chat with a system prompt": [
        {"role": "system", "content": "You answer with one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    "chat of several turns": [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "2 + 2 = 4."},
        {"role": "user", "content": "  And 3 + 3?\n"},
    ],
    "long chat": [{"role": "user", "content": f"Summarize this text.\n\n{LONG}"}],
}

# Only tokenised: where pre-tokenisers differ.
TEXTS: list[str] = [
    "",
    " ",
    "\n",
    "\r\n\r\n\t \n",
    "a  b   c    d",
    "trailing spaces   ",
    "1234567890 3.14159 1e-9 0x1F ½ ٣ 四",
    "don't DON'T we'Ll 'tis \u2019s",
    "!?... --> :: {[(<>)]} $%^&*",
    "été e\u0301te\u0301 ﬁ ŀ Å",
    "👩‍👩‍👧 🇮🇹 ❤️ \U0001f9d1\U0001f3fd",
    "नमस्ते สวัสดี مرحبا שלום",
    "a\u00a0b\u2003c\u200bd\ufeffe",
    "<|im_start|><|im_end|><|endoftext|>",
    "<|im_start|> <|im_start |> im_end|>",
    "snake_case camelCase __init__ self.x+=1;",
]
