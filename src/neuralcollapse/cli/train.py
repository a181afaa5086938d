"""``neuralcollapse train``: a plan from options or a file, trained into a run directory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from pydantic.fields import FieldInfo

from .._support.fields.plan import PlanFields
from ._app import Flag, app

PANELS = {
    "data": Group.create_ordered("Data"),
    "model": Group.create_ordered("Net"),
    "loss": Group.create_ordered("Loss"),
    "optimizer": Group.create_ordered("Steps"),
    "decay_on": Group.create_ordered("Decay"),
    "precision": Group.create_ordered("Machine"),
    "measure": Group.create_ordered("Measurements"),
}
"""The parts of the help, each by the field that it begins with."""


class _Options:
    """The fields of a plan from the command line; what was not given is None."""

    @property
    def given(self) -> Mapping[str, Any]:
        """The fields that were given, as a plan takes them."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        return found | ({"measure": _epochs(found["measure"])} if "measure" in found else {})


def _plan_options() -> type[_Options]:
    """A dataclass with one option for each field of a plan."""
    types: dict[str, Any] = {}
    panel = PANELS["data"]
    for name, field in PlanFields.model_fields.items():
        panel = PANELS.get(name, panel)
        kind: Any = str if name == "measure" else field.annotation
        types[name] = Annotated[kind | None, _parameter(field, panel)]
    body = {**dict.fromkeys(types), "__annotations__": types, "__module__": __name__, "__doc__": _Options.__doc__}
    return Parameter(name="*")(dataclass(frozen=True)(type("PlanOptions", (_Options,), body)))


def _parameter(field: FieldInfo, panel: Group) -> Parameter:
    default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    return Parameter(
        help=field.description,
        group=panel,
        show_default=False if field.default is None else lambda _: default,
        negative_iterable="",
        consume_multiple=True,
    )


if TYPE_CHECKING:

    class PlanOptions(_Options):
        """The options of all fields."""

else:
    PlanOptions = _plan_options()


@app.command
def train(
    *,
    out: Path,
    plan: Path | None = None,
    resume: Flag = False,
    keep: int = 2,
    save_features: Flag = False,
    root: Path | None = None,
    fields: PlanOptions | None = None,
    width: Annotated[float | None, Parameter(group=PANELS["model"])] = None,
    feature_dim: Annotated[int | None, Parameter(group=PANELS["model"])] = None,
) -> int:
    """Train a net and measure its collapse. Start it with torchrun to use several processes or GPUs.

    Options replace the fields of the plan file, if there is one. Defaults are those without a file. Exit code 1 when
    the run stops before its end, in a state that --resume continues.

    **Try:**

    ```
    neuralcollapse train --data digits --loss focal:gamma=3 --epochs 50 --out RUN
    neuralcollapse train --plan plan.toml --no-augment --out RUN --resume
    torchrun --nproc-per-node 2 -m neuralcollapse train --data mnist --out RUN
    ```

    Parameters
    ----------
    out
        Directory of the run.
    plan
        A plan in a .toml or .json file.
    resume
        Go on with the run in --out, or start it if there is none.
    keep
        Checkpoints to keep.
    save_features
        Write the final features of the training and test sets.
    root
        Folder of the data sets (default: the variable NEURALCOLLAPSE_DATA).
    width
        Width of the net, as in --model NET:width=.
    feature_dim
        Feature dimension, as in --model NET:feature_dim=.

    """
    from ..training import Plan, TrainingStopped
    from ..training import train as run_training
    from ._output.progress import TrainingBar

    given = {} if fields is None else fields.given
    values: dict[str, Any] = {**({} if plan is None else Plan.from_file(plan).model_dump()), **given}
    model = str(values.get("model", Plan().model))
    values["model"] = _sized(model, "model" in given, width=width, feature_dim=feature_dim)
    whole = Plan(**values)
    with TrainingBar(whole) as display:
        try:
            run = run_training(
                whole,
                out,
                root=root,
                resume=resume,
                keep=keep,
                save_features=save_features,
                on_step=display.step,
                on_measure=display.measured,
                message=display.line,
            )
        except TrainingStopped as stop:
            display.line(f"stopped: {stop}")
            return 1
    display.finish(run)
    return 0


def _epochs(text: str) -> object:
    if text in ("log", "every"):
        return text
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--measure takes log, every or a list such as 1,10,100, got {text!r}") from None


def _sized(model: str, named: bool, **sizes: float | None) -> str:
    """The model's name with the sizes that were given as options of their own.

    They replace those of a plan file, but not those of a model that is ``named`` beside them.
    """
    from .._support.checks import real
    from .._support.registry import Spec

    chosen = {name: size for name, size in sizes.items() if size is not None}
    if not chosen:
        return model
    spec = Spec.parse(model, "net")
    for name, size in chosen.items():
        option = f"--{name.replace('_', '-')}"
        if named and name in spec.arguments:
            raise ValueError(f"{option} is given twice: also in --model {model}")
        number = real(option, size)
        spec.arguments[name] = int(number) if number.is_integer() else number
    return str(spec)
