# %% [markdown]
# # Solve and certify
#
# Why do nets collapse? Take the last layer alone and let its features $H$ be free variables: the *unconstrained
# feature model*. With weight decay on $W$ and $H$ it is not convex, but its global minimum is known in closed form,
# and any point can be compared with it.

# %%
import neuralcollapse as nc

model = nc.ufm.RegularizedUFM(
    "ce", num_classes=4, per_class=10, dim=6, weight_decay=5e-3, feature_decay=5e-3, bias_decay=0.01
)
best = model.optimum()
print(f"{best.regime}: value {best.value:.9f}, logit scale {best.logit_scale:.4f}")

# %% [markdown]
# A solver that knows nothing of it goes to the same value from a random start. Its trace has NC1 and NC2 on the way:

# %%
trace = nc.ufm.solve(
    model, method="gradient-descent", seed=0, record=("gap", "nc1", "nc2"), every=1
)
print(f"{trace.message}; {trace.value - best.value:.1e} above the closed form")
figure = trace.plot()

# %% [markdown]
# A *certificate* needs neither the closed form nor the way here. It is a lower bound on the global minimum by duality,
# so the gap is a proof:

# %%
certificate = model.certify(trace.point)
print(f"{certificate.verdict}, gap {certificate.gap:.1e}")
assert certificate.verdict == "global minimum"

# %% [markdown]
# At a saddle it says which way is down. The origin is one: all gradients vanish there. A step along the escape
# direction and a descent end in the next saddle, at which more classes are told apart, and so on to the minimum.

# %%
origin = trace.point * 0.0
place = origin
while (saddle := model.certify(place)).verdict == "strict saddle":
    print(
        f"strict saddle at {saddle.value:.4f}: curvature {saddle.curvature:.3g}, gap {saddle.gap:.3g}"
    )
    place = nc.ufm.solve(model, method="lbfgs", start=place + saddle.escape * 0.1, tol=1e-10).point
print(f"{saddle.verdict} at {saddle.value:.4f}")
assert saddle.verdict == "global minimum"

# %% [markdown]
# Between the two, the objective along a line, and the regimes over both decays (above the line, zero is best: too much
# decay, nothing is learned):

# %%
line = nc.landscape.objective_slice(model, origin, trace.point)
print(f"value {line.values[0]:.3f} at the origin, {line.values[-1]:.3f} at the minimum")
decays = [10 ** (-3 + step / 10) for step in range(31)]
diagram = nc.landscape.phase_diagram("ce", 4, 10, 6, decays, decays)
regimes = diagram.plot()

# %% [markdown]
# Other losses, temperatures and constraints are the same three calls: `NormalizedUFM`, `ContrastiveUFM`,
# `RegressionUFM`; `nc.ufm.methods(model)` lists the methods. Next: [unequal classes](imbalance.md).
