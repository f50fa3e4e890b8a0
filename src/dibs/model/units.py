"""Durations and sizes: one parser and one formatter for each.

A bare number is always an error, because 30 means minutes to Slurm, seconds to timeout(1) and bytes to ulimit.

Lean.
"""

from __future__ import annotations

from dibs import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds in each unit, largest first. The first name is the one printed.
TIME_UNITS = (
    (("w", "week", "weeks"), 604800),
    (("d", "day", "days"), 86400),
    (("h", "hr", "hrs", "hour", "hours"), 3600),
    (("m", "min", "mins", "minute", "minutes"), 60),
    (("s", "sec", "secs", "second", "seconds"), 1),
)

#: Powers of 1024, with or without the i: G, GB and GiB are the same, as in nvidia-smi, Slurm and torch.
SIZE_UNITS = ("B", "K", "M", "G", "T", "P")

#: A hundred years. A longer time is a typo and overflows date arithmetic.
LONGEST_S = 100 * 365 * 86400

#: An exbibyte is more than any machine has, and sums of a few still fit an SQLite integer.
LARGEST_BYTES = 2**60

TIME_EXAMPLE = "a time such as 90m, 2h or 1d12h"
SIZE_EXAMPLE = "a size such as 18G, 512M or 24GiB"


def parse_duration(text: str) -> float:
    """Return the seconds in `30s`, `1d12h`, `1.5h`, `HH:MM:SS` or `D-HH:MM:SS`."""
    word = text.strip().lower()
    if _is_number(word):
        raise errors.UserError(f'expected {TIME_EXAMPLE}, got "{text}": write {word}m or {word}s')
    seconds = _clock(word) if ":" in word else _sum_of_parts(word)
    if seconds is None:
        raise errors.UserError(f'expected {TIME_EXAMPLE} (or HH:MM:SS), got "{text}"')
    if seconds > LONGEST_S:
        raise errors.UserError(f'expected {TIME_EXAMPLE}, got "{text}": more than a hundred years')
    return seconds


def _clock(word: str) -> float | None:
    """Parse HH:MM:SS with optional days in front, as Slurm prints it; two parts are ambiguous and refused."""
    days, dash, rest = word.rpartition("-")
    parts = rest.split(":")
    if len(parts) != 3 or not all(is_whole(part) for part in parts) or (dash and not is_whole(days)):
        return None
    hours, minutes, seconds = (int(part) for part in parts)
    if minutes > 59 or seconds > 59:
        return None
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def _sum_of_parts(word: str) -> float | None:
    """Add up `1d12h`: each unit at most once, in descending order."""
    total, smallest, rest = 0.0, float("inf"), word
    while rest:
        number, rest = _take(rest, "0123456789.")
        name, rest = _take(rest, "abcdefghijklmnopqrstuvwxyz")
        factor = next((factor for names, factor in TIME_UNITS if name in names), None)
        if factor is None or factor >= smallest or not _is_number(number):
            return None
        total, smallest = total + float(number) * factor, factor
    return total if word else None


def parse_size(text: str) -> int:
    """Return the bytes in `18G`, `512M`, `1.5T` or `24GiB`; all units are powers of 1024."""
    word = text.strip()
    if _is_number(word):
        raise errors.UserError(f'expected {SIZE_EXAMPLE}, got "{text}": write {word}G or {word}M')
    number, name = _take(word, "0123456789.")
    power = _size_power(name)
    if power is None or not _is_number(number):
        raise errors.UserError(f'expected {SIZE_EXAMPLE}, got "{text}"')
    # Whole numbers stay exact; float() would round above 2**53.
    unit = 1 << (10 * power)
    size = int(number) * unit if is_whole(number) else round(float(number) * unit)
    if size > LARGEST_BYTES:
        raise errors.UserError(f'expected {SIZE_EXAMPLE}, got "{text}": larger than any machine')
    return size


def _size_power(name: str) -> int | None:
    letter = name.upper()
    if len(letter) > 1:
        letter = letter.removesuffix("IB") if letter.endswith("IB") else letter.removesuffix("B")
    return SIZE_UNITS.index(letter) if letter in SIZE_UNITS else None


def format_duration(seconds: float) -> str:
    """Return the two largest units, truncated and not rounded, as a clock does: `45s`, `12m05s`, `1h02m`, `3d04h`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    whole = int(seconds)
    for name, size, smaller, step in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{name}{whole % size // step:02d}{smaller}"
    return f"{whole}s"


def write_duration(seconds: float) -> str:
    """Return the exact duration as a user would type it: `1d12h`, `90.5s`; `parse_duration` reads it."""
    parts, left = "", int(seconds)
    if left != seconds:
        return f"{seconds:.6f}".rstrip("0") + "s"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        parts, left = parts + (f"{left // size}{unit}" if left >= size else ""), left % size
    return parts or "0s"


def write_size(size: int) -> str:
    """Return the exact size as a user would type it: `18G`, `1536M`; `parse_size` reads it."""
    power = 0
    while size and power + 1 < len(SIZE_UNITS) and size % 1024 ** (power + 1) == 0:
        power += 1
    return f"{size // 1024**power}{SIZE_UNITS[power]}"


def format_size(size: int) -> str:
    """Return `size` in bytes as `24G`, `1.5G` or `512M`: at most one decimal, readable by `parse_size`."""
    power = 0
    # 1023.97M would be rounded to 1024.0M; 1G is clearer.
    while power + 1 < len(SIZE_UNITS) and round(size / 1024**power, 1) >= 1024:
        power += 1
    return f"{size / 1024**power:.1f}".removesuffix(".0") + SIZE_UNITS[power]


def _take(text: str, alphabet: str) -> tuple[str, str]:
    """Split off the longest prefix of `text` that consists of characters in `alphabet`."""
    rest = text.lstrip(alphabet)
    return text[: len(text) - len(rest)], rest


def is_whole(text: str) -> bool:
    """Tell whether any text, trusted or not, is a whole number that `int` parses and the store can hold."""
    # Eighteen digits are enough for any time, size or queue and never overflow a float. `int` accepts at most 4300
    # digits, and rejects "²" although `isdigit` accepts it.
    return text.isascii() and text.isdigit() and len(text) <= 18


def _is_number(text: str) -> bool:
    whole, dot, decimals = text.partition(".")
    return is_whole(whole) and (not dot or is_whole(decimals))


def mib_of(size: int) -> int:
    """Return bytes as whole MiB, rounded up so that a declared amount never shrinks."""
    return -(-size // 2**20)


def count_gpus(count: int) -> str:
    """Return "1 GPU", "2 GPUs"."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def name_gpus(indices: Sequence[int]) -> str:
    """Return "GPU 2" or "GPUs 0, 1"; an empty string for no index."""
    return f"{'GPU' if len(indices) == 1 else 'GPUs'} {', '.join(map(str, indices))}" if indices else ""
