"""The Hugging Face callback in a real run of the trainer."""

import warnings

import pytest
import torch

import neuralcollapse as nc

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

    from neuralcollapse.integrations import CSVLogger, TransformersCollapse

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_run_of_the_trainer(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        num_labels=3,
    )
    model = transformers.BertForSequenceClassification(config)
    ids = torch.randint(0, 30, (24, 6))
    rows = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": int(row[0]) % 3} for row in ids]
    callback = TransformersCollapse(loggers=[CSVLogger(tmp_path / "m.csv")])
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=8, report_to=[],
        use_cpu=True,
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert [epoch for epoch, _ in callback.history] == [1, 2]
    report = callback.history[-1][1]
    assert report.num_samples == 24
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 3}
    expected = nc.measure_model(model, [batch])
    for name, value in expected.scalars.items():
        assert report[name] == pytest.approx(value, rel=1e-3), name
    logged = [entry for entry in trainer.state.log_history if "nc/nc1" in entry]
    assert logged[-1]["nc/nc1"] == report.nc1
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 3
    assert not model.classifier._forward_hooks
