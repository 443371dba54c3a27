"""Build hook of the wheel: makes the dashboard first, by web/build.py. Without it the wheel is complete but for that.

SWELL_WEB=skip leaves it out; SWELL_WEB=require (for releases) makes a dashboard that cannot be built an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        script = Path(self.root) / "web" / "build.py"
        wanted = os.environ.get("SWELL_WEB", "")
        if wanted == "skip" or not script.is_file():
            return
        built = subprocess.run([sys.executable, str(script)], check=False)
        if built.returncode and wanted == "require":
            raise RuntimeError("the dashboard could not be built, and SWELL_WEB=require asks for it")
        if built.returncode:
            self.app.display_warning("the dashboard was not built; `swell ui` says how to do that later")
