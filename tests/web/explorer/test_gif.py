"""The page's own encoder of moving pictures, read by another program."""

import base64
import io
import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import numpy as np
import pytest


def encoded(frames, delay=7):
    """What the page would save of frames (T, height, width, 3)."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on this machine")
    script = Path(__file__).parent / "gif.mjs"
    encoder = resources.files("neuralcollapse.web.explorer") / "static" / "collapse" / "gif.js"
    opaque = np.concatenate([frames, np.full((*frames.shape[:3], 1), 255)], axis=3)
    asked = {"width": frames.shape[2], "height": frames.shape[1], "delay": delay}
    asked["frames"] = opaque.reshape(len(frames), -1).tolist()
    command = [node, "--no-warnings", "--experimental-default-type=module", str(script), str(encoder)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=120, check=True)
    return base64.b64decode(done.stdout)


def decoded(content):
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(content))
    frames = []
    for place in range(image.n_frames):
        image.seek(place)
        frames.append(np.asarray(image.convert("RGB")))
    return image, np.stack(frames)


def test_few_colours_come_back_as_they_were():
    generator = np.random.default_rng(0)
    # Cells of the palette are eight wide: these colours lie in cells of their own.
    palette = np.stack([8 * place % 248 for place in (np.arange(200), 7 * np.arange(200), 31 * np.arange(200))], axis=1)
    frames = palette[generator.integers(0, 200, (5, 61, 83))]
    frames[3] = frames[2]
    frames[4, 20:40, 20:40] = palette[3]
    image, found = decoded(encoded(frames, delay=9))
    assert image.info["duration"] == 90
    assert image.info["loop"] == 0
    assert found.shape == frames.shape
    assert (found == frames).all()


def test_long_runs_fill_the_table_of_codes_more_than_once():
    generator = np.random.default_rng(1)
    frames = np.repeat(generator.integers(0, 2, (2, 200, 300, 1)) * 248, 3, axis=3)
    _, found = decoded(encoded(frames))
    assert (found == frames).all()


def test_many_colours_become_the_nearest_of_some():
    across, down = np.meshgrid(np.arange(160), np.arange(120))
    frames = np.stack([across, down, (across + down) // 2], axis=2)[None]
    _, found = decoded(encoded(frames))
    assert np.abs(found.astype(int) - frames).max() <= 24
    assert np.abs(found.astype(int) - frames).mean() <= 5
