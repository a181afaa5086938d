"""Labels of language models in wrappers of one's own, each against float64 truths of the pairs made by hand.

A token's feature belongs to the next token: by the model's own loss, by the kind of the model inside a wrapper, or
because the labels are the next tokens already. What cannot be told is noted.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import naive
import neuralcollapse as nc

transformers = pytest.importorskip("transformers")

V, D, T = 9, 12, 10
METRICS = ["nc1", "nc4_bias", "nc4_mismatch", "cdnv", "nc3_cosine"]
pytestmark = pytest.mark.filterwarnings("ignore")


def tokens():
    """Every second token follows from the one before, so that a wrong pairing shows."""
    found = torch.randint(0, V, (30, T), generator=torch.Generator().manual_seed(0))
    found[:, 1::2] = (3 * found[:, ::2] + 1) % V
    return found


def language_model(kind=transformers.GPT2LMHeadModel):
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "n_positions": T, "n_embd": D, "n_layer": 1, "n_head": 2}
    return kind(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=1, num_labels=1)).eval()


def next_token_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class Wrapped(nn.Module):
    """A language model in a module of one's own; ``pack`` says what forward returns."""

    def __init__(self, pack):
        super().__init__()
        self.lm, self.pack = language_model(), pack

    def forward(self, input_ids, labels=None):
        logits = self.lm(input_ids).logits
        return self.pack(logits, None if labels is None else next_token_loss(logits, labels))


class Plain(nn.Module):
    """The same with no loss."""

    def __init__(self):
        super().__init__()
        self.lm = language_model()

    def forward(self, input_ids):
        return self.lm(input_ids).logits


class Recurrent(nn.Module):
    """A language model that says nothing about itself."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.cell, self.head = nn.Embedding(V, D), nn.GRU(D, D, batch_first=True), nn.Linear(D, V)

    def hidden(self, found):
        return self.cell(self.embed(found))[0]

    def forward(self, found):
        return self.head(self.hidden(found))


def check(model, batch, hidden, labels, weight, bias=None, note=None):
    hidden, labels = hidden.detach().double().reshape(-1, D).numpy(), labels.reshape(-1).numpy()
    classes, numbers = np.unique(labels, return_inverse=True)
    bias = torch.zeros(V) if bias is None else bias
    w, b = (part.detach().double().numpy()[classes] for part in (weight, bias))
    truth = naive.all_metrics(hidden, numbers, w, b)
    report = nc.measure_model(model, [batch], metrics=METRICS, present_only=True)
    for name in METRICS:
        assert report[name] == pytest.approx(truth[name], rel=1e-3, abs=1e-6), name
    assert note is None or any(note in line for line in report.notes), report.notes
    return report


def hidden_of(lm, found):
    return lm.transformer(found).last_hidden_state


@pytest.mark.parametrize(
    "pack",
    [
        lambda logits, loss: {"loss": loss, "logits": logits},
        lambda logits, loss: logits if loss is None else (loss, logits),
        lambda logits, loss: (logits, loss),
    ],
    ids=["dict", "loss-first", "loss-last"],
)
def test_the_loss_of_a_wrapper_decides(pack):
    model, found = Wrapped(pack), tokens()
    hidden = hidden_of(model.lm, found)[:, :-1]
    check(model, {"input_ids": found, "labels": found}, hidden, found[:, 1:], model.lm.lm_head.weight, note="shifted")


def test_a_language_model_inside_a_wrapper_without_a_loss():
    model, found = Plain(), tokens()
    hidden, weight = hidden_of(model.lm, found), model.lm.lm_head.weight
    check(model, {"input_ids": found, "labels": found}, hidden[:, :-1], found[:, 1:], weight, note="shifted")
    reports = nc.metrics.measure_layers(
        model, [{"input_ids": found, "labels": found}], ["lm.transformer"], metrics=["nc1"]
    )
    truth = naive.all_metrics(
        hidden[:, :-1].detach().double().reshape(-1, D).numpy(),
        found[:, 1:].reshape(-1).numpy(),
        weight.detach().double().numpy(),
        np.zeros(V),
    )
    assert reports["lm.transformer"].nc1 == pytest.approx(truth["nc1"], rel=1e-4)


def test_labels_that_are_the_next_tokens_already_are_not_shifted_again():
    model, found = Plain(), tokens()
    inputs, labels = found[:, :-1], found[:, 1:]
    report = check(model, (inputs, labels), hidden_of(model.lm, inputs), labels, model.lm.lm_head.weight)
    assert not any("shifted" in line for line in report.notes)


def test_a_loss_that_shifts_the_next_tokens_once_more_is_noted():
    model, found = language_model(), tokens()
    inputs, labels = found[:, :-1], found[:, 1:]
    hidden = hidden_of(model, inputs)[:, :-1]
    batch = {"input_ids": inputs, "labels": labels}
    check(model, batch, hidden, labels[:, 1:], model.lm_head.weight, note="next tokens already")


def test_several_sequences_a_sample():
    model, found = language_model(transformers.GPT2DoubleHeadsModel), tokens().reshape(15, 2, T)
    hidden = hidden_of(model, found)[..., :-1, :]
    batch = {"input_ids": found, "labels": found}
    check(model, batch, hidden, found[..., 1:], model.lm_head.weight, note="shifted")


def test_labels_that_equal_the_inputs_of_an_unknown_model_are_noted():
    model, found = Recurrent(), tokens()
    hidden = model.hidden(found)
    check(model, (found, found), hidden, found, model.head.weight, model.head.bias, note="equal the model's input")
