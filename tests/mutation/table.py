"""Lines of the package, each with a wrong one that should not pass the tests beside it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutation:
    """A part of one line of ``src/neuralcollapse/file``, what to write in its place, and who should notice."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Files under ``tests/``."""

    def applied(self, text: str) -> str:
        """The file's text with the mutation made; ValueError unless ``old`` is in it exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file}: {self.old!r} stands there {count} times, not once")
        return text.replace(self.old, self.new)


LOSSES = ("losses/test_losses.py",)
FRAMES = ("frames/test_frames.py", "frames/test_codes.py")
OPTIMA = ("ufm/test_optima.py",)
CERTIFICATES = ("ufm/test_duality.py", "ufm/test_certificates.py", "ufm/test_odd_problems.py")
SOLVERS = ("ufm/solvers/test_steps.py", "ufm/solvers/test_methods.py")
DEFINITIONS = ("metrics/test_definitions.py", "metrics/test_pairs.py", "metrics/test_finite_samples.py")
STATISTICS = ("metrics/accumulators/test_statistics.py",)
INTERVALS = ("metrics/test_intervals.py",)
REPORTS = ("metrics/test_report.py", "metrics/test_selection.py")
MODELS = ("models/test_heads.py", "models/test_nets.py")
DATA = ("data/test_load.py", "data/test_formats.py")
TRAINING = ("training/test_plan.py", "training/test_train.py", "training/test_paper_variants.py")
SUPPORT = ("support/test_support.py", "support/test_tensors.py")

TABLE = (
    # losses
    Mutation(
        "losses/focal.py", "(2 * gamma + 1) * torch.sigmoid(odds)", "(2 * gamma - 1) * torch.sigmoid(odds)", LOSSES
    ),
    Mutation("losses/focal.py", "inside = (wrong >= 0).all(1) & (rate <= 1)", "inside = (wrong >= 0).all(1)", LOSSES),
    Mutation(
        "losses/squared_error.py", "torch.full_like(self.labels, -target", "torch.full_like(self.labels, target", LOSSES
    ),
    Mutation("losses/_softmax.py", "return -(entropy(wrong) + true)", "return -(entropy(wrong) - true)", LOSSES),
    Mutation("losses/_softmax.py", "if value < SMALL else value", "if value < 0 else value", LOSSES),
    Mutation(
        "losses/supervised_contrastive.py",
        "(sizes - 1).clamp(min=1))[:, None]",
        "sizes.clamp(min=1))[:, None]",
        ("losses/test_class_losses.py", *LOSSES),
    ),
    # frames
    Mutation("frames/simplex.py", "math.sqrt(count / (count - 1)) * subspace", "subspace", FRAMES),
    Mutation("frames/simplex.py", "torch.where(r.diagonal() < 0, -1.0, 1.0)", "1.0", FRAMES),
    Mutation("frames/nearest.py", "float(singular.sum()) / count", "float(singular.sum()) / (count - 1)", FRAMES),
    # ufm
    Mutation("ufm/regularized/optimum.py", "slope = (count - 1) * problem.s", "slope = count * problem.s", OPTIMA),
    Mutation(
        "ufm/regularized/optimum.py", "feature_norm=math.sqrt(size / ratio)", "feature_norm=math.sqrt(size)", OPTIMA
    ),
    Mutation("ufm/regularized/certificate.py", "penalty = sums / (2 * decay)", "penalty = sums / decay", CERTIFICATES),
    Mutation("ufm/verdict.py", "if sum(sides) / 2 < value - noise:", "if min(sides) < value - noise:", CERTIFICATES),
    Mutation("ufm/verdict.py", "CRITICAL = 1e-7", "CRITICAL = 1e-2", CERTIFICATES),
    Mutation(
        "ufm/duality.py", "(two - start) / (2 * second_difference)", "(two - start) / second_difference", CERTIFICATES
    ),
    Mutation(
        "ufm/normalized/certificate.py",
        "price = tau * norm * float(",
        "price = norm * float(",
        CERTIFICATES,
    ),
    Mutation(
        "ufm/regularized/objective.py",
        "start + step * (first + step * second / 2)",
        "start + step * (first + step * second)",
        ("ufm/test_objectives.py", "ufm/test_derivatives.py"),
    ),
    Mutation("ufm/solvers/methods/lbfgs.py", "alpha=weight - dot(turn, result) / inner", "alpha=weight", SOLVERS),
    Mutation(
        "ufm/solvers/line_search.py",
        "if excess <= SUFFICIENT * length * slope + noise:",
        "if excess <= noise:",
        SOLVERS,
    ),
    Mutation(
        "ufm/distance.py",
        "torch.eye(classes, dtype=torch.float64) - shares",
        "torch.eye(classes, dtype=torch.float64) - 1 / classes",
        ("ufm/test_distance.py",),
    ),
    # metrics
    Mutation("metrics/accumulators/moments.py", "(move * (sums + moved)).sum(1)", "(move * sums).sum(1)", STATISTICS),
    Mutation("metrics/accumulators/moments.py", "share / (1 + torch.sqrt(1 - share))", "share / 2", STATISTICS),
    Mutation(
        "metrics/definitions/variability.py",
        "self.variances[right] @ inverse.sum(0)",
        "self.variances[left] @ inverse.sum(1)",
        DEFINITIONS,
    ),
    Mutation("metrics/definitions/angles.py", "norms.std(correction=0)", "norms.std(correction=1)", DEFINITIONS),
    Mutation("metrics/definitions/finite_samples.py", "(noise * (1 - 2 * shares)).mean()", "noise.mean()", DEFINITIONS),
    Mutation(
        "metrics/definitions/variability.py",
        "return (per_class - 1) * dim / (num_classes - 2 - dim)",
        "return per_class * dim / (num_classes - 2 - dim)",
        DEFINITIONS,
    ),
    Mutation("metrics/intervals.py", "math.sqrt((count - 1) / count *", "math.sqrt(1 / count *", INTERVALS),
    Mutation(
        "metrics/intervals.py",
        "scaled = metric.lowest >= 0 and value > 0 and min(without) > 0",
        "scaled = False",
        INTERVALS,
    ),
    Mutation(
        "metrics/squared_error.py",
        "moment = spread + means.T @ weighted",
        "moment = spread + means.T @ means",
        ("metrics/test_decomposition.py",),
    ),
    Mutation(
        "metrics/selection.py",
        "few = (counts > 0) & (counts < self.min_samples)",
        "few = counts < self.min_samples",
        REPORTS,
    ),
    Mutation(
        "metrics/report/comparison.py", 'sign = 1 if METRICS[name].better == "higher" else -1', "sign = -1", REPORTS
    ),
    Mutation(
        "metrics/report/comparison.py",
        "if len(best) == 1 and len(known) > 1 else None",
        "if len(best) == 1 else None",
        REPORTS,
    ),
    Mutation(
        "metrics/hooks/align.py",
        "return flat.mean(1), labels",
        "return flat[:, 0], labels",
        ("metrics/hooks/test_model.py", "metrics/hooks/test_kinds_of_model.py"),
    ),
    Mutation("metrics/files/shards.py", 'and not file.name.startswith(".")', "", ("metrics/files/test_files.py",)),
    # landscape, models, data
    Mutation(
        "landscape/feature_slice.py",
        "by_s = s + (alpha - 1) * s * cosine**2",
        "by_s = s + alpha * s * cosine**2",
        ("landscape/test_landscape.py",),
    ),
    Mutation(
        "landscape/phase.py",
        "middles = (logs[1:] + logs[:-1]) / 2",
        "middles = logs[1:]",
        ("landscape/test_landscape.py", "landscape/test_plots.py"),
    ),
    Mutation("models/_heads/etf.py", "math.sqrt((count - 1) / count) * pad", "pad", MODELS),
    Mutation(
        "models/_heads/normalized.py",
        "self.bias.uniform_(-(dim**-0.5), dim**-0.5",
        "self.bias.uniform_(0.0, dim**-0.5",
        MODELS,
    ),
    Mutation(
        "models/_initialise.py",
        "math.sqrt(2 / (layer.out_channels * area))",
        "math.sqrt(2 / (layer.in_channels * area))",
        MODELS,
    ),
    Mutation(
        "data/subsets.py",
        "return split.select(torch.cat(chosen).sort().values)",
        "return split.select(torch.cat(chosen))",
        DATA,
    ),
    Mutation("data/imbalance.py", "self.ratio ** (-k / (num_classes - 1))", "self.ratio ** (-k / num_classes)", DATA),
    Mutation(
        "data/imbalance.py",
        "min(max(1, round(self.minority * num_classes)), num_classes - 1)",
        "max(1, round(self.minority * num_classes))",
        DATA,
    ),
    Mutation(
        "data/augmentation.py", "torch.randint(0, 2 * self.padding + 1,", "torch.randint(0, 2 * self.padding,", DATA
    ),
    Mutation("data/_formats/idx.py", "if stream.read(1):", "if False:", DATA),
    # training, integrations
    Mutation(
        "training/schedules.py",
        "self.factor ** (epoch // self.every)",
        "self.factor ** ((epoch + 1) // self.every)",
        TRAINING,
    ),
    Mutation(
        "training/schedules.py", "phase = (epoch % period) / period", "phase = min(epoch / period, 1.0)", TRAINING
    ),
    Mutation(
        "training/_objective.py",
        'if self.plan.feature_decay_over == "set" else 1.0',
        'if self.plan.feature_decay_over != "set" else 1.0',
        TRAINING,
    ),
    Mutation(
        "integrations/loggers.py",
        "return number if math.isfinite(number) else None",
        "return number",
        ("integrations/test_loop_and_loggers.py",),
    ),
    Mutation(
        "integrations/loggers.py",
        '{"epoch", "split"} | set(report.values)',
        '{"epoch", "split"}',
        ("integrations/test_loop_and_loggers.py",),
    ),
    # studies, web, command line
    Mutation(
        "studies/claims.py",
        "return _decide(high < self.bound, low >= self.bound)",
        "return _decide(high <= self.bound, low > self.bound)",
        ("studies/test_claims.py",),
    ),
    Mutation(
        "studies/claims.py",
        "noise = max(high - measured, measured - low)",
        "noise = high - measured",
        ("studies/test_claims.py",),
    ),
    Mutation(
        "web/report/_numbers.py",
        'return f"{seconds:.0f} s" if seconds >= 10',
        'return f"{seconds:.0f} s" if seconds >= 1',
        ("web/report/test_report.py",),
    ),
    Mutation(
        "web/report/_demo.py",
        "since = int(epoch) if since is None else since",
        "since = int(epoch)",
        ("web/report/test_demo_story.py",),
    ),
    Mutation(
        "web/explorer/_landscape.py",
        '"exchange": boundary.exchange**2 / per_class',
        '"exchange": boundary.exchange**2',
        ("web/explorer/test_answers.py",),
    ),
    Mutation(
        "cli/_output/progress.py",
        "hours, minutes = divmod(minutes, 60)",
        "hours, minutes = divmod(minutes, 100)",
        ("cli/test_terminal.py",),
    ),
    Mutation(
        "cli/_output/terminal.py",
        "if used + wide <= width or not chosen:",
        "if used + wide <= width + BETWEEN or not chosen:",
        ("cli/test_terminal.py",),
    ),
    Mutation(
        "cli/_problem_options.py",
        'for text in given or () for piece in text.split(",")',
        "for text in given or () for piece in [text]",
        ("cli/test_theory_commands.py",),
    ),
    Mutation(
        "cli/_app.py",
        "return outcome if isinstance(outcome, int) else 0",
        "return 0",
        ("cli/test_theory_commands.py",),
    ),
    # what all stand on
    Mutation("_support/theme.py", "elif 1e-3 <= size < 1e5:", "elif 1e-3 < size < 1e5:", ("web/test_theme.py",)),
    Mutation("_support/theme.py", "if len(whole) > 4 else text", "if len(whole) > 3 else text", ("web/test_theme.py",)),
    Mutation(
        "_support/checks.py",
        "if above is not None and number <= above:",
        "if above is not None and number < above:",
        SUPPORT,
    ),
    Mutation("_support/files.py", "if UNFINISHED.fullmatch(name):", "if True:", ("support/test_locks.py",)),
    Mutation("_support/files.py", "temporary.chmod(0o666 & ~mask)", "temporary.chmod(0o666)", SUPPORT),
    Mutation(
        "_support/files.py",
        "if SEAL in facts and facts[SEAL] != _checksum_of(rest):",
        "if SEAL in facts and not facts[SEAL]:",
        SUPPORT,
    ),
    Mutation("_support/registry.py", 'elif character == "," and depth <= 0:', 'elif character == ",":', SUPPORT),
    Mutation("_support/tensors.py", "if stated is None and always:", "if stated is None and not always:", SUPPORT),
)
