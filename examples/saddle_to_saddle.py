"""From saddle to saddle to the global minimum: the certificate says which way is down.

The origin of the regularised model is critical. Its certificate carries a direction of negative curvature; after a step
along it, descent goes on, and stays in the subspace that the step spans: it ends in the next saddle, at which more
classes are told apart. The last certificate proves that the end is global.
"""

import neuralcollapse as nc

model = nc.ufm.RegularizedUFM("ce", num_classes=5, per_class=20, dim=8, weight_decay=0.01, feature_decay=0.001)
point = model.random_point(seed=0) * 0.0

certificate = model.certify(point)
while certificate.verdict == "strict saddle" and certificate.escape is not None:
    print(f"{certificate.value:.6f}  strict saddle, curvature {certificate.curvature:.3g}, gap {certificate.gap:.2g}")
    step = certificate.escape * 0.1
    point = nc.ufm.solve(model, method="lbfgs", start=point + step, tol=1e-10).point
    certificate = model.certify(point)

print(f"{certificate.value:.6f}  {certificate.verdict}, gap {certificate.gap:.1e}")
print(f"{model.optimum().value:.6f}  closed form")
assert certificate.verdict == "global minimum"
