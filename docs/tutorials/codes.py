# %% [markdown]
# # Codes: more classes than dimensions
#
# A simplex needs $d\ge K-1$ dimensions. Language models have far more classes than that, so their classifiers cannot
# form one. What do they go to? On spheres: to *softmax codes*, unit vectors of which each is as far as possible from
# the convex hull of the others.

# %%
import neuralcollapse as nc

for classes, dim in ((4, 3), (6, 4), (6, 3), (12, 3)):
    code = nc.frames.softmax_code(classes, dim)
    distances = nc.frames.one_vs_rest(code)
    smallest, proved = float(distances.distances.min()), float(distances.lower_bounds.min())
    print(f"{classes:2} classes in {dim} dimensions: {smallest:.6f} apart, proved {proved:.6f}")
    assert proved <= smallest + 1e-12

# %% [markdown]
# Four classes in three dimensions are the simplex, six the octahedron, twelve the icosahedron. Does descent find them?

# %%
model = nc.ufm.NormalizedUFM("ce", num_classes=12, per_class=1, dim=3, temperature=20.0)
trace = nc.ufm.solve(model, "lbfgs", seed=1, tol=1e-9, max_iter=3000, record=("value",))
report = nc.measure(
    trace.point.H,
    model.labels,
    trace.point.W,
    metrics=["one_vs_rest_weight", "uniformity_means", "nc3_cosine"],
)
print(
    f"reached {report.one_vs_rest_weight:.4f}; the icosahedron has {nc.frames.known_code_distance(12, 3):.4f}"
)

# %% [markdown]
# It depends on the temperature. Six classes in four dimensions can be two triangles in orthogonal planes (3+3) or a
# tetrahedron and a pair (4+2); which is lower changes with $\tau$:

# %%
diagram = nc.landscape.code_diagram(6, 4, [0.25 * step for step in range(1, 21)])
print(dict(zip(diagram.temperatures, diagram.best, strict=True))[0.5], "at 0.5")
print(dict(zip(diagram.temperatures, diagram.best, strict=True))[2.0], "at 2.0")
print("changes at", ", ".join(f"{change:.4f}" for change in diagram.changes))
figure = diagram.plot()
assert diagram.changes

# %% [markdown]
# For a net with more classes than dimensions ask for `metrics="all"`: `one_vs_rest_weight` and `one_vs_rest_means`
# come with proved bounds, `nc2_projected` compares with the best that $d$ dimensions allow. The study
# `codes/temperature` looks at the temperature for many sizes. Next: [check a claim of a paper](check_a_claim.md).
