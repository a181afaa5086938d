# %% [markdown]
# # Check a paper's claim, with a variation of your own
#
# Every figure of four papers is a study here: a grid of runs, the claim in parts, limits that were written down before
# the runs, and one picture. This one asks whether a bound of the *geometric* paper has its minimum where the theory
# says.

# %%
import neuralcollapse as nc

study = nc.studies.get("geometric/bound")
print(study.question)
for claim in study.claims:
    print(f"- {claim.says} ({claim.source}; limit: {claim.limit.words(claim.unit)})")

# %% [markdown]
# `smoke` shows in seconds that the path works; it decides nothing about claims that need seeds or nets. `desk` is
# large enough to decide, `paper` has the paper's own settings.

# %%
outcome = study.run(profile="smoke", out="results", workers=1)
print(outcome.verdict)
for part in outcome.parts:
    print(f"{part.verdict}: {part.says} {part.why}")

# %% [markdown]
# Now a variation: does it hold with a finer grid? `vary` replaces a setting of every cell that has it; its results are
# kept apart from the plain ones, and marked.

# %%
finer = study.vary({"points": 400})
again = finer.run(profile="smoke", out="results", workers=1)
print(finer.name, again.verdict, again.folder.name)
assert again.folder != outcome.folder

# %% [markdown]
# The picture of a study is in its folder, in three formats; all numbers are in tables that can be asked:

# %%
picture = outcome.folder / "figure.svg"
answer = nc.studies.query("results", "select part, verdict, measured from parts limit 4")
print(answer.columns)
for row in answer.rows:
    print(row)

# %% [markdown]
# The same from the shell:
#
# ```
# neuralcollapse study run geometric/bound --profile smoke --set points=400
# neuralcollapse report results --out report.html
# ```
#
# What all of them gave at desk size: the [gallery](../gallery.md). How to write one of your own:
# [Studies](../studies.md#adding-a-study-one-file).
