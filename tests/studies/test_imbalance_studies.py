"""The studies beyond the four papers: each part on true and on false results, and their measures by hand."""

import math

import pytest
import torch

from made_up import results, verdicts
from neuralcollapse.studies import get
from neuralcollapse.studies.codes.temperature import value_of_sizes
from neuralcollapse.studies.imbalance._gaps import gap, law, row_distance
from neuralcollapse.studies.imbalance.reweighting import loss_of, weights_of
from neuralcollapse.studies.imbalance.seli_rate import distance
from neuralcollapse.ufm import RegularizedUFM, solve

pytestmark = pytest.mark.unchecked  # results are stand-ins

# Measures ------------------------------------------------------------------------------------------------------------


def test_gap_by_hand():
    likely = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.3, 0.3, 0.4]])
    # Classes 0 and 1: (0.5 - 0.3) and (0.7 - 0.1); the third sample is of neither.
    assert gap(likely, torch.tensor([0, 1, 2]), [0, 1]) == pytest.approx(0.4)


def test_row_distance_by_hand():
    rows = torch.tensor([[10.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    assert row_distance(rows, [1, 2]) == pytest.approx(0.5)
    assert row_distance(torch.zeros(3, 2), [1, 2]) == 0


def test_distance_ignores_scale_and_rotation():
    rows = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    assert distance(3 * rows @ turn, rows) < 1e-14
    assert distance(torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(math.sqrt(2 - math.sqrt(2)))


def test_weights_have_a_mean_of_one_over_the_samples():
    counts = [9, 4, 1]
    for scheme in ("plain", "inverse", "root"):
        weights = weights_of(scheme, counts)
        assert sum(n * w for n, w in zip(counts, weights, strict=True)) == pytest.approx(sum(counts))
    assert weights_of("inverse", counts) == pytest.approx([14 / 27, 14 / 12, 14 / 3])
    assert weights_of("root", counts)[2] / weights_of("root", counts)[0] == pytest.approx(3)


@pytest.mark.parametrize("scheme", ["plain", "inverse", "root", "adjusted"])
def test_the_law_against_a_solve_by_trust_regions(scheme):
    counts, mu = [12, 12, 3, 3], 0.03
    problem = RegularizedUFM(loss_of(scheme, counts), 4, counts, 5, mu, mu)
    point = solve(problem, "trust-region", seed=3, tol=1e-10, max_iter=500).point
    logits = point.H @ point.classifier.T
    if scheme == "adjusted":
        logits = logits + torch.tensor(counts, dtype=torch.float64).log()
    likely = torch.softmax(logits, 1)
    for first, count in ((0, 12), (2, 3)):
        sample = 0 if first == 0 else 24
        said = law(count, 30, mu, weights_of(scheme, counts)[first])
        assert float(likely[sample, first] - likely[sample, first + 1]) == pytest.approx(said, abs=1e-7)


def test_simplices_by_their_own_logits():
    from neuralcollapse.frames import orthogonal_simplices

    rows = orthogonal_simplices([4, 2])
    value = torch.nn.functional.cross_entropy(2.5 * rows @ rows.T, torch.arange(6))
    assert value_of_sizes("4+2", 2.5) == pytest.approx(float(value), abs=1e-14)


# Minority collapse ---------------------------------------------------------------------------------------------------

MINORITY = get("imbalance/minority-collapse")
MINORITY_CELLS = MINORITY.planned("desk")


def minority(entry, **changes):
    ratio = entry.labels["ratio"]
    said = max(0.0, 1 - math.sqrt(ratio))
    return {"gap": said, "distance": said, "law": said, "duality_gap": 1e-16, "outcome": "converged", **changes}


def test_minority_collapse_holds():
    assert set(verdicts(MINORITY, results(MINORITY_CELLS, minority)).values()) == {"holds"}


@pytest.mark.parametrize(
    ("part", "what", "side", "changes"),
    [
        ("merged", "optimum", 2.0, {"distance": 1e-3}),
        ("apart", "optimum", 0.5, {"gap": 0.2}),
        ("distinct", "optimum", 0.95, {"distance": 0.0}),
        ("descent", "descent", 1.05, {"gap": 0.01}),
        ("net", "net", 2.0, {"gap": 0.2}),
    ],
)
def test_minority_collapse_contradicted(part, what, side, changes):
    def value(entry):
        spoiled = entry.labels["what"] == what and entry.labels["ratio"] == side
        return minority(entry, **(changes if spoiled else {}))

    found = verdicts(MINORITY, results(MINORITY_CELLS, value))
    assert [name for name, verdict in found.items() if verdict == "contradicted"] == [part]


# Reweighting ---------------------------------------------------------------------------------------------------------

WEIGHTED = get("imbalance/reweighting")
WEIGHTED_CELLS = WEIGHTED.planned("desk")
COUNTS = [40, 40, 10, 10, 2, 2]


def weighted(entry):
    weights = weights_of(entry.labels["scheme"], COUNTS)
    laws = [law(n, 104, entry.labels["mu"], weights[COUNTS.index(n)]) for n in (40, 10, 2)]
    return {"counts": [40, 10, 2], "gaps": list(laws), "distances": list(laws), "laws": laws, "outcome": "converged"}


def test_reweighting_holds():
    assert set(verdicts(WEIGHTED, results(WEIGHTED_CELLS, weighted)).values()) == {"holds"}


@pytest.mark.parametrize("scheme", ["plain", "adjusted", "inverse", "root"])
def test_reweighting_contradicted(scheme):
    def value(entry):
        result = weighted(entry)
        if entry.labels["scheme"] == scheme and entry.labels["mu"] == 0.02:
            result["gaps"] = [result["gaps"][0] + 0.01, *result["gaps"][1:]]
        return result

    found = verdicts(WEIGHTED, results(WEIGHTED_CELLS, value))
    assert [name for name, verdict in found.items() if verdict == "contradicted"] == [scheme]


def test_not_turned_round_where_the_small_classes_merge_first():
    def value(entry):
        result = weighted(entry)
        return {**result, "gaps": result["gaps"][::-1]} if entry.labels["scheme"] == "inverse" else result

    found = verdicts(WEIGHTED, results(WEIGHTED_CELLS, value))
    assert found["turned"] == found["inverse"] == "contradicted"
    assert found["plain"] == found["root"] == "holds"


# SELI ----------------------------------------------------------------------------------------------------------------

SELI = get("imbalance/seli-rate")
SELI_CELLS = SELI.planned("desk")
# Measured elsewhere for counts 20, 7, 3, 1.
AWAY = dict(
    zip((1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9), (0.103, 0.076, 0.061, 0.05, 0.043, 0.038, 0.033), strict=True)
)


def seli(entry, **changes):
    if entry.labels["what"] == "descent":
        return {"to_seli": 0.1, "to_optimum": 1e-9, **changes}
    return {"distance": AWAY[entry.labels["decay"]], **changes}


def test_seli_rate_holds():
    assert set(verdicts(SELI, results(SELI_CELLS, seli)).values()) == {"holds"}


def test_a_power_of_the_decay_is_not_logarithmic():
    def value(entry):
        return seli(entry, **({} if entry.labels["what"] == "descent" else {"distance": entry.labels["decay"] ** 0.5}))

    found = verdicts(SELI, results(SELI_CELLS, value))
    assert found["approached"] == "holds"
    assert found["logarithmic"] == found["slow"] == found["numbers"] == "contradicted"


def test_a_distance_that_rises_is_no_approach():
    def value(entry):
        rises = entry.labels["what"] == "optimum" and entry.labels["decay"] == 1e-8
        return seli(entry, **({"distance": 0.045} if rises else {}))

    assert verdicts(SELI, results(SELI_CELLS, value))["approached"] == "contradicted"


def test_descent_that_ends_elsewhere():
    def value(entry):
        return seli(entry, **({"to_optimum": 0.05} if entry.labels["what"] == "descent" else {}))

    found = verdicts(SELI, results(SELI_CELLS, value))
    assert [name for name, verdict in found.items() if verdict == "contradicted"] == ["own-optimum"]


# Codes ---------------------------------------------------------------------------------------------------------------

CODES = get("codes/temperature")
CODE_CELLS = CODES.planned("desk")


def code(entry, factor=1.0):
    labels = entry.labels
    best = 1.0
    if (labels["K"], labels["d"]) == (6, 4):
        best = min(value_of_sizes(name, labels["tau"]) for name in ("3+3", "4+2"))
        factor *= 0.99 if labels["tau"] == 10 else 1.0
    return {"best": best * factor, "closed_form": best, "regime": "", "reached": 0.8}


def test_codes_hold():
    assert set(verdicts(CODES, results(CODE_CELLS, code)).values()) == {"holds"}


@pytest.mark.parametrize(("part", "size"), [("cross-polytope", (8, 4)), ("polygon", (7, 2)), ("simplices", (7, 4))])
@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_a_lower_value_and_one_that_is_never_reached_contradict(part, size, factor):
    def value(entry):
        return code(entry, factor if (entry.labels["K"], entry.labels["d"], entry.labels["tau"]) == (*size, 2.0) else 1)

    found = verdicts(CODES, results(CODE_CELLS, value))
    assert [name for name, verdict in found.items() if verdict == "contradicted"] == [part]


def test_the_other_partition_contradicts():
    def value(entry):
        result = code(entry)
        if (entry.labels["K"], entry.labels["d"], entry.labels["tau"]) == (6, 4, 0.5):
            other = value_of_sizes("4+2", 0.5)
            result |= {"best": other, "closed_form": other}
        return result

    found = verdicts(CODES, results(CODE_CELLS, value))
    assert [name for name, verdict in found.items() if verdict == "contradicted"] == ["partition"]


def test_no_better_code_when_cold_contradicts():
    def value(entry):
        return code(entry, 1 / 0.99 if (entry.labels["K"], entry.labels["d"], entry.labels["tau"]) == (6, 4, 10) else 1)

    found = verdicts(CODES, results(CODE_CELLS, value))
    assert [name for name, verdict in found.items() if verdict == "contradicted"] == ["cold"]
