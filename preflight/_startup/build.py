"""The build step that writes the start-up tables (``tool.setuptools.cmdclass``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools.command.build_py import build_py


class BuildWithTables(build_py):  # type: ignore[misc]  # untyped
    """A ``build_py`` that also writes the tables, to the wheel or an editable tree."""

    def run(self) -> None:
        """Build, then write the tables with the built modules in a separate process."""
        super().run()
        top = Path.cwd() if self.editable_mode else Path(self.build_lib)
        paths = [str(top.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "preflight.cli.startup_tables", "--into", str(top.resolve() / "preflight")]
        subprocess.run(
            command, check=True, cwd=top, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, timeout=300
        )

    def get_outputs(self, *args: Any, **more: Any) -> list[str]:
        """Return the built files, including the tables, for installers."""
        outputs: list[str] = super().get_outputs(*args, **more)
        names = ("generated_checks.py", "generated_options.py")
        return outputs + [str(Path(self.build_lib) / "preflight" / "_startup" / name) for name in names]
