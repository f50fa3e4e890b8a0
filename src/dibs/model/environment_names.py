"""Decide which variables of the submitter's environment are stored, and how.

Lean.
Python 3.9.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Variables that select devices. Inside a job dibs sets them, whatever the submitter's shell had.
DEVICE_NAMES = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
)  # fmt: skip


def is_own(name: str) -> bool:
    """Tell whether dibs sets this variable itself: it is neither captured nor accepted from the submitter."""
    return name.startswith("DIBS_") or name in DEVICE_NAMES


def chosen(environ: Mapping[str, str]) -> str:
    """Return the shell's own device selection, which no job sees; empty if there is none."""
    return " ".join(f"{name}={environ[name]}" for name in DEVICE_NAMES if name in environ)


def pack(environ: Mapping[bytes, bytes]) -> bytes:
    """Serialize an environment as sorted NUL-separated bytes, so that equal environments are equal bytes."""
    return b"\0".join(name + b"=" + value for name, value in sorted(environ.items()))
