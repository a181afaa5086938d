# %% [markdown]
# # Imbalance and minority collapse
#
# When classes have unequal counts, the picture changes: small classes lean towards one another, and below a certain
# count their classifiers *merge*, so that the model cannot tell them apart. Where exactly, is known.

# %%
import torch
from matplotlib.figure import Figure

import neuralcollapse as nc

LARGE, SMALL, DECAY = (100, 100, 100), 2, 0.008


def model_of(count: int) -> nc.ufm.RegularizedUFM:
    """Three classes of 100 samples and two of ``count``."""
    return nc.ufm.RegularizedUFM("ce", 5, [*LARGE, count, count], 8, DECAY, DECAY)


print([(count, model_of(count).learned_classes()) for count in (2, 8, 20)])

# %% [markdown]
# `learned_classes` says which classes are told apart at the global minimum. The rule behind it, for two classes of
# equal count $n_k$: a sample gives its own class $p_k(k)-p_k(k')=\max(0,\,1-N\mu/\sqrt{n_k})$ more than the other,
# with $\mu=\sqrt{\lambda_W\lambda_H}$. We need not believe it; a solve that does not know it must agree.


# %%
def gap_of(count: int) -> float:
    """The gap between the two small classes at a minimum found by trust regions, and certified."""
    model = model_of(count)
    point = nc.ufm.solve(model, "trust-region", tol=1e-10, record=()).point
    assert model.certify(point).verdict == "global minimum"
    shares = torch.softmax(point.H[sum(LARGE)] @ point.classifier.T, dim=0)
    return abs(float(shares[3] - shares[4]))


counts = [2, 4, 6, 8, 12, 20, 40]
found = [gap_of(count) for count in counts]
law = [max(0.0, 1 - (sum(LARGE) + 2 * count) * DECAY / count**0.5) for count in counts]
for count, measured, predicted in zip(counts, found, law, strict=True):
    print(f"{count:3} samples: gap {measured:.6f}, law {predicted:.6f}")
    assert abs(measured - predicted) < 1e-6

figure = Figure(figsize=(5.5, 3), layout="constrained")
axis = figure.subplots()
axis.plot(counts, law, color="#0072B2", label="law")
axis.plot(counts, found, "o", color="#D55E00", mfc="white", label="solved and certified")
axis.spines[["top", "right"]].set_visible(False)
axis.set(xlabel="samples of each small class", ylabel="gap between them")
axis.legend(frameon=False)

# %% [markdown]
# What helps? Weights. With the square root of the inverse frequency every group has the same gap; with the inverse
# frequency itself the order turns round, and the *large* classes are the first to merge, at $1/(K\mu)^2$ samples.

# %%
total = sum(LARGE) + 2 * 4
for power in (0.0, 0.5, 1.0):
    weights = [(total / (5 * count)) ** power for count in (*LARGE, 4, 4)]
    model = nc.ufm.RegularizedUFM(
        nc.losses.CrossEntropy(class_weights=weights), 5, [*LARGE, 4, 4], 8, DECAY, DECAY
    )
    print(f"weights n^-{power:g}: learned classes {model.learned_classes()}")
print(f"with weights 1/n, classes of {1 / (5 * DECAY) ** 2:.0f} samples would merge first")

# %% [markdown]
# In a net of your own, `report.groups` compares large classes with small ones, and `nc.data.load(...,
# imbalance="exponential:ratio=100")` makes such data. The studies `imbalance/minority-collapse`,
# `imbalance/reweighting` and `imbalance/seli-rate` check it at scale. Proof and formulas:
# [Theory](../theory.md#closed-forms-for-any-counts).
