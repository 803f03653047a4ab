"""A process that measures some parts, or makes one profile.

    python -m benchmarks.measures.gpu.group RESULT DEVICE TOKENIZER (parts|profile) NAME...

RESULT gets a JSON file after each part; the profile is one text in it. Without a GPU, DEVICE is `rehearsal`.
"""

import argparse
import dataclasses
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.measures.gpu.parts import Results, find_parts, run_parts
from benchmarks.measures.gpu.profiles import profile_part
from benchmarks.measures.gpu.setting import FULL, SMALL, Setting
from benchmarks.measures.report import find_processor

REHEARSAL = "rehearsal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("device")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("kind", choices=("parts", "profile"))
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    setting = build_setting(options.device, options.tokenizer)
    content: dict[str, Any] = {"device": describe_device(setting), "profile": ""}

    def save(results: Results) -> None:
        _write(options.result, json.dumps(content | dataclasses.asdict(results)))

    if options.kind == "profile":
        content["profile"] = profile_part(setting, options.names[0], describe_device(setting))
        save(Results())
    else:
        run_parts(setting, find_parts(options.names), save)


def build_setting(device: str, tokenizer: Path) -> Setting:
    """What is measured on a device."""
    if device == REHEARSAL:
        return Setting("cpu", SMALL, tokenizer, is_rehearsal=True)
    return Setting(device, FULL, tokenizer)


def describe_device(setting: Setting) -> str:
    """The device with the versions of what runs on it."""
    name = torch.cuda.get_device_name() if setting.is_cuda else "REHEARSAL with tiny shapes, no figures"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    return f"{name}; {find_processor()}; {versions}"


def _write(path: Path, text: str) -> None:
    """Replaces the file as a whole, because it is read at any time."""
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)


if __name__ == "__main__":
    main()
