"""What the studies gave, as pages: results in full, a gallery to look through, and counts for the README."""

import json
from pathlib import Path
from typing import Any

from neuralcollapse._support.notation import typeset, typeset_fields
from neuralcollapse._support.theme import number
from neuralcollapse.studies import Study, get, plan_differs, studies, tables_of_parts

HOME = Path(__file__).resolve().parent.parent
EVIDENCE = HOME / "evidence" / "desk"
AGAIN = HOME / "evidence" / "again"
EARLIER = HOME / "evidence" / "earlier"
BOOTSTRAP = HOME / "evidence" / "small" / "bootstrap.json"
PICTURES = HOME / "docs" / "evidence"
MARKS = {"holds": "holds", "contradicted": "**contradicted**", "underpowered": "*underpowered*"}
NOT_RUN = "not run yet"
INTRODUCTION = """\
What the studies gave at desk size. This page is made from `evidence` by `make results`. By hand are the remarks under
"To know of these runs", which tell how plans and limits came about.

A study's claim has parts, each one thing that the paper says. A part *holds* if its whole interval (Student's, 95 %,
of the mean over seeds) is inside the limit, is *contradicted* if the interval is wholly outside and the nets do what
the claim presupposes (its floor), and is *underpowered* otherwise. Accuracies that a paper calls equal are judged by
another rule, which the limit "within ..., resolved to ..." names: the interval is two standard errors to either side
(COVERAGE); they agree if the difference is within the limit plus that
noise, unless the noise exceeds the resolution, and are contradicted beyond it. Of several differences the
one that is worst by itself is shown, of equals the one with the largest sum of size and noise; all are in the table
below it. Where a study has readings of a text that leaves something open (the largest s of a figure, a list of tau),
its interval spans them. A ratio of two spreads has the percentiles of a bootstrap over the seeds, which holds the true
ratio in fewer than 95 % of such runs (BOOTSTRAP). "Largest" and "least" are taken within each
seed; the figure is their mean over seeds. An interval may reach beyond what is possible (an accuracy above 1): it is
that of a mean of few numbers, and equal numbers in all seeds have none.

The worst of the paper's parts decides; parts marked *ours* do not. Limits come from the papers' numbers or words, or
where those have none are round numbers of ours, and were written down before the runs, which use seeds that no pilot
saw.

The studies of `imbalance` and `codes` go beyond the four papers: in the paper's place stands a statement of
[Theory](theory.md), or of a work that the source names."""
BEYOND = ("imbalance", "codes")
TITLES = {
    "geometric": "geometric: cross-entropy, decayed features",
    "mse": "mse: the squared error",
    "losses": "losses: cross-entropy, focal, label smoothing, squared error",
    "normalized": "normalized: features and classifiers on spheres",
    "imbalance": "imbalance: classes of unequal size (beyond the papers)",
    "codes": "codes: more classes than dimensions (beyond the papers)",
}
GALLERY = """\
Each card asks one question of the papers, or of the theory beyond them; below it stand the claim that decided, the
verdict at desk size, and the command that runs it again. A click on a picture leads to all its numbers in
[Results](results.md). Made from `evidence/desk` by `make results`."""
REMARKS = """\
- `mse/bias`: its parts on nets were the paper's in a first run, and one was contradicted as it is now. The paper
  states minimisers of the model and runs no such nets; after that run these parts were marked *ours* and those on the
  model were added. The file of that run was not kept; its nets had the seeds of the run shown.
- `losses/collapse` was run first with 200 epochs on 100 classes: NC1 under LS still fell, and that run called it
  contradicted. Since then that part asks that NC1 has come to rest before it can be. With 800 epochs it still fell,
  and 1,600 left it larger: with ten times the paper's decay a longer phase at the full rate hurts. The run shown has
  five times the paper's decay, 1,300 epochs there and 1,000 with ten classes, new seeds and the same limits. On 100
  classes NC1 alone is judged; the paper says that NC2 and NC3 behave alike.
- `losses/width-epochs` was run first with nets of up to 200 epochs, then of up to 600, in which NC1 had not come to
  rest; the run shown goes up to 1,000, with the nets of `losses/collapse`, new seeds and the same limits. It is on
  MNIST alone, and how far NC1 falls and the spread shrinks depends on the corners of the grid: the first is 5 epochs
  here, 100 in the paper. No floor asks that the nets of that corner have learned, so that the spread may shrink because
  they have not. Four seeds make its bootstrap of the spread rather too narrow than too wide.
- `losses/features` and `losses/accuracy` read the same nets. The two parts of the former say one thing twice: a
  residual r after rotation and scale goes with a distance of about 2r between Gram matrices, so that the same limit
  is twice as strict for the latter. It was written down so, and stays. It lies where two seeds of one loss are apart
  as well, so the part that is open says as much of the size of these nets as of the losses; the comparison with pairs
  of seeds, which is ours, holds.
- The decays and epochs of these four were chosen by pilots with seed 0, which no run has.
- `geometric/random-labels` was run first on 500 images with 100 and 200 epochs, then on 1,000: so few are fitted by
  all ResNet8 but the narrowest, and ties of zero errors bound the correlation with NC1 near its limit. The run shown
  has 1,500 images and new seeds, so that two widths of that family miss labels; limits are the same. Pilots with seed
  0 came before its plan. That the widest nets still collapse is judged by NC1: NC2 and NC3 fall with the width too,
  but those of the widest MLP are still far from zero.
- `geometric/optimizers` was run first with an L-BFGS that takes all images at once; in the released code it takes
  batches of them, which `mse/optimizers` had shown to matter for accuracy. The run shown does so too, on a quarter
  of the images at a time, with new seeds and the same limits. Test accuracies are closer then; both runs hold.
  What is said of accuracies is judged on CIFAR10 alone; on MNIST, which the figure has too, they are not judged.
- `mse/three-dimensions`: seeds 10 to 12 were seen once, with MLPs whose three units all died under the squared error.
  Nets and seeds were changed then, the limit was not; the file of that run was not kept.
- `mse/rescaling`: the correlations with alpha come from leaving alpha = 1; from 5 on NC1 rises again and test
  accuracy no longer does, and no net of this size collapses. Ranks of four or five values are coarse: a correlation
  that is the same in all seeds has no interval.
- `mse/landscape`: the paper's region has no upper end in s. It was judged on s up to 5 alone at first, and held; with
  an end at 2 or 3 it would not have. The interval spans these ends now, since the text allows them all.
- `geometric/fixed-etf`: no text says that ResNet50 saves a fifth of its parameters; the part is ours, and says that it
  does not.
- `losses/mini-imagenet`: that NC1 falls in the large setting is judged by its ratio to the first epoch; under CE and
  FL it is still near 1 at the end.
- `losses/focal-starts` was run first without a bias, which the paper's model has; the run shown has both, with new
  seeds.
- `mse/optimizers` was run first with three seeds, which left the order of the margins open, and then with eight,
  which contradicted it: L-BFGS took all images at once there, collapsed as deeply as the others and generalised
  worst. In the released code it takes batches. The run shown does so too, on a quarter of the images at a time, with
  new seeds and the same limits; a pilot with seed 0 came before its plan. So what the paper says of margins holds
  for an L-BFGS on batches, and not for one on the whole set.
- `mse/feature-dim` was run first with three seeds; one of its nets of the squared error with d = 9 lost a unit, which
  left five parts open. The run shown has clipped gradients, with which no net does, eight new seeds and the same
  limits. With d = 8, one dimension too few, a net of the squared error either fits all ten classes or misses one whole,
  so that "each smaller d" stays open in three parts, while d = 5 loses in every seed. Cross-entropy loses more than "a
  point or two" of test accuracy at d = 5 alone, in nets that learn from 2,000 images and are right on a third of the
  test set.
- `mse/fixed-etf` was run first with three seeds and then with eight; both were judged by the worst of three heads,
  with gains of single seeds counted as none. The second run contradicted the claim, by a learned head with d = K and
  by a fixed one on wide features. The paper makes both changes at once, and says of this that no accuracy is
  sacrificed: that is its part now, in which gains count, and the changes one by one are a part of ours. This was
  decided when the second run had shown that difference to be small, and the limit is one of losses alone since then;
  both were written down before the run shown, which has eight new seeds. Its nets learn from 2,000 images of 16 x 16
  without augmentation and are right on a third of the test set, the paper's on more than twice that.
- `normalized/temperature-net` was run first with nets of an eighth of the paper's width, then of half of it, both with
  batches of 50; at tau = 1 not all fitted their images. A pilot with the paper's batches of 128 and seed 0 did, and so
  do all nets of the run shown, those of a quarter of the width too: small batches had kept them from it, not their
  size. The run shown has these batches and new seeds; limits are the same. NC1, which the paper has smallest near
  tau = 5 as well, is smallest at tau = 1 in every seed. The temperatures of the second run were averaged as they are at
  first, which gave an interval that reached below zero, and then by their logarithms, since they lie on a grid of
  factors; both judgements stand below.
- `normalized/overparameterization` was run first with nets of an eighth and a quarter of the paper's width, most of
  which did not fit when normalised, then with nets of half of it; both took smaller batches than the paper's 128, and
  which of the two fits first was not the same for all seeds. The run shown has the paper's batches, after
  `normalized/temperature-net` had shown what they do, new seeds and the same limits. With one net of desk size nothing
  is said of what happens as nets grow, which is the point of the figure.
- `normalized/generalization` was run first with batches of 32 instead of the paper's 128, and left as much open. The
  drop from one net to the other is judged by test accuracy alone, where the paper has test NC1 as well.
- `normalized/temperature-ufm` was judged by NC2 and NC3 after 200 iterations at first, where those of tau = 5 and 10
  are rounding. They are compared before any is now, in a run with new seeds; that other seeds had been looked at came
  before this plan. tau = 10, the edge of the limit, is smallest there as well; while both are still large it is tau = 5
  (see the picture). NC1 gets small first at tau of about 1.
- `normalized/losses` was run first with gradient descent alone: on the contrastive loss at tau = 5 it had not come to
  rest, and the part on NC1 was underpowered. NC1 of this loss is now read off trust-region solves, with new seeds;
  limits are the same.
- `codes/temperature`, `normalized/speed` and `normalized/temperature-ufm`: pilots with other seeds had shown the
  outcome before the limits were committed; the limits were not changed for it."""
