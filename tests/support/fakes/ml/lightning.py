"""A stand-in for the parts of Lightning that the recipe in docs/python.md uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pacing


class Callback:
    """Gets events of batches."""

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Handle the end of a batch."""


class Trainer:
    """Counts steps, and stores the count in a file."""

    def __init__(self, max_steps: int, default_root_dir: Path, callbacks: list[Callback]) -> None:
        self.max_steps = max_steps
        self.callbacks = callbacks
        self.global_step = 0
        self.should_stop = False
        self.callback_metrics = {"loss": 0.5}

    def save_checkpoint(self, path: Path) -> None:
        """Store the count."""
        path.write_text(str(self.global_step))

    def fit(self, model: object, data: object, ckpt_path: Path | None = None) -> None:
        """Continue from a checkpoint, or begin."""
        if ckpt_path is not None:
            self.global_step = int(ckpt_path.read_text())
        print("from step", self.global_step, flush=True)
        while self.global_step < self.max_steps and not self.should_stop:
            pacing.step()
            self.global_step += 1
            for callback in self.callbacks:
                callback.on_train_batch_end(self, model, None, None, self.global_step)
