"""The Hugging Face callback in real runs of the trainer."""

import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

    from neuralcollapse.integrations import CSVLogger, TransformersCollapse

import naive

pytestmark = pytest.mark.filterwarnings("ignore")


def classifier():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20, num_labels=3
    )
    return transformers.BertForSequenceClassification(config)


def rows(count=24):
    ids = torch.randint(0, 30, (count, 6), generator=torch.Generator().manual_seed(1))
    return ids, [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": int(row[0]) % 3} for row in ids]


def trained(folder, callback, model=None, data=None, evaluation=None, **options):
    model = classifier() if model is None else model
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        **{"num_train_epochs": 2, "per_device_train_batch_size": 8, "report_to": [], "logging_strategy": "no"}
        | options,
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=rows()[1] if data is None else data,
        eval_dataset=evaluation,
        callbacks=[callback] if callback is not None else [],
    )
    trainer.train()
    return model, trainer


def truth(model, ids):
    model.eval()
    with torch.no_grad():
        features = model.bert(ids, torch.ones_like(ids)).pooler_output.double().numpy()
    head = model.classifier
    weight, bias = (tensor.detach().double().numpy() for tensor in (head.weight, head.bias))
    return naive.all_metrics(features, (ids[:, 0] % 3).numpy(), weight, bias)


NAMES = ["nc1", "nc2", "nc3", "nc4_mismatch", "cdnv"]


def test_a_run_of_the_trainer(tmp_path):
    callback = TransformersCollapse(loggers=[CSVLogger(tmp_path / "m.csv")])
    model, trainer = trained(tmp_path, callback)
    assert [epoch for epoch, _ in callback.history] == [1, 2]
    report = callback.history[-1][1]
    assert (report.num_samples, report.layer) == (24, "classifier")
    expected = truth(model, rows()[0])
    for name in NAMES:
        assert report[name] == pytest.approx(expected[name], rel=1e-3), name
    logged = [entry for entry in trainer.state.log_history if "nc/nc1" in entry]
    assert [entry["step"] for entry in logged] == [3, 6]
    assert logged[-1]["nc/nc1"] == report.nc1
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 3
    assert not any(module._forward_hooks for module in model.modules())


def test_measuring_changes_nothing_in_the_run(tmp_path):
    callback = TransformersCollapse(every_steps=1, max_batches=2)
    with_it, _ = trained(tmp_path, callback, gradient_accumulation_steps=2)
    without, _ = trained(tmp_path, None, gradient_accumulation_steps=2)
    for name, tensor in without.state_dict().items():
        assert torch.equal(with_it.state_dict()[name], tensor), name


def test_steps_and_a_sample_of_batches(tmp_path):
    callback = TransformersCollapse(every_steps=2, max_batches=2, metrics="nc1_quotient")
    trained(tmp_path, callback)
    assert [epoch for epoch, _ in callback.history] == pytest.approx([2 / 3, 4 / 3, 2])
    assert all(report.num_samples == 16 for _, report in callback.history)
    assert any("first 2 batches" in note for note in callback.history[0][1].notes)


def test_tensorboard_and_evaluations(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ids, evaluation = rows(30)
    callback = TransformersCollapse(metrics=["nc1", "nc2"])
    model, trainer = trained(
        tmp_path, callback, evaluation=evaluation, eval_strategy="epoch", report_to=["tensorboard"],
        metric_for_best_model="eval_nc/nc1", logging_strategy="steps",
    )  # fmt: skip
    files = {file.parent for file in tmp_path.rglob("events.out.tfevents*")}
    tags = {}
    for folder in files:
        events = EventAccumulator(str(folder))
        events.Reload()
        tags |= {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert tags["train/nc/nc1"] == pytest.approx([report.nc1 for _, report in callback.history], rel=1e-5)
    evaluated = [report.nc1 for _, report in callback.evaluation_history]
    assert tags["eval/nc/nc1"] == pytest.approx(evaluated, rel=1e-5)
    assert evaluated[-1] == pytest.approx(truth(model, ids)["nc1"], rel=1e-3)
    metrics = trainer.evaluate()
    assert metrics["eval_nc/nc2"] == pytest.approx(truth(model, ids)["nc2"], rel=1e-3)
    assert len(callback.evaluation_history) == 3
    quiet = TransformersCollapse(evaluations=False, every=2, metrics="nc2")
    trained(tmp_path, quiet, evaluation=evaluation, eval_strategy="epoch")
    assert not quiet.evaluation_history
    assert [epoch for epoch, _ in quiet.history] == [2]


def test_a_causal_language_model_is_paired_with_the_next_token(tmp_path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=12, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    ids = torch.randint(0, 9, (32, 10))
    data = [{"input_ids": row, "labels": row} for row in ids]
    callback = TransformersCollapse(present_only=True, metrics=["nc1", "nc1_quotient"], every=2)
    model, _ = trained(tmp_path, callback, transformers.GPT2LMHeadModel(config), data)
    model.eval()
    with torch.no_grad():
        features = model.transformer(ids).last_hidden_state[:, :-1].reshape(-1, 8).double().numpy()
    within, between = naive.covariances(features, ids[:, 1:].reshape(-1).numpy(), 9)
    ((_, report),) = callback.history
    assert (report.num_classes, report.num_samples) == (9, 32 * 9)
    assert report.nc1_quotient == pytest.approx(np.trace(within) / np.trace(between), rel=1e-3)
    assert any("shifted" in note for note in report.notes)


def test_a_stream_without_an_end(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows()[1])

    callback = TransformersCollapse(metrics="nc1_quotient")
    trained(tmp_path, callback, data=Stream(), max_steps=5)
    epochs = [epoch for epoch, _ in callback.history]
    assert len(epochs) == len(set(epochs)) == 2


class Diverging(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == 4:
            with torch.no_grad():
                model.classifier.weight.fill_(torch.nan)


def test_a_diverged_model_ends_no_training(tmp_path, caplog):
    callback = TransformersCollapse(metrics=["nc1", "nc2"])
    model = classifier()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=3, per_device_train_batch_size=8, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows()[1], callbacks=[Diverging(), callback]
    )
    trainer.train()
    assert trainer.state.global_step == 9
    assert [epoch for epoch, _ in callback.history] == [1]
    assert len([entry for entry in trainer.state.log_history if "nc/nc1" in entry]) == 1
    assert caplog.text.count("must be finite") == 1