"""What a reader should know of limits and seeds."""

MISSING = """\
Figures 1 and 2 of the geometric paper and figure 1 of the mse paper are drawings without a result. The main texts of
the geometric and normalized papers were not at hand: their figures are known from the appendices and released code, and
table 1 of the normalized paper was not seen."""


Found = dict[str, dict[str, Any] | None]


def read_all() -> Found:
    """The evidence of every study, the papers' before what goes beyond them; ``None`` where there is none yet."""
    papers = list(TITLES)
    return {name: _read(name) for name in sorted(studies, key=lambda name: (papers.index(get(name).paper), name))}


def _read(name: str, folder: Path = EVIDENCE) -> dict[str, Any] | None:
    file = folder / f"{name}.json"
    if not file.is_file():
        return None
    facts = typeset_fields(json.loads(file.read_text(encoding="utf-8")), "setting")
    return facts | {"parts": [typeset_fields(part, "says", "why", "limit") for part in facts["parts"]]}


def _count(found: Found) -> str:
    """How many studies came to which verdict, and how many of the papers' own."""
    own = {name: facts for name, facts in found.items() if get(name).paper not in BEYOND}
    return f"{_verdicts(found)}. Of the four papers alone: {_verdicts(own)}."


def _verdicts(found: Found) -> str:
    verdicts = [facts["verdict"] if facts else NOT_RUN for facts in found.values()]
    counted = [
        f"{verdicts.count(word)} {'hold' if word == 'holds' else word}"
        for word in (*MARKS, NOT_RUN)
        if word in verdicts
    ]
    return f"{len(found)} studies: {', '.join(counted)}"


