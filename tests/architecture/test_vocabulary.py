"""The ratchet of ``tests.support.vocabulary``: no count rises, and lower counts are recorded."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.support import vocabulary
from tests.support.vocabulary import WordUse, counts, lowered, recorded


def test_no_count_rises() -> None:
    record = recorded()
    risen = {key: number for key, number in counts().items() if number > record.get(key, 0)}
    lines = [
        f"{key}: {number}, recorded {record.get(key, 0)}: see `python -m tests.support.vocabulary --list '{key}'`"
        for key, number in sorted(risen.items())
    ]
    assert not lines, "use standard words (house rules in tests/support/vocabulary.py):\n" + "\n".join(lines)


def test_what_has_fallen_is_recorded() -> None:
    fallen = [key for key, number in recorded().items() if counts()[key] < number]
    assert not fallen, f"well done; run `python -m tests.support.vocabulary --write` for {', '.join(fallen)}"


def test_the_record_is_never_raised() -> None:
    assert lowered({"names.ask": 5, "names.tell": 2}, Counter({"names.ask": 3, "names.tell": 9})) == {
        "names.ask": 3, "names.tell": 2
    }  # fmt: skip
    assert lowered({}, Counter({"names.ask": 3})) == {"names.ask": 3}
    assert '"ask" = 3' in vocabulary.text({"names.ask": 3, "names.tell": 0})
    assert "tell" not in vocabulary.text({"names.ask": 3, "names.tell": 0})


def keys(source: str, folder: Path) -> list[str]:
    path = folder / "sample.py"
    path.write_text(source)
    return keys_of(path)


def keys_of(path: Path) -> list[str]:
    return sorted(place.key for place in vocabulary._of_module(path, "", *vocabulary._parsed(path)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def asked(who): pass", ["names.ask"]),
        ("class WholeSeat: pass", ["names.seat", "names.whole"]),
        ("task = basket = essays = 1", []),
        ("def f(*, cure=1): self.told = 2", ["names.cure", "names.tell", "variables.told"]),
        ("for found in (): pass", ["variables.found"]),
        ("from a import b as said", ["names.say", "variables.said"]),
        ('"""It is told to nobody."""', ["prose.nobody", "prose.tell"]),
        ("x = 1  # whatever", ["prose.whatever"]),
        ('x = 1\n"""Docs."""\ny = "the cure of it"', ["messages.cure"]),
        ('y = f"the {x} kept"', ["messages.kept"]),
        ('y = "told"', []),
        ('y = re.compile("it said so")', []),
        ('"""There is no file; it is no longer there."""', []),
        ('"""This is no regular file."""', ["prose.is no"]),
        ('"""See ``told``."""', []),
        ('"""Why it matters: the zone does not matter, N stands for a node."""\nalike = 1', []),
        (
            '"""It is handed over; what becomes of it rests on us."""',
            [
                "prose.handed over",
                "prose.rests on",
                "prose.what becomes of",
            ],
        ),
        (
            'x = "it stands here, all alike, a matter of clocks"',
            ["messages.alike", "messages.matter", "messages.stand"],
        ),
        ("def test(known_hosts): pass", []),
        (
            "match x:\n    case [said, *told]: pass\n    case {**whole}: pass",
            ["names.say", "names.tell", "names.whole", "variables.said", "variables.told"],
        ),
    ],
)
def test_what_is_counted(source: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    assert keys(source, tmp_path) == expected


def test_a_class_of_the_tests_counts_with_those_of_the_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    classes: dict[str, list[str]] = {}
    for name in ("model.py", "test_model.py"):
        (tmp_path / name).write_text("class Port: pass\nclass _Private: pass\n")
        vocabulary._add_classes(classes, tmp_path / name, vocabulary._parsed(tmp_path / name)[0])
    assert [(place.key, place.where) for place in vocabulary._defined_twice(classes)] == [
        ("classes.Port", "model.py:1"), ("classes.Port", "test_model.py:1")
    ]  # fmt: skip


def test_the_name_of_a_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    (tmp_path / "told").mkdir()
    path = tmp_path / "told" / "__init__.py"
    path.write_text("")
    assert [place.key for place in vocabulary._of_module(path, "", *vocabulary._parsed(path))] == [
        "variables.told",
        "names.tell",
    ]


def shape(source: str) -> list[WordUse]:
    (node,) = ast.parse(source).body
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef))
    return list(vocabulary._shape("x.py", node))


@pytest.mark.parametrize("line", ["Return the sum.", "Compare two ports.", "Process it.", "Pass on what came."])
def test_an_imperative_is_recognised(line: str) -> None:
    assert shape(f'def f():\n    """{line}"""') == []


@pytest.mark.parametrize(
    "line",
    ["Whether it is.", "The sum.", "Returns it.", "Returning it.", "GPU count.", "``x`` or y.", "A port's name."],
)
def test_what_is_no_imperative(line: str) -> None:
    assert [place.key for place in shape(f'def f():\n    """{line}"""')] == ["shapes.docstring-not-imperative"]


def test_properties_and_classes_are_nouns() -> None:
    assert shape('class F:\n    """The sum."""') == []
    assert shape('@property\ndef f(self):\n    """The sum."""') == []


def test_a_long_first_line_and_a_common_name() -> None:
    assert [place.key for place in shape(f'def told():\n    """Return {"x" * 80}."""')] == [
        "shapes.docstring-too-long", "functions.told"
    ]  # fmt: skip


def test_every_exception_has_a_reason() -> None:
    for kinds, _, reason in vocabulary.ALLOWED:
        assert kinds
        assert reason
