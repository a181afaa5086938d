"""Every metric once more, straight from its definition in float64 numpy, without shortcuts."""

import numpy as np
from scipy.optimize import nnls


def class_means(H, y, K):
    return np.stack([H[y == k].mean(0) for k in range(K)])


def covariances(H, y, K, global_mean="samples"):
    M = class_means(H, y, K)
    centre = H.mean(0) if global_mean == "samples" else M.mean(0)
    D = H - M[y]
    within = D.T @ D / len(H)
    between = (M - centre).T @ (M - centre) / K
    return within, between


def etf(K):
    return (np.eye(K) - 1 / K) / np.sqrt(K - 1)


def cosines(X):
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    return (U @ U.T)[~np.eye(len(X), dtype=bool)]


def gram_distance(A, K):
    return np.linalg.norm(A / np.linalg.norm(A) - etf(K))


def projected_distance(A, rank):
    K = len(A)
    P = np.eye(K) - 1 / K
    _, vectors = np.linalg.eigh(P @ (A + A.T) @ P / 2 + 1e3 * np.linalg.norm(A) * (P - np.eye(K)))
    U = vectors[:, -rank:]
    return np.linalg.norm(A / np.linalg.norm(A) - U @ U.T / np.sqrt(rank))


@np.errstate(divide="ignore", invalid="ignore")
def all_metrics(H, y, W, b, ood=None, global_mean="samples"):
    H, W, b = (np.asarray(a, dtype=np.float64) for a in (H, W, b))
    y = np.asarray(y)
    K, d = W.shape
    M = class_means(H, y, K)
    centre = H.mean(0) if global_mean == "samples" else M.mean(0)
    C = M - centre
    within, between = covariances(H, y, K, global_mean)
    total = within + between
    variances = np.array([((H[y == k] - M[k]) ** 2).sum(1).mean() for k in range(K)])
    result = {
        "nc1": np.trace(within @ np.linalg.pinv(between, rcond=1e-11)) / K,
        "nc1_quotient": np.trace(within) / np.trace(between),
        "cdnv": np.mean(
            [
                (variances[k] + variances[j]) / (2 * ((M[k] - M[j]) ** 2).sum())
                for k in range(K)
                for j in range(K)
                if j != k
            ]
        ),
        "vci": 1 - np.trace(np.linalg.pinv(total, rcond=1e-11) @ between) / np.linalg.matrix_rank(between, tol=1e-10),
        "nc3_frobenius": np.linalg.norm(W / np.linalg.norm(W) - C / np.linalg.norm(C)) ** 2,
        "nc4_bias": np.linalg.norm(b + W @ centre),
        "numerical_rank": np.mean(
            [np.linalg.norm(H[y == k], "nuc") ** 2 / np.linalg.norm(H[y == k]) ** 2 for k in range(K)]
        ),
    }
    if d >= K - 1:
        result |= {
            "nc2": gram_distance(W @ W.T, K),
            "nc2_means": gram_distance(C @ C.T, K),
            "nc3": gram_distance(W @ C.T, K),
        }
    else:
        result |= {
            "nc2_projected": projected_distance(W @ W.T, d),
            "nc2_means_projected": projected_distance(C @ C.T, d),
            "nc3_projected": projected_distance(W @ C.T, d),
        }
    for name, X in (("weight", W), ("means", C)):
        norms, cos = np.linalg.norm(X, axis=1), cosines(X)
        result[f"equinorm_{name}"] = norms.std() / norms.mean()
        result[f"equiangular_{name}"] = cos.std()
        result[f"max_angle_{name}"] = np.abs(cos + 1 / (K - 1)).mean()
    result |= debiased(H, y, K, global_mean, within)
    total = W.sum(0)
    result["nc0"] = np.linalg.norm(total) / np.linalg.norm(W)
    if d >= K - 1:
        S, P = W @ W.T, np.eye(K) - 1 / K
        outside = S - P @ S @ P
        share = np.linalg.norm(outside) ** 2 / np.linalg.norm(S) ** 2
        result["nc2_floor"] = np.sqrt(2 - 2 * np.sqrt(1 - share))
    U, V = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (C, W))
    logs = np.array([-np.log(np.linalg.norm(U[k] - U[j])) for k in range(K) for j in range(K) if j != k])
    result["uniformity_means"] = logs.mean()
    result["uniformity_means_variation"] = logs.std() / abs(logs.mean())
    along = (U * V).sum(1)
    result["nc3_cosine"] = 1 - along.mean()
    for name, X in (("weight", V), ("means", U)):
        result[f"one_vs_rest_{name}"] = min(hull_distance(X, k) for k in range(K))
    if d >= K - 1:
        n, P = np.bincount(y, minlength=K).astype(float), np.eye(K) - 1 / K
        values, vectors = np.linalg.eigh(P @ np.diag(n) @ P)
        kept = values > 1e-10 * values[-1]
        for name, X, power in (("weight", W, 0.5), ("means", P @ M, -0.5)):
            S = (vectors[:, kept] * values[kept] ** power) @ vectors[:, kept].T
            G = X @ X.T
            result[f"seli_{name}"] = np.linalg.norm(G / np.linalg.norm(G) - S / np.linalg.norm(S))
    if along.mean() != 0:
        result["nc3_cosine_variation"] = along.std() / abs(along.mean())
    decided = (H @ W.T + b).argmax(1)
    nearest = ((H[:, None, :] - M[None]) ** 2).sum(2).argmin(1)
    result["nc4_mismatch"] = (decided != nearest).mean()
    result["cosine_margin"] = margins(H, y, W, centre).mean()
    if ood is not None:
        m = np.asarray(ood, dtype=np.float64).mean(0)
        result["nc5_ood"] = np.mean([abs(mk @ m) / np.linalg.norm(mk) / np.linalg.norm(m) for mk in M])
    return result


