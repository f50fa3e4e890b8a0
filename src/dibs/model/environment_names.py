"""Which variables of the submitter's environment are kept, and in what form.

Lean.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Variables that choose devices. They belong to dibs inside a job, whatever the submitter's shell had in them.
DEVICE_NAMES = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
)  # fmt: skip


def is_own(name: str) -> bool:
    """Tell whether dibs sets this variable itself: what was in it is not kept, and nobody may give it."""
    return name.startswith("DIBS_") or name in DEVICE_NAMES


def chosen(environ: Mapping[str, str]) -> str:
    """Return what the submitter's shell says about devices, which no job will see; empty if nothing."""
    return " ".join(f"{name}={environ[name]}" for name in DEVICE_NAMES if name in environ)


def pack(environ: Mapping[bytes, bytes]) -> bytes:
    """Return an environment as NUL-separated bytes, sorted, so that equal ones are equal bytes."""
    return b"\0".join(name + b"=" + value for name, value in sorted(environ.items()))
