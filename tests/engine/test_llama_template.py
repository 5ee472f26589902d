"""Chat templates write what they say, refuse what they refuse, and can do nothing else."""

from pathlib import Path

import pytest
from gguf import GGUFWriter

from kvairlock.engine.llama.file import GgufFile
from kvairlock.engine.llama.template import ChatTemplate, read_template
from kvairlock.engine.tokenizer import ChatMessage, ConversationRefused
from kvairlock.engine.unusable import ModelUnusable

ASKED = [ChatMessage("user", "hi")]


def template(source: str | None, path: Path) -> ChatTemplate:
    writer = GGUFWriter(path / "model.gguf", "llama")
    if source is not None:
        writer.add_chat_template(source)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return read_template(GgufFile(path / "model.gguf"), {"bos_token": "<s>"})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}",
            "<s>[user] hi",
        ),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("  {% if true %}\nline\n  {% endif %}\nend", "line\nend"),
        ("{% for n in range(9) %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}", "01"),
        ("{{ 'é<' | tojson }}", '"é<"'),
        (
            "{% if strftime_now is defined %}{{ strftime_now('%d') }}{% else %}no clock{% endif %}",
            "no clock",
        ),
        ("{{ messages[0]['content'] }}{{ tools }}", "hi"),
    ],
)
def test_a_template_writes_what_templates_of_its_family_expect(
    source: str, text: str, tmp_path: Path
) -> None:
    assert template(source, tmp_path).render(ASKED) == text


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses it: roles must alternate"),
        ("{{ messages[7].content.upper() }}", r"failed \(UndefinedError\)"),
        ("{{ 1 / 0 }}", r"failed \(ZeroDivisionError\)"),
        ("{{ ''.__class__.__mro__ }}", r"failed \(SecurityError\)"),
        ("{% set _ = messages.append(1) %}", r"failed \(SecurityError\)"),
        ("{% for n in range(1000000000) %}{% endfor %}", r"failed \(OverflowError\)"),
        ("{% include '/etc/hostname' %}", r"failed \(TypeError\)"),
        ("{{ 'x' * 1000000000000000 }}", r"failed \(MemoryError\)"),
        (None, "no chat template; send it a prompt instead"),
    ],
)
def test_what_a_template_does_not_write_is_refused_with_the_reason(
    source: str | None, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversationRefused, match=reason):
        template(source, tmp_path).render(ASKED)


def test_what_is_no_template_is_refused_when_the_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match="its chat template can't be read"):
        template("{% for %}", tmp_path)
