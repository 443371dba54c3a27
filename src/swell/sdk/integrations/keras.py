"""Keras (2 and 3):

    callback = SwellCallback()
    model = callback.restore(model)          # weights and optimizer of the last epoch, if there is one
    model.fit(…, epochs=N, initial_epoch=callback.initial_epoch, callbacks=[callback])

Reports epochs, steps and logs; saves weights and optimizer after each epoch (not only the best one: a resumed training
must go on where it was); ends `fit` when the run is to stop, and then leaves with the exit code of a stop.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from swell import sdk

if TYPE_CHECKING:
    Callback = object
elif os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    from tf_keras.callbacks import Callback
else:
    from keras.callbacks import Callback


class SwellCallback(Callback):
    params: Any  # set by Keras
    model: Any

    def __init__(self) -> None:
        super().__init__()
        self._run = sdk.current()
        self._leaving = False
        self.initial_epoch = 0

    def restore(self, model: Any) -> Any:
        """The model with what was saved put into it; sets `initial_epoch`."""
        saved = self._run.load()
        if saved is not None:
            model.set_weights(saved["weights"])
            model.optimizer.build(model.trainable_variables)
            for variable, value in zip(_variables(model.optimizer), saved["optimizer"]):  # noqa: B905  Python 3.8
                variable.assign(value)
        self.initial_epoch = self._run.resume_at
        return model

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._run.continue_at(epoch, int(self.params.get("epochs") or 0))
        self._run.start_epoch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._run.measure()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._run.log(**(logs or {}))
        self._run.end_epoch()
        state = [_plain(variable) for variable in _variables(self.model.optimizer)]
        self._run.save({"weights": self.model.get_weights(), "optimizer": state})
        last = epoch + 1 >= int(self.params.get("epochs") or 0)
        if not last and not self._run.boundary():
            self._leaving = self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        if self._leaving:
            self._run.leave()
        self._run.finish()


def _variables(optimizer: Any) -> Any:
    found = optimizer.variables
    return found() if callable(found) else found


def _plain(variable: Any) -> Any:
    return variable.numpy() if hasattr(variable, "numpy") else variable
