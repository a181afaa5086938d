# %% [markdown]
# # A training run, watched
#
# Neural collapse is a matter of the *terminal phase*: it goes on after the training error is zero. To see it, measure
# along the way. In a loop of your own that is one line an epoch.

# %%
import torch

import neuralcollapse as nc

data = nc.data.load("digits", per_class=50, test_per_class=20)
images, labels = data.train.batch(torch.arange(len(data.train)))
loader = data.train.loader(250)
model = nc.models.mlp(width=64, depth=3, in_channels=1, image_size=8, num_classes=10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=2e-3)
log = nc.integrations.JSONLinesLogger("run/metrics.jsonl")
generator = torch.Generator().manual_seed(0)

for epoch in range(1, 61):
    model.train()
    for rows in torch.randperm(len(labels), generator=generator).split(100):
        loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    report = nc.integrations.record_collapse(model, loader, epoch, [log], extra={"loss": loss})

print(
    f"accuracy {report.accuracy:.3f}, nc1 {report.nc1:.3g}, nc2 {report.nc2:.3g}, nc3 {report.nc3:.3g}"
)

# %% [markdown]
# The rows can be read by anything (one JSON object a line), and drawn:

# %%
figure = nc.plot_history("run/metrics.jsonl", ["nc1", "nc2", "nc3", "loss"])

# %% [markdown]
# Without a loop of your own, a `Plan` says everything that decides the result, and a run directory keeps it. A run
# that is killed goes on where it was, to the same bits.

# %%
plan = nc.training.Plan(
    data="digits",
    per_class=50,
    model="mlp:width=64,depth=3",
    loss="squared-error",
    learning_rate=0.1,
    epochs=100,
    metrics=("nc1", "nc2", "nc3"),
)
run = nc.training.train(plan, "run/squared-error")
epochs, values = run.curve("nc1")
print(f"nc1 {values[0]:.3g} after epoch {epochs[0]}, {values[-1]:.3g} after epoch {epochs[-1]}")
picture = nc.plot_history(run.folder)

# %%
rows = [row for row in run.history if row["split"] == "train"]
fitted = next(row for row in rows if row["accuracy"] == 1.0)
print(
    f"all training images are right from epoch {fitted['epoch']} on; nc1 was {fitted['nc1']:.3g} then"
)
print(f"at the end it is {rows[-1]['nc1']:.3g}")
assert rows[-1]["nc1"] < fitted["nc1"] / 2

# %% [markdown]
# The error was zero long before, and the features went on shrinking: that is the terminal phase. The same from the
# shell: `neuralcollapse train --data digits --model mlp --loss squared-error --out RUN`. Next: why it happens, in a
# model that can be solved: [solve and certify](solve_and_certify.md).
