"""The README's picture: four clouds become a tetrahedron, as a short loop made from the model itself.

``python docs_build/readme_loop.py`` writes docs/collapse.gif: gradient descent on the regularised model with K = 4
classes in d = 3 dimensions, from a random start; what is drawn are the iterates, turned slowly.
"""

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import neuralcollapse as nc
from neuralcollapse._support.theme import GREY, class_colour

PICTURE = Path(__file__).parent.parent / "docs" / "collapse.gif"
STEPS = (*range(0, 40, 2), *range(40, 120, 4), *range(120, 420, 15))
LAST = 14
"""Frames that the end stays."""


def iterates() -> list[nc.ufm.Point]:
    """Points on the way from a random start to the minimum, by plain descent with a fixed step."""
    problem = nc.ufm.RegularizedUFM("ce", num_classes=4, per_class=12, dim=3, weight_decay=5e-3, feature_decay=5e-3)
    point = 1.2 * problem.random_point(0)
    kept = {}
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            kept[step] = point
        point = point - 2.0 * problem.gradient(point)
    return [kept[step] for step in STEPS]


def drawn(point: nc.ufm.Point, turn: float) -> Image.Image:
    """One frame: samples, class means, classifier and the edges between the means."""
    features, weight = point.H.numpy().reshape(4, 12, 3), point.W.numpy()
    means = features.mean(1)
    size = np.linalg.norm(means, axis=1).mean()
    weight = weight * size / np.linalg.norm(weight, axis=1).mean()
    reach = max(1.0, 0.8 * float(np.linalg.norm(features, axis=2).max()))
    figure = Figure(figsize=(4.2, 3.6), dpi=100)
    axis = figure.add_axes((0, 0, 1, 1), projection="3d")
    for k in range(4):
        for other in means[:k]:
            axis.plot(*zip(means[k], other, strict=True), color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        shade = class_colour(k)
        axis.plot(*zip((0, 0, 0), weight[k], strict=True), color=shade, linewidth=2.2)
        axis.scatter(*features[k].T, s=12, color=shade, alpha=0.75, linewidths=0)
        axis.scatter(*means[k], s=90, facecolors="none", edgecolors=shade, linewidths=1.8)
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(-reach, reach))
    axis.set_box_aspect((1, 1, 1), zoom=1.55)
    axis.view_init(20, turn)
    axis.set_axis_off()
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return Image.open(content).convert("RGB").quantize(64, dither=Image.Dither.NONE)


def main() -> None:
    """Write the loop."""
    points = iterates()
    frames = [drawn(point, 30 + 2 * place) for place, point in enumerate([*points, *[points[-1]] * LAST])]
    frames[0].save(PICTURE, save_all=True, append_images=frames[1:], duration=70, loop=0, optimize=True)


if __name__ == "__main__":
    main()
