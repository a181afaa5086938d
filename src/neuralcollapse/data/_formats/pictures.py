"""JPEG and PNG files through Pillow, which is needed for image folders only."""

import io
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from .._errors import DataError, reading

__all__ = ["read_picture"]

LARGEST_FILE = 64 * 2**20
LARGEST_PICTURE = 50_000_000


def read_picture(path: Path, side: int) -> UInt8[np.ndarray, "3 side side"]:
    """The picture in ``path`` as RGB, resized to ``side`` x ``side`` (bilinear) when it has another size."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"{path}: reading pictures needs Pillow: pip install 'neuralcollapse[images]'") from None
    with reading(path), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        if path.stat().st_size > LARGEST_FILE:
            raise DataError(f"{path}: larger than the {LARGEST_FILE:,} bytes allowed")
        try:
            picture = Image.open(io.BytesIO(path.read_bytes()), formats=("JPEG", "PNG"))
        except UnidentifiedImageError:
            raise DataError(f"{path}: not a JPEG or PNG file") from None
        with picture:
            if picture.width * picture.height > LARGEST_PICTURE:
                raise DataError(f"{path}: {picture.width} x {picture.height} pixels are more than allowed")
            colours = picture.convert("RGB")
            if colours.size != (side, side):
                colours = colours.resize((side, side), Image.Resampling.BILINEAR)
            return np.ascontiguousarray(np.asarray(colours, dtype=np.uint8).transpose(2, 0, 1))
