"""Refuses to build a wheel in a clone without symbolic links: it would have no model. Leaves nothing in the clone.

All else about the build is in pyproject.toml.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import setup

for name in ("default_model", "model_repository"):
    if Path("midtoken", name).is_file():  # where a link leads nowhere, as in the container, the files come another way
        raise SystemExit(
            f"midtoken/{name} is a file instead of a symbolic link, so midtoken would have no model. On Windows, allow "
            "links with the developer mode, and then run: git config core.symlinks true && git checkout HEAD midtoken"
        )
with TemporaryDirectory() as folder:  # a wheel takes all that is in build/lib, also what was deleted since
    setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
