"""Models of Hugging Face."""

import pytest
import torch

from kinds.base import Case, K, N, images, kind

VOCABULARY = 9


def language():
    """Tokens whose successors depend on them, so that a pairing without a shift shows."""
    generator = torch.Generator().manual_seed(6)
    tokens = torch.randint(0, VOCABULARY, (N, 10), generator=generator)
    tokens[:, 1::2] = (tokens[:, ::2] * 2 + 1) % VOCABULARY
    return tokens


def gpt2(**changes):
    transformers = pytest.importorskip("transformers")
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None} | changes
    return transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=12, n_layer=1, n_head=2, n_positions=16, **ends)


def llama(**changes):
    transformers = pytest.importorskip("transformers")
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None} | changes
    sizes = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=1, **sizes, **ends)


def bert(**changes):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.BertConfig(vocab_size=VOCABULARY, pad_token_id=None, **sizes, **changes)


def causal(model, hidden, layer, same_object=True):
    model.eval()
    tokens = language()
    with torch.no_grad():
        features = hidden(model, tokens)
    head = dict(model.named_modules())[layer]
    labels = tokens if same_object else tokens.clone()
    return Case(
        model,
        [{"input_ids": tokens, "labels": labels}],
        features[:, :-1].reshape(-1, 12),
        tokens[:, 1:].reshape(-1),
        head.weight,
        head.bias,
        layer,
        note="shifted by one token",
    )


@kind
def a_causal_model_with_a_tied_head():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(gpt2())
    assert model.lm_head.weight is model.transformer.wte.weight
    return causal(model, lambda m, t: m.transformer(t).last_hidden_state, "lm_head")


@kind
def llama_with_padding():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    case = causal(
        transformers.LlamaForCausalLM(llama()), lambda m, t: m.model(t).last_hidden_state, "lm_head", same_object=False
    )
    batch = case.loader[0]
    batch["labels"][:, -2:] = -100
    kept = batch["labels"][:, 1:].reshape(-1) != -100
    case.features, case.labels = case.features[kept], case.labels[kept]
    return case


@kind
def an_encoder_used_as_a_causal_model():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")

    def hidden(model, tokens):
        return model.cls.predictions.transform(model.bert(tokens).last_hidden_state)

    return causal(transformers.BertLMHeadModel(bert(is_decoder=True)), hidden, "cls.predictions.decoder")


@kind
def a_masked_language_model():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model, tokens = transformers.BertForMaskedLM(bert()).eval(), language()
    with torch.no_grad():
        features = model.cls.predictions.transform(model.bert(tokens).last_hidden_state)
    head = model.cls.predictions.decoder
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    return Case(
        model, [batch], features.reshape(-1, 12), tokens.reshape(-1), head.weight, head.bias, "cls.predictions.decoder"
    )


@kind
def an_encoder_and_decoder():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=12, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    model, tokens = transformers.T5ForConditionalGeneration(config).eval(), language()
    caught = []
    hook = model.lm_head.register_forward_hook(lambda module, inputs, output: caught.append(inputs[0].detach()))
    shifted = torch.cat([torch.zeros(N, 1, dtype=torch.long), tokens[:, :-1]], 1)
    with torch.no_grad():
        model(input_ids=tokens, decoder_input_ids=shifted)
    hook.remove()
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    return Case(model, [batch], caught[0].reshape(-1, 12), tokens.reshape(-1), model.lm_head.weight, None, "lm_head")


@kind
def token_classification():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model, tokens = transformers.BertForTokenClassification(bert(num_labels=3)).eval(), language()
    with torch.no_grad():
        features = model.bert(tokens).last_hidden_state
    batch = {"input_ids": tokens, "labels": tokens % 3}
    head = model.classifier
    return Case(
        model, [batch], features.reshape(-1, 12), (tokens % 3).reshape(-1), head.weight, head.bias, "classifier"
    )


def sequences(model, base, side):
    tokens = language().clamp(min=1)
    mask = torch.ones_like(tokens)
    for row in range(N):
        missing = row % 4
        places = slice(10 - missing, 10) if side == "right" else slice(0, missing)
        tokens[row, places], mask[row, places] = 0, 0
    last = torch.full((N,), 9) if side == "left" else 9 - torch.arange(N) % 4
    labels = torch.arange(N) % 3
    model.eval()
    with torch.no_grad():
        hidden = base(input_ids=tokens, attention_mask=mask).last_hidden_state
    batches = [
        {"input_ids": tokens[part], "attention_mask": mask[part], "labels": labels[part]}
        for part in torch.arange(N).split(20)
    ]
    return Case(
        model, batches, hidden[torch.arange(N), last], labels, model.score.weight, None, "score", note="itself picks"
    )


@kind
def a_decoder_that_classifies_with_padding_on_the_right():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2ForSequenceClassification(gpt2(num_labels=3, pad_token_id=0))
    return sequences(model, model.transformer, "right")


@kind
def a_decoder_that_classifies_with_padding_on_the_left():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForSequenceClassification(llama(num_labels=3, pad_token_id=0))
    return sequences(model, model.model, "left")


@kind
def a_vision_transformer():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=6, patch_size=3,
        num_labels=K,
    )  # fmt: skip
    model, (x, y) = transformers.ViTForImageClassification(config).eval(), images()
    with torch.no_grad():
        features = model.vit(x).last_hidden_state[:, 0]
    head = model.classifier
    return Case(model, [{"pixel_values": x, "labels": y}], features, y, head.weight, head.bias, "classifier")