def papers_in_a_sentence() -> str:
    """How many of the four papers' own claims hold, for the README."""
    own = {name: facts for name, facts in read_all().items() if get(name).paper not in BEYOND}
    parts = [part for facts in own.values() if facts for part in facts["parts"] if part["kind"] == "paper"]
    verdicts = [part["verdict"] for part in parts]
    corrected = sum(part["erratum"] is not None for part in parts)
    missing = sum(facts is None for facts in own.values())
    waiting = (
        f" {missing} of the {len(own)} studies {'has' if missing == 1 else 'have'} not been run yet." if missing else ""
    )
    contradicted, open_yet = _are(verdicts.count("contradicted")), _are(verdicts.count("underpowered"))
    return (
        f"Of the papers' {len(parts)} claims checked at desk size, **{verdicts.count('holds')} hold**, "
        f"{contradicted} contradicted, {open_yet} too small to tell; "
        f"{corrected} of them the theory corrects, with an erratum.{waiting}\n"
    )


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def results(found: Found) -> str:
    """The page of all numbers."""
    lines = [
        "# Results",
        "",
        INTRODUCTION.replace("(COVERAGE)", _coverage()).replace("(BOOTSTRAP)", _bootstrap_coverage()),
        "",
        f"{_count(found)} The same to look through: the [gallery](gallery.md).",
        "",
        "```",
        "neuralcollapse study run all --profile desk --root data --out results",
        "neuralcollapse report results --out report.html",
        "make results",
        "```",
        "",
        "| study | figures | verdict | parts that hold | decided by | interval | limit | CPU min | nets on images |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(name, facts) for name, facts in found.items()),
        "",
        "Images: training images of a net, before any are held out.",
        "",
        "## To know of these runs",
        "",
        REMARKS,
        "",
        *_earlier_runs(found),
        *_second_runs(found),
        "## What is not here",
        "",
        MISSING,
        "",
        "## Study by study",
        "",
    ]
    for name, facts in found.items():
        lines += _section(get(name), facts)
    return "\n".join(lines).rstrip() + "\n"


