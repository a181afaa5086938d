"""The metrics as attributes of a report, for editors and type checkers; at run time they come from the registry."""

from typing import TYPE_CHECKING

__all__ = ["MetricAttributes"]


class MetricAttributes:
    """One attribute a metric: its value, or ``None`` where it does not apply."""

    if TYPE_CHECKING:
        cdnv: float | None
        cdnv_debiased: float | None
        cosine_margin: float | None
        equiangular_means: float | None
        equiangular_weight: float | None
        equinorm_means: float | None
        equinorm_weight: float | None
        max_angle_means: float | None
        max_angle_weight: float | None
        nc0: float | None
        nc1: float | None
        nc1_debiased: float | None
        nc1_quotient: float | None
        nc1_quotient_debiased: float | None
        nc2: float | None
        nc2_floor: float | None
        nc2_means: float | None
        nc2_means_projected: float | None
        nc2_projected: float | None
        nc3: float | None
        nc3_cosine: float | None
        nc3_cosine_variation: float | None
        nc3_frobenius: float | None
        nc3_projected: float | None
        nc4_bias: float | None
        nc4_mismatch: float | None
        nc5_ood: float | None
        numerical_rank: float | None
        one_vs_rest_means: float | None
        one_vs_rest_weight: float | None
        seli_means: float | None
        seli_weight: float | None
        uniformity_means: float | None
        uniformity_means_variation: float | None
        vci: float | None
