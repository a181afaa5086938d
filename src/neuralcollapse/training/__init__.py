"""Training: from a plan to a run directory with metrics, checkpoints and the trained model, resumable at any moment.

>>> import neuralcollapse as nc
>>> plan = nc.training.Plan(data="digits", per_class=20, model="mlp:width=32,depth=2", epochs=3)
>>> plan.run_id == nc.training.Plan.from_json(plan.to_json()).run_id
True
"""

from .._support.public import explain_calls
from ._checkpoints import Checkpoint, TrainingStopped, checkpoint_path, read_checkpoint
from ._train import measured_epochs, train
from ._trainer import Progress
from .matching import closed_form_loss, matching_model
from .optimizers import RiemannianSGD, optimizers
from .plan import Plan
from .run import Run
from .schedules import schedules

__all__ = [
    "Checkpoint",
    "Plan",
    "Progress",
    "RiemannianSGD",
    "Run",
    "TrainingStopped",
    "checkpoint_path",
    "closed_form_loss",
    "matching_model",
    "measured_epochs",
    "optimizers",
    "read_checkpoint",
    "schedules",
    "train",
]

explain_calls(__name__)
