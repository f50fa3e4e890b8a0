"""A stand-in for the parts of Hugging Face's Trainer that the recipe in docs/python.md uses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pacing


class TrainerCallback:
    """Gets events of steps and metrics."""

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Handle metrics."""

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Handle the end of a step."""


class TrainingArguments(SimpleNamespace):
    """Any arguments."""


class Trainer:
    """Counts steps, and stores the count in folders as the real one does."""

    def __init__(self, model: object, args: Any, train_dataset: object, callbacks: list[TrainerCallback]) -> None:
        self.args = args
        self.callbacks = callbacks

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        """Continue from a checkpoint, or begin."""
        state = SimpleNamespace(global_step=0, is_world_process_zero=True)
        if resume_from_checkpoint:
            state.global_step = int(Path(resume_from_checkpoint, "trainer_state").read_text())
        control = SimpleNamespace(should_save=False, should_training_stop=False)
        print("from step", state.global_step, flush=True)
        while state.global_step < self.args.max_steps and not control.should_training_stop:
            pacing.step()
            state.global_step += 1
            for callback in self.callbacks:
                callback.on_step_end(self.args, state, control)
                callback.on_log(self.args, state, control, logs={"loss": 0.5, "note": "text"})
            if control.should_save or state.global_step == self.args.max_steps:
                folder = Path(self.args.output_dir, f"checkpoint-{state.global_step}")
                folder.mkdir()
                (folder / "trainer_state").write_text(str(state.global_step))
