"""Every metric once more, straight from its definition in float64 numpy, without shortcuts."""

import numpy as np


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
    decided = (H @ W.T + b).argmax(1)
    nearest = ((H[:, None, :] - M[None]) ** 2).sum(2).argmin(1)
    result["nc4_mismatch"] = (decided != nearest).mean()
    result["cosine_margin"] = margins(H, y, W, centre).mean()
    if ood is not None:
        m = np.asarray(ood, dtype=np.float64).mean(0)
        result["nc5_ood"] = np.mean([abs(mk @ m) / np.linalg.norm(mk) / np.linalg.norm(m) for mk in M])
    return result


def margins(H, y, W, centre):
    Hc, Wc = H - centre, W - W.mean(0)
    cos = (Hc / np.linalg.norm(Hc, axis=1, keepdims=True)) @ (Wc / np.linalg.norm(Wc, axis=1, keepdims=True)).T
    rows = np.arange(len(y))
    own = cos[rows, y].copy()
    cos[rows, y] = -np.inf
    return own - cos.max(1)