def _coverage() -> str:
    """How often two standard errors of normal numbers hold their mean, by the number of seeds."""
    from scipy.stats import t

    shares = ", ".join(f"{100 * (1 - 2 * t.sf(2, count - 1)):.0f} % for {count} seeds" for count in (3, 8, 30))
    return f"({shares})"


def _bootstrap_coverage() -> str:
    """The same of the bootstrap of a ratio of spreads, by simulation."""
    held = json.loads(BOOTSTRAP.read_text(encoding="utf-8"))["held"]
    return f"(simulated: {', '.join(f'{100 * share:.0f} % for {count} seeds' for count, share in held.items())})"


def _earlier_runs(found: Found) -> list[str]:
    """Studies that were run before with a smaller plan: what decided then, and what the same part says now."""
    rows = []
    for name, shown in found.items():
        for suffix in ("", ".2", ".3"):
            earlier = _read(f"{name}{suffix}", EARLIER)
            if earlier is None or earlier == shown:
                continue
            part = next(part for part in earlier["parts"] if part["decides"])
            now = next((one for one in shown["parts"] if one["name"] == part["name"]), None) if shown else None
            cells = [f"`{name}`", _seeds(earlier), earlier["verdict"], part["name"], _interval(part), part["limit"]]
            cells += [_seeds(shown), shown["verdict"], _interval(now) if now else ""] if shown else ["", NOT_RUN, ""]
            rows.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    if not rows:
        return []
    return [
        "Earlier runs, each with the part that decided it, and what that part says in the run shown:",
        "",
        "| study | seeds then | verdict then | part | measured then | limit then | seeds shown | verdict now | now |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _seeds(facts: dict[str, Any]) -> str:
    seeds = facts["seeds"]
    if not seeds:
        return "none"
    return f"{seeds[0]} to {seeds[-1]}" if seeds == list(range(seeds[0], seeds[-1] + 1)) else ", ".join(map(str, seeds))


def _second_runs(found: Found) -> list[str]:
    """Studies that were run once more from other seeds: whether they come to the same verdicts."""
    rows = []
    for name, first in found.items():
        second = _read(name, AGAIN)
        if first is None or second is None:
            continue
        verdicts = [{part["name"]: part["verdict"] for part in facts["parts"]} for facts in (first, second)]
        same = sum(verdicts[1][part] == verdict for part, verdict in verdicts[0].items())
        seeds = (", ".join(map(str, facts["seeds"])) for facts in (first, second))
        cells = (f"`{name}`", *seeds, first["verdict"], second["verdict"], f"{same} of {len(verdicts[0])}")
        rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        return []
    return [
        "## Run again from other seeds",
        "",
        "| study | seeds | other seeds | verdict | verdict again | parts with the same verdict |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def gallery(found: Found) -> str:
    """Every study as a card: its question, its picture, what came of it and the command that runs it."""
    lines = ["---", "hide: [toc]", "---", "", "# Gallery of the studies", "", GALLERY, "", _count(found), ""]
    for paper in dict.fromkeys(get(name).paper for name in found):
        lines += [f"## {TITLES[paper]}", "", '<ul class="gallery" markdown>']
        lines += [_card(get(name), facts) for name, facts in found.items() if get(name).paper == paper]
        lines += ["</ul>", ""]
    return "\n".join(lines).rstrip() + "\n"


def _card(study: Study, facts: dict[str, Any] | None) -> str:
    verdict = facts["verdict"] if facts else NOT_RUN
    chip = f'<span class="chip {verdict.split()[0]}">{verdict}</span>'
    # Some pictures are fields of colour and too large to be kept with the pages.
    words = f"its picture is drawn by the command below, in {study.costs['desk']}" if facts else NOT_RUN
    picture = f'<span class="nothing">{words}</span>'
    if facts and (PICTURES / f"{study.id}.svg").is_file():
        picture = f'<img src="../evidence/{study.id}.svg" alt="{_attribute(typeset(study.question))}" loading="lazy">'
    claim = next(part["says"] for part in facts["parts"] if part["decides"]) if facts else typeset(study.claims[0].says)
    return (
        f'<li id="{study.id.replace("/", "-")}"><a class="picture" href="../results/#{study.id.replace("/", "")}">'
        f"{picture}</a>\n<b>{_html(typeset(study.question))}</b>\n<span>{_html(claim)}</span>\n"
        f"<span>{chip} {', '.join(_figures(study))}</span>\n<code>neuralcollapse study run {study.id}</code></li>"
    )


def _figures(study: Study) -> list[str]:
    return [f"figure {name}" if name[:1].isdigit() else name for name in study.figures]


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _attribute(text: str) -> str:
    return _html(text).replace('"', "&quot;")


def _row(name: str, facts: dict[str, Any] | None) -> str:
    study = get(name)
    link = f"[`{name}`](#{name.replace('/', '')})"
    if facts is None:
        return f"| {link} | {', '.join(study.figures)} | {NOT_RUN} | | | | | | |"
    paper = [part for part in facts["parts"] if part["kind"] == "paper"]
    deciding = next(part for part in facts["parts"] if part["decides"])
    holds = f"{sum(part['verdict'] == 'holds' for part in paper)} of {len(paper)}"
    images = " and ".join(f"{count:,}" for count in facts["images"])
    nets = f"{facts['nets']} on {images}" if facts["nets"] else ""
    entries = (
        *(link, ", ".join(study.figures), MARKS[facts["verdict"]], holds, _cell(deciding["says"]), _interval(deciding)),
        *(_cell(deciding["limit"]), f"{facts['cpu_minutes']:.1f}", nets),
    )
    return f"| {' | '.join(entries)} |"


def _section(study: Study, facts: dict[str, Any] | None) -> list[str]:
    lines = [f"### {study.id}", "", f"**{typeset(study.question)}**", ""]
    if facts is None:
        return [*lines, f"It is {NOT_RUN}. What it claims: `neuralcollapse study show {study.id}`.", ""]
    lines += [f"{_sentence(facts['verdict'])} {facts['setting'] or ''}".rstrip(), ""]
    if plan_differs(study, facts):
        lines += [f"*The run shown is of an earlier plan: {facts['cells']} cells, seeds {_seeds(facts)}.*", ""]
    speaker = "the theory" if study.paper in BEYOND else "the paper"
    lines += [
        f"| {speaker} says | source | verdict | measured | limit | the paper's numbers |",
        "|---|---|---|---|---|---|",
    ]
    for part in facts["parts"]:
        source = "ours" if part["kind"] == "ours" else part["source"]
        if part["erratum"] is not None:
            source += f" ([erratum {part['erratum']}](theory.md#errata))"
        values = typeset(study.paper_values.get(part["name"], ""))
        entries = (part["says"], source, MARKS[part["verdict"]], _interval(part), part["limit"], values)
        lines.append("| " + " | ".join(_cell(entry) for entry in entries) + " |")
    lines += ["", *(f"- {part['name']}: {part['why']}" for part in facts["parts"] if part["why"]), ""]
    for names, rows in tables_of_parts(facts["sensitivity"]):
        lines += _table(names, rows)
    if (PICTURES / f"{study.id}.svg").is_file():
        lines += [f"![{typeset(study.question)}](evidence/{study.id}.svg)", ""]
    return lines


def _table(names: list[str], rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    behind = " and ".join(f"*{name}*" for name in names)
    table = [f"The numbers behind {behind}:", "", "| " + " | ".join(c.replace("_", " ") for c in columns) + " |"]
    table.append("|" + "---|" * len(columns))
    table += ["| " + " | ".join(_cell(_number(row.get(column))) for column in columns) + " |" for row in rows]
    return [*table, ""]


def _sentence(verdict: str) -> str:
    return {"holds": "Holds.", "contradicted": "Contradicted.", "underpowered": "Underpowered."}[verdict]


def _interval(part: dict[str, Any]) -> str:
    if part["measured"] is None:
        return ""
    if part["low"] is None or part["low"] == part["high"]:
        return _number(part["measured"])
    return f"{_number(part['measured'])} ({_number(part['low'])} to {_number(part['high'])})"


def _number(value: Any) -> str:
    return "" if value is None else number(value, 3) if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


BLOCKS = {"papers": papers_in_a_sentence}
"""What pages have between marks, by name."""
