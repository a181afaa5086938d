"""Every public name stands on a page of the API: the pages are built as the documentation is, and looked through."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

import neuralcollapse as nc

HOME = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("hooks", HOME / "docs_build" / "hooks.py")
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)

CONTRACT = [
    "frames.simplex_etf",
    "frames.orthogonal_frame",
    "frames.low_rank_etf",
    "frames.nearest_etf",
    "frames.seli",
    "frames.softmax_code",
    "frames.one_vs_rest",
    "frames.OneVsRest",
    "losses.CrossEntropy",
    "losses.Focal",
    "losses.LabelSmoothing",
    "losses.SquaredError",
    "losses.SupervisedContrastive",
    "losses.LogitAdjusted",
    "losses.VectorScaling",
    "losses.get",
    "ufm.RegularizedUFM",
    "ufm.NormalizedUFM",
    "ufm.ContrastiveUFM",
    "ufm.RegressionUFM",
    "ufm.RegressionUFM.critical_points",
    "ufm.RegularizedUFM.count_threshold",
    "ufm.RegularizedUFM.learned_classes",
    "ufm.RegularizedUFM.optimum",
    "ufm.RegularizedUFM.certify",
    "ufm.Problem.value",
    "ufm.Problem.gradient",
    "ufm.Problem.hessian_vector",
    "ufm.Problem.random_point",
    "ufm.Point",
    "ufm.Optimum",
    "ufm.Certificate",
    "ufm.Trace",
    "ufm.Trace.plot",
    "ufm.solve",
    "ufm.methods",
    "metrics.measure",
    "metrics.measure_model",
    "metrics.measure_files",
    "metrics.extract",
    "metrics.plot_history",
    "metrics.ClassStatistics",
    "metrics.ClassStatistics.update",
    "metrics.ClassStatistics.merge",
    "metrics.ClassStatistics.report",
    "metrics.CollapseReport",
    "metrics.CollapseReport.to_dict",
    "metrics.CollapseReport.plot",
    "metrics.CollapseReport.save",
    "metrics.CollapseReport.load",
    "metrics.NeuralCollapse",
    "models.resnet18",
    "models.resnet50",
    "models.wide_resnet18",
    "models.wide_resnet50",
    "models.mlp",
    "models.LinearHead",
    "models.SimplexETFHead",
    "models.NormalizedHead",
    "data.load",
    "training.train",
    "training.Plan",
    "training.Plan.random_labels",
    "training.Run",
    "studies.get",
    "studies.Study.run",
    "landscape.FeatureSlice.plot",
    "landscape.PhaseDiagram.plot",
    "web.watch",
]
"""The names that users, texts and other programs call, by layer."""


@pytest.fixture(scope="module")
def anchors(tmp_path_factory):
    """The anchors of every page of the API."""
    folder = tmp_path_factory.mktemp("api")
    pages = folder / "docs"
    pages.mkdir()
    (pages / "index.md").write_text("# API\n", encoding="utf-8")
    for name, title in hooks.MODULES.items():
        (pages / f"{name}.md").write_text(hooks.api_page(name, title), encoding="utf-8")
    wanted = yaml.safe_load((HOME / "mkdocs.yml").read_text(encoding="utf-8"))
    (makers,) = (one["mkdocstrings"] for one in wanted["plugins"] if isinstance(one, dict))
    python = makers["handlers"]["python"]
    python["paths"] = [str(HOME / path) for path in python["paths"]]
    python["options"]["extensions"] = [str(HOME / path) for path in python["options"]["extensions"]]
    settings = {"site_name": "API", "docs_dir": str(pages), "site_dir": str(folder / "site")}
    settings |= {"theme": "material", "plugins": [{"mkdocstrings": makers}]}
    file = folder / "mkdocs.yml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    build(load_config(str(file)))
    text = "".join(path.read_text(encoding="utf-8") for path in (folder / "site").rglob("index.html"))
    return set(re.findall(r'id="(neuralcollapse\.[\w.]+)"', text))


def is_there(anchors, path):
    """By its public path, or where a file of the same name hides it, by the longer one."""
    layer, _, name = path.rpartition(".")
    return f"neuralcollapse.{path}" in anchors or f"neuralcollapse.{layer}.{name}.{name}" in anchors


def public_names():
    for layer in hooks.MODULES:
        module = importlib.import_module(f"neuralcollapse.{layer}")
        for name in module.__all__:
            inner = getattr(module, name)
            if inspect.ismodule(inner):
                yield from (f"{layer}.{name}.{entry}" for entry in inner.__all__)
            else:
                yield f"{layer}.{name}"


def test_every_public_name_is_on_a_page(anchors):
    names = list(public_names())
    assert len(names) > 200
    assert [name for name in names if not is_there(anchors, name)] == []


def test_every_name_of_the_contract_is_on_a_page(anchors):
    assert [name for name in CONTRACT if not is_there(anchors, name)] == []


def test_every_layer_has_a_page_and_every_shortcut_is_a_name_of_a_layer():
    modules = {name for name in nc.__all__ if inspect.ismodule(getattr(nc, name))}
    assert modules - {"explorer", "report"} == set(hooks.MODULES)
    shown = [importlib.import_module(f"neuralcollapse.{layer}").__all__ for layer in hooks.MODULES]
    shortcuts = set(nc.__all__) - modules - {"__version__"}
    assert shortcuts <= {name for names in shown for name in names}
