"""Public calls that fail in a way that says nothing to their caller are told in terms of their arguments.

Numbers, sizes and names are checked where they enter, one by one. Objects are not: what behaves like a tensor or a
model may be one. So a call is tried first, and only when it ends in an error from deep inside (an attribute that a
number does not have, a key, an index, a shape) its arguments are held against their annotations, and the first that
does not fit is named; then tensors of a kind with which little is computed (sparse, meta, quantized), and at last all
tensors, with their shapes. Nothing is refused that works.
"""

import collections.abc
import dis
import functools
import inspect
import numbers
import sys
import traceback
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

from .checks import LARGEST, describe, is_out_of_memory, unusual_tensor

__all__ = ["explain", "explain_calls"]

CLEAR = (ValueError, TypeError, OSError, NotImplementedError, ImportError)
"""Errors that are the caller's to read, unless another library wrote them, in terms of its own."""
KNOWN = {"neuralcollapse", "torch", "numpy", "scipy", "jaxtyping", "beartype", "torchmetrics", *sys.stdlib_module_names}
"""Whose code an error may come from to be about the arguments; what a caller's own function raises is the caller's."""
SKIPPED = ("forward", "features")
"""Methods of nets: they are PyTorch's, and fail as its modules do."""


def explain_calls(package: str) -> None:
    """Wrap the public functions of a package, and the methods of its public classes, as described above."""
    module = sys.modules[package]
    for name in module.__all__:
        value: Any = vars(module).get(name)  # not what is imported when it is first asked for
        if not getattr(value, "__module__", "").startswith(package):
            continue
        explained = explain(value)
        if explained is not value:
            setattr(module, name, explained)
            setattr(sys.modules[value.__module__], value.__name__, explained)  # where pickle looks for it


def explain(value: Any) -> Any:
    """A function wrapped as described above; a class with its methods so; anything else as it is."""
    if inspect.isfunction(value) and not hasattr(value, "_explained"):
        return _explained(value)
    if inspect.isclass(value) and not _left_alone(value):
        for base in value.__mro__:
            if base.__module__.startswith("neuralcollapse"):
                _explain_methods(base)
    return value


def _left_alone(kind: type) -> bool:
    """Exceptions, protocols, and models of a library that checks its fields itself."""
    return issubclass(kind, BaseException) or getattr(kind, "_is_protocol", False) or hasattr(kind, "model_fields")


def _explain_methods(kind: type) -> None:
    for name, value in list(vars(kind).items()):
        private = name.startswith("_") and name not in ("__init__", "__call__")
        if private or name in SKIPPED or hasattr(value, "_explained"):
            continue
        if inspect.isfunction(value):
            setattr(kind, name, _explained(value))
        elif isinstance(value, classmethod) and not hasattr(value.__func__, "_explained"):
            setattr(kind, name, classmethod(_explained(value.__func__)))


