"""The options that name a model, shared by the commands that take one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from ..ufm import Problem

__all__ = ["ProblemOptions"]


@Parameter(name="*")
@dataclass(frozen=True)
class ProblemOptions:
    """An unconstrained feature model from the command line."""

    loss: Annotated[str, Parameter(help="Loss: ce, focal:gamma=3, ls:alpha=0.1, mse:alpha=1,target=1, or sc.")] = "ce"
    model: Annotated[
        Literal["regularized", "normalized", "contrastive"] | None,
        Parameter(
            help="Model; without it: normalized if a temperature is given, contrastive for sc, else regularized."
        ),
    ] = None
    classes: Annotated[int | None, Parameter(help="Number of classes K.")] = None
    per_class: Annotated[
        tuple[str, ...] | None,
        Parameter(
            help="Samples a class n (default 1), or one number a class: 50,50,5,5 (or 50 50 5 5).",
            negative="",
            consume_multiple=True,
        ),
    ] = None
    dim: Annotated[int | None, Parameter(help="Feature dimension d.")] = None
    weight_decay: Annotated[float | None, Parameter(help="Weight decay on W (regularized model).")] = None
    feature_decay: Annotated[float | None, Parameter(help="Weight decay on H (regularized model).")] = None
    bias_decay: Annotated[
        float | None, Parameter(help="Weight decay on the bias; 0: a free bias; not given: no bias.")
    ] = None
    features: Annotated[
        Literal["free", "nonnegative"] | None,
        Parameter(help="Features: free (default), or nonnegative as after a ReLU (regularized model)."),
    ] = None
    temperature: Annotated[float | None, Parameter(help="Temperature tau (normalized and contrastive models).")] = None

    @property
    def given(self) -> bool:
        """Whether any option names a model."""
        return self != ProblemOptions()

    def build(self) -> "Problem":
        """The model; ValueError names the option that is missing or does not belong."""
        from .. import losses
        from ..ufm import ContrastiveUFM, NormalizedUFM, RegularizedUFM

        loss = losses.get(self.loss)
        kind = self.model or self._guess(loss.takes)
        for name in ("classes", "dim"):
            if getattr(self, name) is None:
                raise ValueError(f"--{name} is missing: it names the model's size")
        assert self.classes is not None
        assert self.dim is not None
        counts = self._counts() or [2 if kind == "contrastive" else 1]
        per_class = counts[0] if len(counts) == 1 else list(counts)
        if kind == "regularized":
            self._refuse(kind, "temperature")
            if self.weight_decay is None or self.feature_decay is None:
                missing = "--weight-decay" if self.weight_decay is None else "--feature-decay"
                raise ValueError(f"{missing} is missing (or give --temperature for the normalized model)")
            return RegularizedUFM(
                self.loss,
                self.classes,
                per_class,
                self.dim,
                self.weight_decay,
                self.feature_decay,
                self.bias_decay,
                self.features or "free",
            )
        self._refuse(kind, "weight_decay", "feature_decay", "bias_decay", "features")
        temperature = 1.0 if self.temperature is None else self.temperature
        if kind == "normalized":
            return NormalizedUFM(self.loss, self.classes, per_class, self.dim, temperature)
        if loss.takes == "logits" and self.loss != "ce":
            raise ValueError(f"--loss {self.loss} is not for the contrastive model, whose loss is sc")
        if getattr(loss, "temperature", 1.0) != 1.0:
            raise ValueError("--loss sc takes its temperature from --temperature")
        return ContrastiveUFM(self.classes, per_class, self.dim, temperature)

    def _counts(self) -> list[int]:
        """The numbers of --per-class, whether separated by commas or by spaces."""
        pieces = [piece for text in self.per_class or () for piece in text.split(",")]
        try:
            return [int(piece) for piece in pieces]
        except ValueError as error:
            given = " ".join(self.per_class or ())
            raise ValueError(f"--per-class must be whole numbers, such as 50,50,5,5, got {given!r}") from error

    def _guess(self, takes: str) -> str:
        if takes == "features":
            return "contrastive"
        return "regularized" if self.temperature is None else "normalized"

    def _refuse(self, kind: str, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} does not belong to the {kind} model")
