"""A run of a trainer in two processes: ``torchrun two_processes.py transformers|lightning DIRECTORY``."""

import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]


def with_transformers(folder):
    import test_transformers as runs

    from neuralcollapse.integrations import TransformersCollapse

    (ids, data), (other, evaluation) = runs.rows(27), runs.rows(29)
    callback = TransformersCollapse(metrics=runs.NAMES)
    model, trainer = runs.trained(
        folder, callback, data=data, evaluation=evaluation, eval_strategy="epoch", ddp_backend="gloo"
    )
    reports = [callback.history[-1][1], callback.evaluation_history[-1][1]]
    return trainer.args.process_index, reports, [runs.truth(model, ids), runs.truth(model, other)]


def with_lightning(folder):
    import test_lightning_runs as runs

    from neuralcollapse.integrations import LightningCollapse

    callback, net, (x, y) = LightningCollapse(metrics=runs.NAMES), runs.Net(), runs.data(61, 1)
    trainer = runs.trainer_of([callback], folder, devices=2, strategy="ddp")
    trainer.fit(net, runs.loader(*runs.data()), runs.loader(x, y))
    return trainer.global_rank, [callback.history[-1][1]], [runs.truth(net, x, y)]


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    rank, reports, truths = (with_transformers if sys.argv[1] == "transformers" else with_lightning)(folder)
    content = [
        {"samples": report.num_samples, "notes": report.notes, "found": report.scalars, "truth": truth}
        for report, truth in zip(reports, truths, strict=True)
    ]
    (folder / f"{rank}.json").write_text(json.dumps(content))