def _explained(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def explained(*given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named)
        except Exception as error:
            if type(error) in (ValueError, TypeError) and _stated(error) and len(str(error).splitlines()) > 1:
                raise type(error)(" ".join(str(error).split())) from error  # of a name with a line break
            clear = isinstance(error, CLEAR) and "\n" not in str(error)
            if clear and (isinstance(error, OSError) or _stated(error)):
                raise
            wrong = _misfit(call, given, named)
            if wrong is None and not clear:
                wrong = _impossible(call, given, named, error)
            if wrong is None and _from_known_code(error):
                wrong = _about_tensors(call, given, named, error)
            if wrong is None:
                raise
            raise wrong from error

    explained._explained = True  # pyright: ignore[reportAttributeAccessIssue]
    return explained


def _misfit(call: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Exception | None:
    """The error that names the first argument that is not what its annotation says."""
    try:
        bound = inspect.signature(call).bind(*given, **named).arguments
    except TypeError as error:
        return error
    for name, value in bound.items():
        annotation = _annotation(call, name)
        if not matches(value, annotation):
            kind = ValueError if typing.get_origin(annotation) is Literal else TypeError
            return kind(f"{name} must be {words(annotation)}, got {describe(value)}")
    return None


def _impossible(
    call: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], error: Exception
) -> Exception | None:
    """The error for numbers of the right kind that cannot be computed with: too large, or a division by zero."""
    memory = is_out_of_memory(error)
    bound = inspect.signature(call).bind(*given, **named).arguments
    numeric = {name: value for name, value in bound.items() if isinstance(value, numbers.Number)}
    for name, value in numeric.items():
        if isinstance(value, int) and abs(value) > LARGEST:
            return ValueError(f"{name} must be at most {LARGEST} in size, got {describe(value)}")
    if not memory and not isinstance(error, ArithmeticError):
        return None
    shown = ", ".join(f"{name} = {describe(value)}" for name, value in numeric.items()) or "these arguments"
    if memory:
        return ValueError(f"{shown}: this takes more memory than there is")
    return ValueError(f"{shown}: it cannot be computed ({' '.join(str(error).split())})")


def _stated(error: Exception) -> bool:
    """Whether a ``raise`` of this package made the error, in its own terms."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or not place.tb_frame.f_globals.get("__name__", "").startswith("neuralcollapse"):
        return False
    return place.tb_frame.f_code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _from_known_code(error: Exception) -> bool:
    """Whether all code between the call and the error is of :data:`KNOWN` packages."""
    frames = traceback.walk_tb(error.__traceback__)
    return all(frame.f_globals.get("__name__", "").split(".")[0] in KNOWN for frame, _ in frames)


def _tensors_given(call: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> list[tuple[str, Any]]:
    """The tensors among the arguments, those of lists and those of points, with the arguments' names."""
    torch: Any = sys.modules.get("torch")
    found = []
    for name, value in inspect.signature(call).bind(*given, **named).arguments.items():
        parts = getattr(value, "blocks", value)  # those of a point
        found += [(name, part) for part in (parts if isinstance(parts, list | tuple) else [parts])]
    return [] if torch is None else [(name, part) for name, part in found if isinstance(part, torch.Tensor)]


def _about_tensors(
    call: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], error: Exception
) -> Exception | None:
    """The error for tensors that cannot be computed with: no numbers in memory, or shapes that do not match."""
    tensors = _tensors_given(call, given, named)
    for name, tensor in tensors:
        if unusual_tensor(tensor) is not None:
            return TypeError(f"{name} must be a dense tensor of real numbers, got {describe(tensor)}")
    if not tensors or not isinstance(error, RuntimeError | IndexError):
        return None
    shown = ", ".join(f"{name} = {describe(tensor)}" for name, tensor in tensors)
    return ValueError(f"{shown}: it cannot be computed ({' '.join(str(error).split())[:200]})")


def _annotation(call: Callable[..., Any], name: str) -> Any:
    """The annotation of a parameter; ``Any`` where it cannot be found out."""
    found = inspect.signature(call).parameters[name]
    if found.kind in (found.VAR_KEYWORD, found.VAR_POSITIONAL):
        return Any
    if not isinstance(found.annotation, str):
        return Any if found.annotation is found.empty else found.annotation
    names: dict[str, Any] = {}
    for module in [module for name, module in sys.modules.items() if name.startswith("neuralcollapse.")]:
        names |= {key: value for key, value in vars(module).items() if inspect.isclass(value)}
    try:
        return eval(found.annotation, getattr(inspect.unwrap(call), "__globals__", {}), names)
    except (NameError, AttributeError, TypeError):
        return Any


def matches(value: object, annotation: Any) -> bool:
    """Whether a value is of a type, as far as that can be told; in doubt it is.

    >>> matches(3, float), matches("3", float), matches([1, 2], collections.abc.Sequence[int])
    (True, False, True)
    """
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None:
        return value is None
    if origin is typing.Annotated:
        return matches(value, parts[0])
    if origin in (typing.Union, types.UnionType):
        return any(matches(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str | int | None) and value in parts
    if annotation in NUMBERS:
        return isinstance(value, NUMBERS[annotation]) and not isinstance(value, bool)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is tuple:
        inner = parts[0] if len(parts) == 2 and parts[1] is Ellipsis else Any
        return isinstance(value, tuple | list) and all(matches(entry, inner) for entry in value)
    if origin in (collections.abc.Sequence, list) and parts:
        if not isinstance(value, collections.abc.Sequence) or isinstance(value, str | bytes):
            return False
        return all(matches(entry, parts[0]) for entry in value)
    try:
        return isinstance(value, origin or annotation)
    except Exception:  # what is no type to ask about, or one that cannot be asked outside its function
        return True


NUMBERS: dict[Any, Any] = {int: numbers.Integral, float: numbers.Real}


def words(annotation: Any) -> str:
    """A type in words.

    >>> words(int | None), words(Literal["a", "b"])
    ('int or None', "'a' or 'b'")
    """
    parts = typing.get_args(annotation)
    if annotation is None or annotation is type(None):
        return "None"
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(words(part) for part in parts))
    if typing.get_origin(annotation) is Literal:
        return " or ".join(repr(part) for part in parts)
    if inspect.isclass(annotation) and not parts:
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")
