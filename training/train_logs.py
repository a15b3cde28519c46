"""Curves of training for TensorBoard: `tensorboard --logdir runs/model/logs`.

Of each network the loss, the loss and Kendall's tau on families that were set apart, and the learning rate
by epoch; its settings, with the figures that it came to, are among the hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passwright.passes.errors import SettingsError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from passwright.training.gain_fit import Epoch


class Curves:
    """Of one network."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder, self._settings = folder, settings
        self._writer: SummaryWriter | None = None
        self._last: dict[str, float] = {}

    def __call__(self, epoch: Epoch) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            # Goes on from a checkpoint: what was written of later epochs counts no more.
            self._writer = SummaryWriter(str(self._folder), purge_step=epoch.number)
        self._last = {"loss": epoch.loss, "learning rate": epoch.learning_rate}
        if epoch.watched is not None:
            self._last |= {"held-out loss": epoch.watched.loss, "tau": epoch.watched.tau}
        for name, value in self._last.items():
            self._writer.add_scalar(name, value, epoch.number)

    def close(self, *, finished: bool) -> None:
        if self._writer is None:
            return
        if finished:
            shown = {
                name: value if isinstance(value, int | float | bool) else str(value)
                for name, value in self._settings.items()
            }
            figures = {f"last/{name}": value for name, value in self._last.items()}
            self._writer.add_hparams(shown, figures, run_name=".")
        self._writer.close()


@contextmanager
def curves(folder: Path | None, name: str, settings: Mapping[str, Any]) -> Iterator[Any]:
    """What is to be told of each epoch of the network `name`; nothing is written without a folder."""
    if folder is None:
        yield lambda _: None
        return
    found = Curves(folder / name, settings)
    try:
        yield found
    except BaseException:
        found.close(finished=False)
        raise
    found.close(finished=True)


def require() -> None:
    """Raises SettingsError if there is no TensorBoard, with how to get it."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            "TensorBoard, for which training writes its curves, is missing: pip install 'passwright[train]'"
        ) from error
