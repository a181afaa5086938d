"""``neuralcollapse train``: a plan from options or a file, trained into a run directory."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ._app import app

OffByDefault = Annotated[bool, Parameter(negative="")]


@app.command
def train(
    *,
    out: str,
    plan: str | None = None,
    data: str | None = None,
    root: str | None = None,
    per_class: int | None = None,
    test_per_class: int | None = None,
    validation: float | None = None,
    imbalance: str | None = None,
    random_labels: OffByDefault = False,
    augment: OffByDefault = False,
    shuffle: bool | None = None,
    model: str | None = None,
    width: float | None = None,
    feature_dim: int | None = None,
    init: Literal["kaiming-fan-out", "torch"] | None = None,
    head: str | None = None,
    loss: str | None = None,
    loss_scale: float | None = None,
    views: Literal[1, 2] | None = None,
    projection: int | None = None,
    optimizer: str | None = None,
    learning_rate: float | None = None,
    schedule: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    clip_gradient: float | None = None,
    decay_on: Literal["parameters", "features"] | None = None,
    weight_decay: float | None = None,
    feature_decay: float | None = None,
    feature_decay_over: Literal["set", "batch", "unit"] | None = None,
    bias_decay: float | None = None,
    precision: Literal["float32", "bfloat16"] | None = None,
    channels_last: bool | None = None,
    device: str | None = None,
    seed: int | None = None,
    measure: str | None = None,
    metrics: Annotated[tuple[str, ...] | None, Parameter(negative="", consume_multiple=True)] = None,
    intervals: float | None = None,
    resume: OffByDefault = False,
    keep: int = 2,
    save_features: OffByDefault = False,
) -> int:
    """Train a net and measure its collapse. Start it with torchrun to use several processes or GPUs.

    Options replace the fields of the plan file, if there is one, and the defaults otherwise. Exit code 1 when the run
    stops before its end, in a state that --resume continues.

    **Try:**

    ```
    neuralcollapse train --data digits --loss focal:gamma=3 --epochs 50 --out RUN
    neuralcollapse train --plan plan.toml --out RUN --resume
    torchrun --nproc-per-node 2 -m neuralcollapse train --data mnist --out RUN
    ```

    Parameters
    ----------
    out
        Directory of the run.
    plan
        A plan in a .toml or .json file.
    data
        Data set of ``neuralcollapse data list``.
    root
        Folder of the data sets (default: the variable NEURALCOLLAPSE_DATA).
    per_class
        Training samples of each class.
    test_per_class
        Test samples of each class.
    validation
        Fraction of the training set to hold out.
    imbalance
        Profile such as exponential:ratio=100.
    random_labels
        Give the training images labels at random, of equal class sizes.
    augment
        Random crop and horizontal flip.
    shuffle
        Whether each epoch has an order of its own (default) or all have that of the data set.
    model
        Net such as resnet18:width=8 or mlp:depth=4.
    width
        Width of the net, as in --model NET:width=.
    feature_dim
        Feature dimension, as in --model NET:feature_dim=.
    init
        How convolutions start: Kaiming's rule with fan-out (default), or PyTorch's own.
    head
        linear, etf or normalized:temperature=5.
    loss
        cross-entropy, focal:gamma=3, label-smoothing:alpha=0.1, squared-error, supervised-contrastive, ...
    loss_scale
        The objective has this times the loss: 2/K for a mean over classes of the squared error.
    views
        Augmented views of each image in a batch, for supervised-contrastive.
    projection
        Outputs of a projection between the net and supervised-contrastive.
    optimizer
        sgd, adam, adamw, lbfgs or riemannian-sgd, with parameters after a colon.
    learning_rate
        Learning rate.
    schedule
        milestones, step:every=40, cosine:period=200 or constant.
    epochs
        Epochs in all.
    batch_size
        Samples a step, over all processes.
    clip_gradient
        Largest norm of the gradient.
    decay_on
        Decay of all parameters, or of (W, H, b) as in the theory.
    weight_decay
        Decay of all parameters, or of W.
    feature_decay
        Decay of the features H.
    feature_decay_over
        H of the whole set (default), of the batch alone, or scaled to norm one.
    bias_decay
        Decay of the bias b.
    precision
        float32 or bfloat16 (slow on most CPUs).
    channels_last
        Whether images lie in memory with their channels last (default).
    device
        auto, cpu, cuda or cuda:N.
    seed
        Seed of everything random.
    measure
        Epochs to measure at: log, every, or a list such as 1,10,100.
    metrics
        Names of the metrics to measure, such as nc1 nc2 (default: the core).
    intervals
        Level of confidence intervals of the metrics, such as 0.95 (default: none).
    resume
        Go on with the run in --out, or start it if there is none.
    keep
        Checkpoints to keep.
    save_features
        Write the final features of the training and test sets.

    """
    options = dict(locals())
    from ..training import Plan, TrainingStopped
    from ..training import train as run_training
    from ._output.progress import TrainingBar

    given = {name: value for name, value in options.items() if name in Plan.model_fields}
    given |= {"random_labels": random_labels or None, "augment": augment or None, "measure": _epochs(measure)}
    fields: dict[str, Any] = {} if plan is None else Plan.from_file(plan).model_dump()
    fields |= {name: value for name, value in given.items() if value is not None}
    fields["model"] = _sized(str(fields.get("model", Plan().model)), width=width, feature_dim=feature_dim)
    whole = Plan(**fields)
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


def _epochs(text: str | None) -> object:
    if text is None or text in ("log", "every"):
        return text
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--measure takes log, every or a list such as 1,10,100, got {text!r}") from None


def _sized(model: str, **sizes: float | None) -> str:
    """The model's name with the sizes that were given as options of their own."""
    from .._support.checks import real
    from .._support.registry import Spec

    extra = []
    for name, size in sizes.items():
        if size is not None:
            if name in Spec.parse(model, "model").arguments:
                raise ValueError(f"--{name.replace('_', '-')} is given twice: also in --model {model}")
            number = real(f"--{name.replace('_', '-')}", size)
            extra.append(f"{name}={int(number) if number.is_integer() else number}")
    return model if not extra else model + ("," if ":" in model else ":") + ",".join(extra)
