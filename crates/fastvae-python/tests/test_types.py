"""Types: the stub describes the extension, and a strict reader accepts the example and the package."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import fastvae_cf as fastvae

EXAMPLE = Path(__file__).parent / "example.py"


def mypy(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=EXAMPLE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_strict_reader_accepts_the_example() -> None:
    mypy("mypy", "--strict", str(EXAMPLE))


def test_a_strict_reader_accepts_the_package() -> None:
    mypy("mypy", "--strict", "--ignore-missing-imports", "-p", "fastvae_cf")


def test_the_stub_describes_the_extension() -> None:
    mypy("mypy.stubtest", "fastvae_cf._fastvae", "--ignore-disjoint-bases")


def test_the_example_runs() -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")


def test_everything_public_has_a_docstring() -> None:
    for name in fastvae.__all__:
        if name != "__version__":
            assert getattr(fastvae, name).__doc__, name
