"""Every example of docs/integrations.md runs, in order of the page, with the names that it takes for granted."""

import logging
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
EXAMPLES = re.findall(r"^## (.+?)$.*?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def features(self, x):
        return torch.relu(self.body(x))

    def forward(self, x):
        return self.head(self.features(x))


def lightning_module():
    from lightning.pytorch import LightningModule

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.model(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def names(title):
    """What an example takes for granted."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 5), torch.arange(60) % 3
    model, loader = Model(), DataLoader(TensorDataset(x, y), batch_size=20)
    known = {"torch": torch, "model": model, "loader": loader}
    known["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    exec("import neuralcollapse as nc", known)
    if title == "Lightning":
        pytest.importorskip("lightning")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        known |= {"module": lightning_module(), "train_loader": loader, "validation_loader": loader}
    if title in ("Transformers", "Language models"):
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        tokens = torch.randint(0, 20, (40, 6))
        known["bert"] = transformers.BertForSequenceClassification(
            transformers.BertConfig(vocab_size=20, num_labels=3, **sizes)
        )
        known["rows"] = [{"input_ids": row, "labels": int(row[0]) % 3} for row in tokens]
        config = transformers.GPT2Config(
            vocab_size=25, n_embd=8, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0
        )
        known["language_model"] = transformers.GPT2LMHeadModel(config)
        known["token_batches"] = [{"input_ids": part, "labels": part} for part in tokens.split(10)]
    return known


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_an_example_of_the_page(title, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = names(title)
        exec(compile(code, f"{PAGE.name}: {title}", "exec"), known)
    report = known.get("report")
    if title == "A loop of your own":
        assert report.layer == "head"
        assert len((tmp_path / "runs" / "metrics.jsonl").read_text().splitlines()) == 2
    if title == "Language models":
        assert report.layer == "lm_head"
        assert any("shifted" in note for note in report.notes)
    if report is not None:
        assert report.nc1 > 0


def test_the_page_has_an_example_for_every_way():
    assert [title for title, _ in EXAMPLES] == [
        "A loop of your own", "Lightning", "Transformers", "Language models", "torchmetrics", "Several processes",
        "Stored features",
    ]  # fmt: skip
