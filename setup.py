"""What pyproject.toml cannot say: a wheel holds what is in the folders, not what an earlier build left in ``build/``."""

from __future__ import annotations

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class FromNothing(build_py):
    """Setuptools packs all that is in ``build/lib``; pip leaves that folder in the checkout, with modules that have been removed since."""

    def run(self) -> None:
        """Empty the folder, then fill it."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": FromNothing})
