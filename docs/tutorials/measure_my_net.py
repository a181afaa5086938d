# %% [markdown]
# # Measure my net
#
# Has *my* network collapsed? Three lines answer that. Here is a small net on the embedded digits, measured before and
# after training; put your own model and loader in their place.

# %%
import torch

import neuralcollapse as nc

data = nc.data.load("digits", per_class=60, test_per_class=20)
loader = data.train.loader(120)
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Flatten(),
    *(torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.ReLU()),
    *(torch.nn.Linear(128, 128), torch.nn.BatchNorm1d(128), torch.nn.ReLU()),
    torch.nn.Linear(128, 10),
)
before = nc.measure_model(model, loader)
print(f"layer {before.layer}: nc1 {before.nc1:.3f}, nc2 {before.nc2:.3f}, nc3 {before.nc3:.3f}")

# %% [markdown]
# `measure_model` found the classifier by itself (`report.layer` says which layer it is), took the features that enter
# it, and left the model as it was: mode, hooks, random state. Now train, in any way.

# %%
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-3)
images, labels = data.train.batch(torch.arange(len(data.train)))
for _ in range(60):
    for rows in torch.randperm(len(labels)).split(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()

after = nc.measure_model(model, loader)
for name in ("nc1", "nc2", "nc3", "nc4_mismatch"):
    print(f"{name:12} {before[name]:8.3g} before, {after[name]:8.3g} after")

# %% [markdown]
# - **nc1** is the spread within classes against the distance between them: 0 when every feature sits on its class mean.
# - **nc2** says how far the classifier is from a simplex equiangular tight frame, **nc3** how far it is from the class
#   means, **nc4_mismatch** how often it disagrees with "the nearest class mean".
#
# How sure are these numbers, with so few samples? With the features at hand, `nc.measure` gives intervals, too:

# %%
with torch.no_grad():
    features = model[:-1](images)
low, high = nc.measure(
    features, labels, model[-1].weight, model[-1].bias, intervals=0.95
).intervals["nc1"]
print(f"nc1 {after.nc1:.3g}, 95 % interval {low:.3g} to {high:.3g}")

# %% [markdown]
# And a picture: gauges from *random* to *collapsed*, the margins, the spread of each class.

# %%
figure = after.plot()

# %% [markdown]
# On data that the net has not seen, collapse is weaker:

# %%
test = nc.measure_model(model, data.test.loader(100))
print(f"nc1 on the training set {after.nc1:.3g}, on the test set {test.nc1:.3g}")
assert after.nc1 < before.nc1 / 20
assert after.nc1 < test.nc1

# %% [markdown]
# Next: [a training run, watched](training_watched.md), or the same [inside Lightning and
# Transformers](../integrations.md). What each metric is, and what it costs: [Measuring](../metrics.md).
