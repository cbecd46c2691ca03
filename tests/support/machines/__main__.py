"""``python -m tests.support.machines``: write all rendered files."""

from tests.support.machines.files import files

for path, text in files():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
