"""Run by a test, once per process: the losses of the first steps and the measured collapse, to a JSON file."""

import json
import os
import sys

import torch

torch.set_num_threads(1)

from neuralcollapse.training import Plan, train  # noqa: E402

PLANS = {
    "resnet": Plan(
        data="digits", per_class=32, model="resnet8:width=4", epochs=10, batch_size=64, measure=(10,),
        metrics=("nc1", "nc2", "nc3", "nc4_mismatch", "cosine_margin"), learning_rate=0.005, augment=True,
    ),
    "features": Plan(
        data="synthetic:num_classes=4,dim=8,per_class=31", model="mlp:width=12,depth=2", epochs=20, batch_size=50,
        decay_on="features", weight_decay=0.01, feature_decay=1e-4, bias_decay=0.01, clip_gradient=1.0,
        metrics=("nc1", "nc2"), learning_rate=0.02, measure=(20,),
    ),
    "contrastive": Plan(
        data="digits", per_class=16, model="mlp:width=12,depth=2", epochs=20, batch_size=55, augment=True,
        loss="supervised-contrastive", views=2, projection=6, metrics=("nc1",), learning_rate=0.02, measure=(20,),
    ),
}  # fmt: skip


def main() -> None:
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
    for name, plan in PLANS.items():
        out, losses = f"{sys.argv[1]}/{name}", []
        run = train(plan, out, on_step=lambda progress, losses=losses: losses.append(float(progress.loss)))
        if os.environ.get("RANK", "0") == "0":
            with open(f"{out}/losses.json", "w") as file:
                json.dump({"losses": losses, "history": run.history, "done": run.done}, file)
    if "WORLD_SIZE" in os.environ:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
