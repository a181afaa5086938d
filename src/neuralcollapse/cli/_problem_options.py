"""The options that name a model, shared by the commands that take one; they follow from the models' fields."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from .._support.fields.models import MODEL_FIELDS, ModelField, models_by_fields

if TYPE_CHECKING:
    from ..ufm import Problem

__all__ = ["ProblemOptions", "problem_options"]


class _Options:
    """An unconstrained feature model from the command line; the fields are those that the models declare."""

    if TYPE_CHECKING:
        loss: str
        model: str | None
        temperature: float | None

        def __init__(self, **options: object) -> None: ...

    @property
    def given(self) -> bool:
        """Whether any option names a model."""
        return self != type(self)()

    def build(self) -> "Problem":
        """The model; ValueError names the option that is missing or does not belong."""
        from .. import losses
        from ..ufm import problems

        loss = losses.get(self.loss)
        kind = self.model or self._guess(loss.takes)
        mine = {one.name: one for one in MODEL_FIELDS[kind]}
        for name in ("num_classes", "dim"):
            if getattr(self, name) is None:
                raise ValueError(f"{mine[name].option} is missing: it names the model's size")
        for name, one in _all_fields().items():
            if name not in mine and name != "loss" and getattr(self, name) is not None:
                raise ValueError(f"{one.option} does not belong to the {kind} model")
        if "loss" not in mine:
            if loss.takes == "logits" and self.loss != "ce":
                raise ValueError(f"--loss {self.loss} is not for the {kind} model, whose loss is sc")
            if getattr(loss, "temperature", 1.0) != 1.0:
                raise ValueError("--loss sc takes its temperature from --temperature")
        values = {one.name: self._value(one, kind) for one in mine.values()}
        return problems[kind](**values)

    def _value(self, one: ModelField, kind: str) -> Any:
        value = getattr(self, one.name)
        if one.kind == "counts":
            counts = self._counts(value) or [2 if kind == "contrastive" else 1]
            return counts[0] if len(counts) == 1 else counts
        if value is not None:
            return value
        if one.required:
            hint = " (or give --temperature for the normalized model)" if kind == "regularized" else ""
            raise ValueError(f"{one.option} is missing{hint}")
        return one.default

    @staticmethod
    def _counts(given: tuple[str, ...] | None) -> list[int]:
        """The numbers of --per-class, whether separated by commas or by spaces."""
        pieces = [piece for text in given or () for piece in text.split(",")]
        try:
            return [int(piece) for piece in pieces]
        except ValueError as error:
            text = " ".join(given or ())
            raise ValueError(f"--per-class must be whole numbers, such as 50,50,5,5, got {text!r}") from error

    def _guess(self, takes: str) -> str:
        if takes == "features":
            return "contrastive"
        return "regularized" if self.temperature is None else "normalized"


def _all_fields() -> dict[str, ModelField]:
    """The fields of all models, by name."""
    return {one.name: one for fields in models_by_fields().values() for one in fields}


def problem_options() -> type[_Options]:
    """A dataclass with one option for each field of the models that are declared."""
    kinds = Literal[tuple(models_by_fields())]  # pyright: ignore[reportInvalidTypeForm]
    words = "Model; without it: normalized if a temperature is given, contrastive for sc, else regularized."
    types: dict[str, Any] = {
        "loss": Annotated[str, Parameter(help=_all_fields()["loss"].words)],
        "model": Annotated[kinds | None, Parameter(help=words)],
    }
    types |= {
        name: Annotated[_option_type(one) | None, _parameter(one)]
        for name, one in _all_fields().items()
        if name != "loss"
    }
    body = {**dict.fromkeys(types), "loss": "ce", "__annotations__": types, "__module__": __name__}
    made = type("ProblemOptions", (_Options,), {**body, "__doc__": _Options.__doc__})
    return Parameter(name="*")(dataclass(frozen=True)(made))


def _option_type(one: ModelField) -> Any:
    if one.kind == "choice":
        return Literal[one.choices]
    return {"integer": int, "scale": float, "counts": tuple[str, ...], "loss": str}[one.kind]


def _parameter(one: ModelField) -> Parameter:
    if one.kind == "counts":
        return Parameter(name=one.option, help=one.words, negative="", consume_multiple=True)
    return Parameter(name=one.option, help=one.words)


if TYPE_CHECKING:

    class ProblemOptions(_Options):
        """The options of all models."""

else:
    ProblemOptions = problem_options()
