"""Puts the built recorder into wheels that are made where ziglang is; without it, it is built on first use.

``pip wheel --no-deps --no-build-isolation .`` makes such a wheel, for glibc 2.17 and the processor it is made on. The
wheel that pip makes in an environment of its own, and an editable install, hold no machine code.
"""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RecorderHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or sys.platform != "linux" or find_spec("ziglang") is None:
            return
        sys.path.insert(0, self.root)
        from r3bench import recorder

        library = recorder.library()
        build_data["force_include"][str(library)] = f"r3bench/recorder/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{platform.machine()}"