def debiased(H, y, K, global_mean, within):
    """The debiased NC1 family by full matrices: noise covariances of every class mean, contrast by contrast."""
    n = np.bincount(y, minlength=K).astype(float)
    if n.min() < 2:
        return {}
    M = class_means(H, y, K)
    s2 = np.array([((H[y == k] - M[k]) ** 2).sum() / (n[k] - 1) for k in range(K)])
    shares = n / n.sum() if global_mean == "samples" else np.full(K, 1 / K)
    Q = np.eye(K) - np.outer(np.ones(K), shares)
    C = Q @ M
    noise = Q @ np.diag(s2 / n) @ Q.T
    gram = C @ C.T - noise
    sigma = (n * s2).sum() / n.sum()
    result = {}
    if np.trace(gram) > 0:
        result["nc1_quotient_debiased"] = sigma / (np.trace(gram) / K)
    apart = [((M[k] - M[j]) ** 2).sum() - s2[k] / n[k] - s2[j] / n[j] for k in range(K) for j in range(K) if j != k]
    if min(apart) > 0:
        pairs = [(s2[k] + s2[j]) / 2 for k in range(K) for j in range(K) if j != k]
        result["cdnv_debiased"] = np.mean(np.array(pairs) / np.array(apart))
    # Left null vector of every centred matrix: the shares. Positive definite off it?
    basis = np.linalg.svd(np.eye(K) - np.outer(shares, shares) / (shares @ shares))[0][:, : K - 1]
    if C.shape[1] >= K - 1 and np.linalg.eigvalsh(basis.T @ gram @ basis).min() > 0:
        U, _, Vt = np.linalg.svd(C, full_matrices=False)
        U, Vt = U[:, : K - 1], Vt[: K - 1]
        spread = U @ Vt @ (within * sigma / np.trace(within)) @ Vt.T @ U.T
        result["nc1_debiased"] = np.trace(spread @ np.linalg.pinv(gram, rcond=1e-11))
    return result


def hull_distance(X, k):
    """min |x_k - others' a| over a >= 0 with sum 1, by non-negative least squares with a heavy row for the sum."""
    others, heavy = np.delete(X, k, axis=0), 1e4
    A = np.vstack([others.T, np.full(len(others), heavy)])
    a = nnls(A, np.append(X[k], heavy))[0]
    return np.linalg.norm(X[k] - a @ others / a.sum())


def margins(H, y, W, centre):
    Hc, Wc = H - centre, W - W.mean(0)
    cos = (Hc / np.linalg.norm(Hc, axis=1, keepdims=True)) @ (Wc / np.linalg.norm(Wc, axis=1, keepdims=True)).T
    rows = np.arange(len(y))
    own = cos[rows, y].copy()
    cos[rows, y] = -np.inf
    return own - cos.max(1)
